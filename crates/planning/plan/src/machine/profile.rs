//! The profile of this machine: what a rank that is a thread gets of a core, measured while every core has one.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::{Accelerator, Attention, Cluster, CollectiveLibrary, Compute, HalfFormats, Link, Node, StreamQueue};
use comm::Timeouts;
use cpu::peak;
use device::{ArenaSize, DeviceError, Numerics};
use mesh::{Axis, AxisSizes, Mesh, MeshError, Rank};
use program::PeerGroups;
use sync::{NoThread, start_scoped};
use train::{EngineOptions, RunDevice, open_engine};

use crate::machine::bench::{Cores, PRODUCT, REDUCED, Times, UNALIGNED_COLS};

/// Why this machine cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// No mesh of its cores.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// An operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A rank has no thread.
    #[error(transparent)]
    Thread(#[from] NoThread),
    /// A rank panicked.
    #[error("a rank that measures panicked")]
    Rank,
}

/// Room for the largest operands of a rank.
const ARENA_BYTES: usize = 64 << 20;

/// Measures for some seconds with a rank on every core, and at least two, for a link has two ends.
///
/// # Errors
/// See [`MeasureError`].
pub fn measure() -> Result<Cluster, MeasureError> {
    measure_ranks(cores().max(2))
}

/// Measures as [`measure`] does, while `ranks` ranks compute at the same time, at least two. More than there are
/// cores take turns, and each is as slow as in a run of that many.
///
/// # Errors
/// See [`MeasureError`].
pub fn measure_ranks(ranks: usize) -> Result<Cluster, MeasureError> {
    let (cores, ranks) = (cores(), ranks.max(2));
    let mesh = Mesh::new(AxisSizes::only(Axis::DpInner, ranks))?;
    let timeouts = Timeouts::new(Duration::from_secs(60)).scaled(ranks, cores);
    let options = EngineOptions { timeouts, queued: &[], threads_per_rank: 1, library: None };
    let engine = open_engine(PeerGroups::new(mesh, []), options, &RunDevice::Cpu);
    let shared = if ranks > cores.max(2) { Cores::Shared } else { Cores::OwnOfEach };
    let times = std::thread::scope(|scope| {
        let engine = &*engine;
        let mut refused = None;
        let start = |rank: usize| {
            let work = move || {
                Times::of(engine.open(Rank(rank), ArenaSize::of_device(ARENA_BYTES), Numerics::SINGLE)?, shared)
            };
            let started = start_scoped(scope, &format!("rank {rank}"), work);
            // The others must not wait for it.
            started.map_err(|error| engine.abort(Rank(rank), &refused.insert(error).to_string())).ok()
        };
        let threads: Vec<_> = (0..ranks).filter_map(start).collect();
        let all: Vec<_> = threads.into_iter().map(|thread| thread.join().map_err(|_| MeasureError::Rank)).collect();
        match refused {
            Some(error) => Err(error.into()),
            None => all.into_iter().next().unwrap_or(Err(MeasureError::Rank)),
        }
    })??;
    let peak = peak::flops_per_second(cores) / cores as f64;
    Ok(profile(&times, peak, cores, ranks))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The profile of ranks whose core does `peak` floating-point operations per second.
fn profile(times: &Times, peak: f64, cores: usize, ranks: usize) -> Cluster {
    let (rows, cols, [short, long]) = PRODUCT;
    // t = c (depth + ramp) for both depths.
    let per_column = (times.products[1] - times.products[0]).max(1.0) / (long - short) as f64;
    let ramp = (times.products[1] / per_column - long as f64).max(0.0);
    let peak_per_ns = peak * 1e-9;
    let share = |value: f64| value.clamp(0.01, 1.0);
    let tflops = peak * 1e-12;
    // Of a ring of n, each member sends 2 (n - 1) / n of the bytes.
    let sent_bytes = 2.0 * (ranks - 1) as f64 / ranks as f64 * (4 * REDUCED) as f64;
    let link = Link {
        gb_per_s: sent_bytes / (times.reduce_all - times.reduce_one).max(1.0),
        efficiency: 1.0,
        start_us: times.reduce_one * 1e-3,
        latency_us: 0.0,
    };
    let busy = match ranks > cores.max(2) {
        false => format!("a rank on each of {cores} cores"),
        true => format!("{ranks} ranks on {cores} cores"),
    };
    let measured = |what: &str| format!("measured on this machine with {busy}: {what}");
    let sources = [
        ("accelerator", measured("chains of multiply-adds in registers, copies of activations")),
        ("compute", measured("products of two depths, attention, elementwise operations, the shortest operation")),
        ("node", measured("all-reduces of one number and of many")),
        ("network", "there is one node; the numbers are those of its links".into()),
    ];
    Cluster {
        about: format!("this machine, {busy}"),
        collectives: CollectiveLibrary::Nccl,
        accelerator: Accelerator {
            name: "core".into(),
            memory_gb: 1.0,
            memory_gb_per_s: times.copied_per_ns,
            half_tflops: tflops,
            single_tflops: tflops,
            tf32_tflops: None,
            // A copy within memory reads and writes each byte.
            host_link_gb_per_s: Some(times.copied_per_ns / 2.0),
            half_formats: HalfFormats::Both,
            multiprocessors: 1,
            streams: StreamQueue::InLine,
        },
        compute: Compute {
            matrix_efficiency: share(2.0 * (rows * cols) as f64 / (per_column * peak_per_ns)),
            tile_ramp_columns: ramp,
            unaligned_efficiency: share(times.products[1] * UNALIGNED_COLS as f64 / cols as f64 / times.unaligned),
            attention_efficiency: share(times.attention_per_ns[0] / peak_per_ns),
            attention_backward_efficiency: share(times.attention_per_ns[1] / peak_per_ns),
            memory_efficiency: share(times.elementwise_per_ns / times.copied_per_ns),
            kernel_gap_us: times.launch * 1e-3,
            issue_us: 0.0,
            contention: 0.0,
        },
        attention: Attention::default(),
        node: Node { accelerators: cores, link: link.clone() },
        network: link,
        fitted: BTreeMap::new(),
        software: None,
        sources: sources.map(|(section, source)| (section.to_string(), source)).into_iter().collect(),
    }
}
