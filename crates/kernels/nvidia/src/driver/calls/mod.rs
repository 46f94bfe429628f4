//! The calls of the driver with values and errors, by concept.
//!
//! Handles are made by these calls alone, and [`super::owned::Owned`] destroys each after its last use, so a handle
//! that a call is given is valid. The context of the calling thread is current: [`super::context::Context::enter`].

pub(super) mod code;
pub(super) mod devices;
pub(super) mod entry;
pub(super) mod environment;
pub(super) mod graphs;
pub(super) mod memory;
pub(super) mod streams;
