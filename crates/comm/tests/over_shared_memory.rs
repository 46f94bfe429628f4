//! Collectives, channels and failures over ranks in several processes that share memory.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod suites;
mod worlds;

/// How the ranks of this file's worlds talk.
const WIRE: worlds::Wire = worlds::Wire::SharedMemory;
