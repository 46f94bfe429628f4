//! What a run is recorded to do on devices that compute nothing is what a real run is counted to do: multiply-adds in the loops
//! of the kernels, bytes in the transport, the last byte touched in the arena.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

mod cases;
mod counted;
mod group_calls;
mod lives;
mod recorded;
mod watching;
mod work;
