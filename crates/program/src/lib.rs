//! (crate program)
