//! A machine as its files and the environment describe it. Nothing is loaded, linked or started to find out.

use std::path::Path;

use config::DeviceChoice;
use launcher::Environment;
use run::memory::machine::{LimitSource, machine_bytes_below, memory_limit_below};
use serde::Serialize;
use train::describe_engine;
use train::processor::{self, InstructionSet};

use super::accelerators::{Gpus, Libraries};
use super::cores::Cores;
use super::launcher::Started;

/// Resources that a process on this machine may use.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Operating system, as Rust calls it: `linux`.
    pub system: &'static str,
    /// Processor family, as Rust calls it: `x86_64`.
    pub architecture: &'static str,
    /// Processor cores.
    pub cores: Cores,
    /// Vector instructions for which there are kernels, fastest first; the first is used.
    #[serde(serialize_with = "names")]
    pub instruction_sets: Vec<InstructionSet>,
    pub memory: Memory,
    /// NVIDIA's accelerators.
    pub gpus: Gpus,
    /// Libraries and programs that connect ranks elsewhere.
    pub libraries: Libraries,
    /// Who started this process as one of several.
    pub launcher: Started,
}

/// Memory, as far as the system tells.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Memory {
    /// Built-in memory in bytes.
    pub machine_bytes: Option<u64>,
    /// Memory of the process's control group in bytes, if that is less.
    pub control_group_bytes: Option<u64>,
}

impl Machine {
    /// The machine whose system folders (`dev`, `etc`, `proc`, `usr` and so on) are below `root`.
    pub fn below(root: &Path, environment: Environment<'_>) -> Machine {
        Machine {
            system: std::env::consts::OS,
            architecture: std::env::consts::ARCH,
            cores: Cores::below(root),
            instruction_sets: describe_engine(DeviceChoice::Cpu, 1).instruction_sets,
            memory: Memory::below(root),
            gpus: Gpus::below(root, environment),
            libraries: Libraries::below(root, environment),
            launcher: Started::of(environment),
        }
    }
}

impl Memory {
    fn below(root: &Path) -> Memory {
        let limit = memory_limit_below(root).filter(|limit| limit.source == LimitSource::ControlGroup);
        Memory { machine_bytes: machine_bytes_below(root), control_group_bytes: limit.map(|limit| limit.bytes) }
    }

    /// Memory of all ranks together.
    pub fn usable_bytes(&self) -> Option<u64> {
        self.control_group_bytes.or(self.machine_bytes)
    }
}

/// Usual names of instruction sets.
pub fn name(set: InstructionSet) -> &'static str {
    match set {
        InstructionSet::Amx => "AMX",
        InstructionSet::Avx512 => "AVX-512",
        InstructionSet::Avx2 => "AVX2",
        InstructionSet::Scalar => "portable",
    }
}

fn names<S: serde::Serializer>(sets: &[InstructionSet], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(sets.iter().map(|set| name(*set)))
}

/// How fast it is: all usable cores at once.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Fused multiply-adds within registers, each counted as two operations.
    pub peak_flops: f64,
    /// Bytes read plus bytes written, per second, between two buffers in memory.
    pub copy_bytes_per_second: f64,
}

impl Measured {
    /// Measures on this number of cores.
    pub fn on(cores: usize) -> Measured {
        Measured {
            peak_flops: processor::flops_per_second(cores),
            copy_bytes_per_second: processor::copy_bytes_per_second(cores),
        }
    }
}
