//! A GPU in software. It runs the PTX that NVIDIA's compiler makes, lane by lane, and checks what hardware does not.

mod checks;
mod code;
mod counters;
mod driver;
mod execute;
mod faults;
mod graphs;
mod host_work;
mod memory;
mod modules;
mod ptx;
mod settings;
mod soft_gpu;
mod state;
mod streams;
mod tensor_maps;

pub use checks::{AccessRanges, Check, Checks};
pub use counters::Counters;
pub use driver::SoftDriver;
pub use faults::{FaultPlan, PlannedFault};
pub use host_work::Promise;
pub use modules::SharedCode;
pub use settings::Settings;
pub use soft_gpu::SoftGpu;
pub use streams::{Deal, HardwareQueues, HostFunction, HostWork, Pairs, Place, WorkLog};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as softgpu;
#[cfg(test)]
mod tests;
