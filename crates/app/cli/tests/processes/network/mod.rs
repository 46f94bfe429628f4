//! Runs over a network of several hosts: the bits of threads, or a failure that is named in time.
//!
//! Hosts are network namespaces, so the tests need root, `ip` and `tc`.

mod bits;
mod cluster;
mod corruption;
mod faults;
#[allow(dead_code, reason = "the bench of hosts uses the rest")]
pub mod namespaces;
mod relay;
mod starting;
mod strangers;
