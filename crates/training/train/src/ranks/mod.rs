//! The ranks of a process at work: their threads, their agreement before the first step, and their failures.

pub mod agreement;
pub mod failure;
pub(crate) mod launch;
pub mod rings;
