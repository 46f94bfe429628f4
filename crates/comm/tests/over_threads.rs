//! Collectives, channels and failures over ranks that are threads of one process.

#![allow(clippy::unwrap_used)]

mod suites;
mod worlds;

/// How the ranks of this file's worlds talk.
const WIRE: worlds::Wire = worlds::Wire::Threads;
