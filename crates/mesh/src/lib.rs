//! (crate mesh)
