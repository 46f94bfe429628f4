//! Memory of the machine, the need of a plan, and the use of a run.

pub mod host;
pub mod machine;
pub mod need;
pub(crate) mod taken;
