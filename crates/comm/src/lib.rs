//! (crate comm)
