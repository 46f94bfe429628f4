//! (crate philox)
