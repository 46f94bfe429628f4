//! (crate train)
