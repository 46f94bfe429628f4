//! Facts of an engine that a report or a comparison needs, without opening a rank.

use config::Products;
use cpu::instruction_set::InstructionSet;
use device::{DeviceKind, NumericsChoice};

/// The devices of an engine, which are of one kind for all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineDescription {
    /// The kind of every rank's device. Ranks of other kinds compute other bits.
    pub device: DeviceKind,
    /// Instruction sets for which there are kernels, the fastest first. They change no bit.
    pub instruction_sets: Vec<InstructionSet>,
    /// Orders of products that the device accepts.
    pub products: Vec<Products>,
    /// Threads that compute for each rank. Their number changes no bit.
    pub threads_per_rank: usize,
}

/// Orders of products that a device accepts.
pub(crate) fn accepted_products(accepts: impl Fn(NumericsChoice) -> bool) -> Vec<Products> {
    Products::ALL.into_iter().filter(|products| accepts(NumericsChoice::Products(*products))).collect()
}

impl EngineDescription {
    /// Ranks that compute on the cores of this machine, as [`ThreadEngine`](crate::ThreadEngine) opens them.
    pub(crate) fn of_cpu_ranks(threads_per_rank: usize) -> EngineDescription {
        EngineDescription {
            device: DeviceKind::CPU,
            instruction_sets: InstructionSet::available(),
            products: accepted_products(cpu::accepts),
            threads_per_rank,
        }
    }
}
