//! The profile of this machine's GPUs.

use std::sync::Arc;
use std::time::Duration;

use cluster::Cluster;
use comm::Timeouts;
use config::{GradientSums, Precision, Products};
use device::Numerics;
use mesh::{Axis, AxisSizes, Mesh, Rank};
use sim::{ProductFormat, kernel_ns, peak_flops_per_ns};
use train::{EngineOptions, Gpus, RunDevice, open_engine};

use crate::machine::gpu::bench::{GpuTimes, TimedProduct, arena_bytes};
use crate::machine::profile::MeasureError;

/// Measures for some seconds with a rank on every GPU. The data sheet, and all that these GPUs cannot show, are those
/// of `base`: the network, and with one GPU the links between GPUs.
///
/// # Errors
/// See [`MeasureError`].
pub fn measure_gpus(gpus: &Arc<Gpus>, base: &Cluster) -> Result<Cluster, MeasureError> {
    let facts = gpus.facts();
    let ranks = facts.len();
    let products = match facts[0].capability.major {
        ..9 => Products::Blocks8,
        9.. => Products::Blocks16,
    };
    let numerics = Numerics::of(Precision::Bf16(products), GradientSums::Single);
    let mesh = Mesh::new(AxisSizes::only(Axis::DpInner, ranks))?;
    let timeouts = Timeouts::new(Duration::from_secs(60));
    let options = EngineOptions { timeouts, queued: &[], threads_per_rank: 1, library: None };
    let engine = open_engine(mesh, options, &RunDevice::Gpus(Arc::clone(gpus)));
    let bytes = arena_bytes(facts.iter().map(|gpu| gpu.memory_bytes).min().unwrap_or(0));
    let times = std::thread::scope(|scope| {
        let engine = &*engine;
        let measured = |rank: usize| GpuTimes::of(engine.open(Rank(rank), bytes, numerics)?, bytes, ranks);
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || measured(rank))).collect();
        let all: Vec<_> = threads.into_iter().map(|thread| thread.join().map_err(|_| MeasureError::Rank)).collect();
        all.into_iter().next().unwrap_or(Err(MeasureError::Rank))
    })??;
    let gpu = &facts[0];
    let memory_gb = facts.iter().map(|gpu| gpu.memory_bytes).min().unwrap_or(0) as f64 * 1e-9;
    let mut measured = profile(&times, base, ranks);
    measured.about = match ranks {
        1 => format!("this machine, {}", gpu.name),
        _ => format!("this machine, {ranks} x {}", gpu.name),
    };
    measured.accelerator.name = gpu.name.clone();
    measured.accelerator.memory_gb = memory_gb;
    measured.accelerator.multiprocessors = gpu.multiprocessors;
    Ok(measured)
}

/// `base` with the constants that `ranks` GPUs with these times have.
fn profile(times: &GpuTimes, base: &Cluster, ranks: usize) -> Cluster {
    let mut measured = base.clone();
    let share = |value: f64| value.clamp(0.01, 1.0);
    let peak_per_ns = peak_flops_per_ns(&base.accelerator, ProductFormat::Half);
    let [short, long] = times.products;
    // t = c (depth + ramp) for both depths.
    let depth = |timed: &TimedProduct| timed.product.k as f64;
    let per_column = (long.ns - short.ns).max(1.0) / (depth(&long) - depth(&short));
    let compute = &mut measured.compute;
    compute.tile_ramp_columns = (long.ns / per_column - depth(&long)).max(0.0);
    compute.attention_efficiency = share(times.attention_per_ns[0] / peak_per_ns);
    compute.attention_backward_efficiency = share(times.attention_per_ns[1] / peak_per_ns);
    compute.memory_efficiency = share(times.moved_per_ns / base.accelerator.memory_gb_per_s);
    compute.kernel_gap_us = times.gap * 1e-3;
    compute.issue_us = times.issue * 1e-3;
    compute.unaligned_efficiency =
        share(long.ns * times.unaligned.product.flops() / long.product.flops() / times.unaligned.ns);
    // The share with which the price of the deeper product is its time.
    compute.matrix_efficiency = 1.0;
    let at_peak = kernel_ns(&measured, &sim::Kernel::Product(long.product));
    measured.compute.matrix_efficiency = share(at_peak / long.ns);
    measured.node.accelerators = ranks;
    let on = match ranks {
        1 => "measured on this GPU".to_string(),
        _ => format!("measured on this machine's {ranks} GPUs, which compute at the same time"),
    };
    let mut from = |section: &str, source: String| {
        measured.sources.entry(section.into()).and_modify(|notes| *notes = format!("{source}; base: {notes}"));
    };
    from(
        "accelerator",
        "name, memory and multiprocessors as the driver reports them; rates are those of the base".into(),
    );
    from("compute", format!("{on}, by pleach's kernels in bf16; contention: that of the base"));
    match times.reduced {
        None => from("node", "one GPU has no links to measure: those of the base".into()),
        Some(reduced) => {
            // Of a ring of n, each member sends 2 (n - 1) / n of the bytes.
            let sent = 2.0 * (ranks - 1) as f64 / ranks as f64 * reduced.bytes as f64;
            measured.node.link.efficiency =
                share(sent / (reduced.many - reduced.one).max(1.0) / base.node.link.gb_per_s);
            measured.node.link.start_us = reduced.one * 1e-3;
            from(
                "node",
                format!("{on}: all-reduces of pleach's own of one number and of many; rate: that of the base"),
            );
        }
    }
    measured.fitted.clear();
    measured.software = None;
    measured
}
