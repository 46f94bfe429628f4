//! The work that is recorded on devices that compute nothing is the work that is counted in a real run: multiply-adds
//! in the loops of the kernels, bytes in the transport, the last byte touched in the arena.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

mod cases;
mod counted;
mod group_calls;
mod lives;
mod recorded;
mod watching;
mod work;
