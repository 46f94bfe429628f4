//! The speed of collectives between threads, and between processes over shared memory and TCP, printed.
//!
//! Bandwidth: a 64 MiB all-reduce over two ranks, compared with two threads that copy 64 MiB each, the limit of the
//! machine's memory. Latency: small all-reduces, where waking threads costs most. Each line has all wires, so that the
//! machine is the same for all. Processes are simulated in this one: their ranks share no memory but that of the
//! transport. Words choose lines: `-- large TCP` has those of 64 MiB over TCP.

#[path = "../tests/worlds/wire.rs"]
mod wire;
#[path = "../tests/worlds/world.rs"]
mod world;

use comm::{ChannelId, GroupCommunicator, HostMap, Timeouts, Transport};
use mesh::{Axis, AxisSet, AxisSizes, Mesh};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use wire::Wire;
use world::run_world;

const WIRES: [(Wire, &str); 3] =
    [(Wire::Threads, "threads"), (Wire::SharedMemory, "shared memory"), (Wire::Tcp, "TCP")];
const LARGE_ELEMENTS: usize = 16 << 20;
const TIMEOUTS: Timeouts = Timeouts::new(Duration::from_secs(60));

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let has = |word: &str| words.iter().any(|given| given == word);
    let has_size = |size| has(size) || !(has("large") || has("small"));
    let wires = WIRES.into_iter().filter(|(_, name)| has(name) || WIRES.iter().all(|(_, name)| !has(name)));
    if has_size("large") {
        large(wires.clone());
    }
    if has_size("small") {
        small(wires);
    }
}

/// 64 MiB, where the memory of the machine is the limit.
fn large(wires: impl Iterator<Item = (Wire, &'static str)> + Clone) {
    let copy_gb_per_s = copies();
    println!("two threads copy 64 MiB each: {copy_gb_per_s:.2} GB/s per thread");
    for ranks in [2, 4] {
        for (wire, name) in wires.clone() {
            let gb_per_s = LARGE_ELEMENTS as f64 * 4.0 / per_call_ns(wire, ranks, LARGE_ELEMENTS, 12);
            let share = 100.0 * gb_per_s / copy_gb_per_s;
            println!("all-reduce of 64 MiB, {ranks} ranks, {name}: {gb_per_s:.2} GB/s ({share:.0} % of a copy)");
        }
    }
}

/// Short ones, where waking threads is the limit.
fn small(wires: impl Iterator<Item = (Wire, &'static str)> + Clone) {
    for bytes in [64, 4 << 10, 16 << 10, 64 << 10, 256 << 10] {
        for (wire, name) in wires.clone() {
            let us = [2, 4, 8, 16].map(|ranks| per_call_ns(wire, ranks, bytes / 4, 4_000) / 1e3);
            let [two, four, eight, sixteen] = us;
            println!(
                "all-reduce of {bytes:>6} bytes, {name:>13}: {two:7.1} us on 2 ranks, {four:7.1} on 4, \
                 {eight:7.1} on 8, {sixteen:7.1} on 16"
            );
        }
    }
}

/// The median time of an all-reduce, as rank 0 sees it.
fn per_call_ns(wire: Wire, ranks: usize, elements: usize, calls: usize) -> f64 {
    let results = run_world(wire, ranks, TIMEOUTS, |transport| {
        let communicator = communicator(transport);
        let mut data = vec![0.0f32; elements];
        let mut times = Vec::with_capacity(calls);
        let mut reduce = || communicator.all_reduce_sum(&mut data);
        reduce().and_then(|()| {
            for _ in 0..calls {
                let started = Instant::now();
                reduce()?;
                times.push(started.elapsed().as_nanos() as f64);
            }
            Ok(())
        })?;
        Ok::<f64, comm::CommError>(if calls > 100 { mean(&times) } else { median(&mut times) })
    });
    match results.into_iter().next() {
        Some(Ok(Ok(ns))) => ns,
        Some(Ok(Err(error))) => fail(&error),
        Some(Err(panic)) => fail(&panic),
        None => f64::NAN,
    }
}

fn fail(error: &dyn std::error::Error) -> f64 {
    eprintln!("{error}");
    f64::NAN
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn communicator(transport: Arc<dyn Transport>) -> GroupCommunicator {
    let sizes = AxisSizes { tp: transport.world_size(), ..AxisSizes::ONE };
    let mesh = Mesh::new(sizes).unwrap_or_else(|error| panic!("{error}"));
    let group = mesh.group(transport.rank(), Axis::Tp);
    GroupCommunicator::new(transport, group, &HostMap::one_host(), ChannelId::new(AxisSet::of(Axis::Tp), 0))
}

/// Bytes copied per second by each of two threads that copy 64 MiB at the same time.
fn copies() -> f64 {
    let start = Barrier::new(2);
    let copy = || {
        let source = vec![1.0f32; LARGE_ELEMENTS];
        let mut target = vec![0.0f32; LARGE_ELEMENTS];
        let mut times: Vec<f64> = (0..12)
            .map(|_| {
                start.wait();
                let started = Instant::now();
                target.copy_from_slice(std::hint::black_box(&source));
                std::hint::black_box(&mut target);
                started.elapsed().as_nanos() as f64
            })
            .collect();
        median(&mut times)
    };
    let ns = std::thread::scope(|scope| {
        let other = scope.spawn(copy);
        let own = copy();
        other.join().map_or(own, |ns| ns.max(own))
    });
    LARGE_ELEMENTS as f64 * 4.0 / ns
}
