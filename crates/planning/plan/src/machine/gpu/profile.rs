//! The profile of this machine's GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Attention, Cluster};
use comm::Timeouts;
use config::{GradientSums, Precision, Products};
use device::{ArenaSize, Numerics};
use mesh::{Axis, AxisSizes, Mesh, Rank};
use program::PeerGroups;
use sim::{Kernel, kernel_ns};
use train::{EngineOptions, Gpus, RunDevice, open_engine};

use crate::machine::gpu::bench::{GpuTimes, TimedProduct, arena_bytes};
use crate::machine::profile::MeasureError;

/// Whose products are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredProducts {
    /// Pleach's own, in the blocks of the GPUs.
    Kernels,
    /// The products of the GPUs' library, by the first algorithm that it proposes for each.
    Library,
}

impl MeasuredProducts {
    /// Products of a run in bf16 on GPUs of this major capability.
    fn on(self, major: u32) -> Products {
        match (self, major) {
            (MeasuredProducts::Kernels, ..9) => Products::Blocks8,
            (MeasuredProducts::Kernels, 9..) => Products::Blocks16,
            (MeasuredProducts::Library, _) => Products::Device,
        }
    }

    /// For the sources of a profile.
    fn named(self) -> &'static str {
        match self {
            MeasuredProducts::Kernels => "by pleach's kernels in bf16",
            MeasuredProducts::Library => {
                "by pleach's kernels in bf16, products by the first algorithm of the GPU's library"
            }
        }
    }
}

/// Measures for some seconds with a rank on every GPU. The data sheet, and all that these GPUs cannot show, are those
/// of `base`: the network, and with one GPU the links between GPUs.
///
/// # Errors
/// See [`MeasureError`].
pub fn measure_gpus(
    gpus: &Arc<Gpus>,
    base: &Cluster,
    measured_products: MeasuredProducts,
) -> Result<Cluster, MeasureError> {
    let facts = gpus.facts();
    let ranks = facts.len();
    let products = measured_products.on(facts[0].capability.major);
    let numerics = Numerics::of(Precision::Bf16(products), GradientSums::Single);
    let mesh = Mesh::new(AxisSizes::only(Axis::DpInner, ranks))?;
    let timeouts = Timeouts::new(Duration::from_secs(60));
    let options = EngineOptions { timeouts, queued: &[], threads_per_rank: 1, library: None };
    let engine = open_engine(PeerGroups::new(mesh, []), options, &RunDevice::Gpus(Arc::clone(gpus)));
    let bytes = arena_bytes(facts.iter().map(|gpu| gpu.memory_bytes).min().unwrap_or(0));
    let times = std::thread::scope(|scope| {
        let engine = &*engine;
        let measured =
            |rank: usize| GpuTimes::of(engine.open(Rank(rank), ArenaSize::of_device(bytes), numerics)?, bytes, ranks);
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || measured(rank))).collect();
        let all: Vec<_> = threads.into_iter().map(|thread| thread.join().map_err(|_| MeasureError::Rank)).collect();
        all.into_iter().next().unwrap_or(Err(MeasureError::Rank))
    })??;
    let gpu = &facts[0];
    let memory_gb = facts.iter().map(|gpu| gpu.memory_bytes).min().unwrap_or(0) as f64 * 1e-9;
    let mut measured = profile(&times, base, ranks, measured_products);
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
fn profile(times: &GpuTimes, base: &Cluster, ranks: usize, products: MeasuredProducts) -> Cluster {
    let mut measured = base.clone();
    let share = |value: f64| value.clamp(0.01, 1.0);
    let [short, long] = times.products;
    // t = c (depth + ramp) for both depths.
    let depth = |timed: &TimedProduct| timed.product.k as f64;
    let per_column = (long.ns - short.ns).max(1.0) / (depth(&long) - depth(&short));
    let compute = &mut measured.compute;
    // A start that takes longer than the deeper product tells that other work delayed the shallower one.
    compute.tile_ramp_columns = (long.ns / per_column - depth(&long)).clamp(0.0, depth(&long));
    compute.memory_efficiency = share(times.moved_per_ns / base.accelerator.memory_gb_per_s);
    compute.kernel_gap_us = times.gap * 1e-3;
    compute.issue_us = times.issue * 1e-3;
    compute.unaligned_efficiency =
        share(long.ns * times.unaligned.product.flops() / long.product.flops() / times.unaligned.ns);
    // The shares with which prices are the times.
    compute.matrix_efficiency = 1.0;
    compute.attention_efficiency = 1.0;
    compute.attention_backward_efficiency = 1.0;
    let at_peak = |kernels: &[Kernel]| kernels.iter().map(|kernel| kernel_ns(&measured, kernel)).sum::<f64>();
    let of_products = share(at_peak(&[Kernel::Product(long.product)]) / long.ns);
    let [forward, backward] = times.attention.each_ref().map(|timed| share(at_peak(&timed.kernels) / timed.ns));
    measured.compute.matrix_efficiency = of_products;
    measured.compute.attention_efficiency = forward;
    measured.compute.attention_backward_efficiency = backward;
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
    from("compute", format!("{on}, {}; contention: that of the base", products.named()));
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
    name_kept_losses(&mut measured.sources, base);
    measured.fitted.clear();
    measured.software = None;
    measured
}

/// Says in `sources` that the losses of attention are those of `base`, where it has any. The measured shares are those
/// with which prices under these losses are the measured times.
fn name_kept_losses(sources: &mut BTreeMap<String, String>, base: &Cluster) {
    if base.attention == Attention::default() {
        return;
    }
    let notes = base.sources.get("attention").map_or(String::new(), |notes| format!("; base: {notes}"));
    let kept = "losses of short sequences and few heads, and the generation of kernels: those of the base";
    sources.insert("attention".into(), format!("{kept}{notes}"));
}

#[cfg(test)]
mod tests {
    use cluster::named;
    use sim::{AttentionPass, Product, ProductFormat};

    use super::*;
    use crate::machine::gpu::bench::{TimedOp, TimedReductions};

    /// Times of a GPU with the constants of `cluster`, as `simulate` prices them.
    fn priced(cluster: &Cluster) -> GpuTimes {
        let timed = |sizes: [usize; 3]| {
            let product = Product::new(1, sizes, [2, 2], None);
            TimedProduct { product, ns: kernel_ns(cluster, &Kernel::Product(product)) }
        };
        let attention = |pass: AttentionPass| {
            let (tokens, tiles, kernels, format) = (4096, 512, None, ProductFormat::Half);
            let (heads, head_dim) = (16, 128);
            let kernel = Kernel::Attention { flops: 1e12, pass, tokens, tiles, heads, head_dim, kernels, format };
            TimedOp { kernels: vec![kernel], ns: kernel_ns(cluster, &kernel) }
        };
        let link = &cluster.node.link;
        let bytes = 1 << 27;
        let one = 1e3 * link.start_us;
        GpuTimes {
            products: [timed([8192, 8192, 1024]), timed([8192, 8192, 8192])],
            unaligned: timed([8192, 8200, 8192]),
            attention: [attention(AttentionPass::Forward), attention(AttentionPass::Backward)],
            moved_per_ns: 1e9 / kernel_ns(cluster, &Kernel::Memory { bytes: 1e9 }),
            gap: 1e3 * cluster.compute.kernel_gap_us,
            issue: 1e3 * cluster.compute.issue_us,
            reduced: Some(TimedReductions { one, many: one + 1.75 * bytes as f64 * link.ns_per_byte(), bytes }),
        }
    }

    /// Constants of compute and of links, in the order of the types.
    fn constants(cluster: &Cluster) -> [f64; 9] {
        let Cluster { compute, node, .. } = cluster;
        [
            compute.matrix_efficiency,
            compute.tile_ramp_columns,
            compute.unaligned_efficiency,
            compute.attention_efficiency,
            compute.attention_backward_efficiency,
            compute.memory_efficiency,
            compute.kernel_gap_us,
            compute.issue_us,
            node.link.efficiency,
        ]
    }

    /// A profile whose prices are the times has the constants that the times were made with.
    #[test]
    fn constants_are_found_in_the_times_that_they_make() {
        let base = Cluster::from_toml(named("h200-141g-dgx").expect("a profile")).expect("a cluster");
        let mut real = base.clone();
        real.compute.matrix_efficiency = 0.63;
        real.compute.tile_ramp_columns = 141.0;
        real.compute.unaligned_efficiency = 0.71;
        real.compute.attention_efficiency = 0.31;
        real.compute.attention_backward_efficiency = 0.22;
        real.compute.memory_efficiency = 0.87;
        real.compute.kernel_gap_us = 1.3;
        real.compute.issue_us = 4.1;
        real.node.link.efficiency = 0.55;
        let found = profile(&priced(&real), &base, 8, MeasuredProducts::Kernels);
        let (found, expected) = (constants(&found), constants(&real));
        // The unaligned product has 8200 columns, so one more column of tiles: 16.6 waves of them, not 16.
        let bounds = [1e-6, 1e-6, 0.05, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9];
        for ((found, expected), bound) in found.iter().zip(expected).zip(bounds) {
            assert!((found - expected).abs() <= bound * expected, "{found} is not {expected}");
        }
    }

    /// Other work may delay the shallower product until it takes as long as the deeper one.
    #[test]
    fn delayed_times_make_a_profile_that_is_read() {
        let base = Cluster::from_toml(named("h200-141g-dgx").expect("a profile")).expect("a cluster");
        for delay in [1.0, 1.001, 10.0] {
            let mut times = priced(&base);
            times.products[0].ns = times.products[1].ns * delay;
            let found = profile(&times, &base, 8, MeasuredProducts::Kernels);
            assert_eq!(found.compute.tile_ramp_columns, 8192.0);
            assert_eq!(Cluster::from_toml(&found.to_toml()).expect("a profile"), found);
        }
    }

    #[test]
    fn losses_of_attention_are_named_as_those_of_the_base_where_it_has_any() {
        let of = |name: &str| Cluster::from_toml(named(name).expect("a profile")).expect("a cluster");
        let (with, without) = (of("h200-141g-dgx"), of("v100-32g-dgx1"));
        let said = &profile(&priced(&with), &with, 1, MeasuredProducts::Kernels).sources["attention"];
        assert!(said.contains("those of the base; base: ramp_tokens: "), "{said}");
        assert_eq!(profile(&priced(&without), &without, 1, MeasuredProducts::Kernels).sources.get("attention"), None);
    }
}
