//! (crate checkpoint)
