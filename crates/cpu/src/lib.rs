//! (crate cpu)
