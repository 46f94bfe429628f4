//! (crate device)
