//! Silent corruption: memory that changes by itself, and computations that are wrong once.

mod guarded_group;
pub mod rechecked_device;
mod resting_memory;
pub(crate) mod state_hashes;

use std::rc::Rc;

use config::Recheck;
use device::{Communicator, Device};
use mesh::Rank;

use crate::engine::RankEngine;
use crate::recheck::guarded_group::GuardedGroup;
use crate::recheck::rechecked_device::RecheckedDevice;
use crate::recheck::resting_memory::RestingMemory;

/// The same rank, with operations that are computed twice, and with memory that is checked between them where all are.
pub(crate) fn rechecked(
    engine: RankEngine,
    recheck: Recheck,
    (rank, seed): (Rank, u64),
    arena_bytes: usize,
) -> RankEngine {
    let RankEngine { device, memory, communicators } = engine;
    let device: Rc<dyn Device> = device.into();
    let resting = match recheck {
        Recheck::Off | Recheck::Sample => None,
        Recheck::All => Some(Rc::new(RestingMemory::new(Rc::clone(&device), arena_bytes))),
    };
    let communicators = communicators.wrapped(|_, inner| -> Box<dyn Communicator> {
        match &resting {
            None => inner,
            Some(resting) => Box::new(GuardedGroup::new(inner, Rc::clone(resting))),
        }
    });
    let device = Box::new(RecheckedDevice::new(device, recheck, resting, (rank, seed)));
    RankEngine { device, memory, communicators }
}
