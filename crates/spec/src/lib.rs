//! (crate spec)
