//! Worlds, inputs and oracles shared by the tests of this crate.

#![allow(clippy::unwrap_used)]

pub mod wire;
mod world;

use comm::{ChannelId, GroupCommunicator, HostMap, Timeouts, Transport};
use mesh::{Axis, AxisSet, AxisSizes, Group, Mesh};
use std::sync::Arc;
use std::time::Duration;

pub use wire::Wire;
pub use world::RankPanic;

/// Runs `body` on every rank of a world.
pub fn run_world<T: Send>(
    wire: Wire,
    ranks: usize,
    timeouts: Timeouts,
    body: impl Fn(Arc<dyn Transport>) -> T + Sync,
) -> Vec<Result<T, RankPanic>> {
    world::run_world(wire, ranks, timeouts, body)
}

/// A deadline that no healthy test meets, however busy the machine.
pub fn patient() -> Timeouts {
    Timeouts::new(Duration::from_secs(120))
}

/// A deadline for tests in which it must pass.
pub fn impatient() -> Timeouts {
    Timeouts::new(Duration::from_millis(100))
}

/// Runs `body` on every rank; a panic of one fails the test.
pub fn run<T: Send>(wire: Wire, ranks: usize, body: impl Fn(Arc<dyn Transport>) -> T + Sync) -> Vec<T> {
    run_within(wire, patient(), ranks, body)
}

pub fn run_within<T: Send>(
    wire: Wire,
    timeouts: Timeouts,
    ranks: usize,
    body: impl Fn(Arc<dyn Transport>) -> T + Sync,
) -> Vec<T> {
    let results = run_world(wire, ranks, timeouts, body);
    results.into_iter().map(|result| result.unwrap()).collect()
}

/// The group of the whole world.
pub fn everybody(transport: &Arc<dyn Transport>) -> Group {
    let sizes = AxisSizes { tp: transport.world_size(), ..AxisSizes::ONE };
    Mesh::new(sizes).unwrap().group(transport.rank(), Axis::Tp)
}

/// The communicator of the whole world, on one host.
pub fn communicator(transport: &Arc<dyn Transport>) -> GroupCommunicator {
    communicator_on(transport, &HostMap::one_host())
}

/// The communicator of the whole world on these hosts.
pub fn communicator_on(transport: &Arc<dyn Transport>, hosts: &HostMap) -> GroupCommunicator {
    let channel = ChannelId::new(AxisSet::of(Axis::Tp), 0);
    GroupCommunicator::new(Arc::clone(transport), everybody(transport), hosts, channel)
}

/// Values of very different magnitudes, so that another order of a sum gives other bits.
pub fn input(rank: usize, len: usize) -> Vec<f32> {
    let value = |index: usize| {
        let mixed = (index as u32 ^ (rank as u32) << 24).wrapping_mul(0x9e37_79b9);
        let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
        let mantissa = (mixed >> 8) as f32 / (1 << 24) as f32 - 0.5;
        // The bits of a power of two from 2^-16 to 2^15. `powi` may round otherwise in each call, as Miri's does.
        mantissa * f32::from_bits(((mixed & 31) + 127 - 16) << 23)
    };
    (0..len).map(value).collect()
}

/// The inputs of all ranks combined one rank after the other.
pub fn serial(ranks: usize, len: usize, combine: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    let mut result = input(0, len);
    for rank in 1..ranks {
        for (sum, x) in result.iter_mut().zip(input(rank, len)) {
            *sum = combine(*sum, x);
        }
    }
    result
}

pub fn bits(data: &[f32]) -> Vec<u32> {
    data.iter().map(|x| x.to_bits()).collect()
}
