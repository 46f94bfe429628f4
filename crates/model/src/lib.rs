//! (crate model)
