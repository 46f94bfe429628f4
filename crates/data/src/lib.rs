//! (crate data)
