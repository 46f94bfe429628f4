//! No kernel is priced above the peak of the numbers that it multiplies: on any cluster, for any precision and trainer.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{Accelerator, AttentionKernels, Cluster, SingleProducts, Software, named, names};
use config::{ModelSpec, RunConfig, UnitClass};
use device::Dtype;
use model::MicrobatchShape;
use program::PassKind;
use record::{RecordCase, UnitRecords};
use sim::{Kernel, RecordedUnits, UnitWork, kernel_ns};

use super::training_case::training_case;

/// Hidden width, tokens of a sequence, sequences: attention is nearly nothing of the first and nearly all of the last.
const SIZES: [(usize, usize, usize); 4] = [(256, 128, 8), (1024, 1024, 4), (4096, 2048, 1), (512, 16384, 1)];

/// Prices are sums of quotients, so they may be this much off.
const ROUNDING: f64 = 1e-9;

fn units(
    (hidden, tokens, sequences): (usize, usize, usize),
    stored: Dtype,
    software: Option<&Software>,
) -> [UnitWork; 3] {
    let quick_start = RunConfig::quick_start().model;
    let num_heads = hidden / 64;
    let model = ModelSpec {
        hidden,
        num_heads,
        num_kv_heads: num_heads,
        head_dim: 64,
        ffn_hidden: 4 * hidden,
        context: tokens,
        ..quick_start
    };
    let case = RecordCase { stored, ..training_case(&model, MicrobatchShape::whole(sequences, tokens)) };
    let units = RecordedUnits::new(&UnitRecords::new(case).unwrap(), software).units;
    [UnitClass::Embedding, UnitClass::Layer(0), UnitClass::Head].map(|class| units[class].clone())
}

/// The peak of a trainer's products as data sheets have it, in operations per nanosecond.
fn peak(accelerator: &Accelerator, stored: Dtype, software: Option<&Software>) -> f64 {
    let rounds = software.is_some_and(|software| software.single_products == SingleProducts::Tf32);
    let tflops = match (stored == Dtype::F32, rounds, accelerator.tf32_tflops) {
        (false, _, _) => accelerator.half_tflops,
        (true, true, Some(tf32)) => tf32,
        (true, _, _) => accelerator.single_tflops,
    };
    1000.0 * tflops
}

#[test]
fn no_kernel_is_faster_than_the_peak_of_its_numbers() {
    let trainers = Software::names().map(|name| Software::from_toml(Software::named(name).unwrap()).unwrap());
    let trainers: Vec<Option<Software>> = std::iter::once(None).chain(trainers.map(Some)).collect();
    let clusters: Vec<(&str, Cluster)> =
        names().map(|name| (name, Cluster::from_toml(named(name).unwrap()).unwrap())).collect();
    let mut kernels = 0;
    for size in SIZES {
        for stored in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            for software in &trainers {
                for unit in units(size, stored, software.as_ref()) {
                    let passes = [PassKind::Forward, PassKind::BackwardInput, PassKind::BackwardWeight];
                    for kernel in passes.iter().flat_map(|pass| &unit.of(*pass).kernels) {
                        let flops = match kernel {
                            Kernel::Product(product) => product.flops(),
                            Kernel::Attention { flops, .. } => *flops,
                            Kernel::Memory { .. } => continue,
                        };
                        for (name, cluster) in &clusters {
                            let share = flops
                                / kernel_ns(cluster, kernel)
                                / peak(&cluster.accelerator, stored, software.as_ref());
                            assert!(
                                share <= 1.0 + ROUNDING,
                                "{name}, {stored:?}, {size:?}: {kernel:?} at {:.0} % of the peak",
                                100.0 * share
                            );
                            kernels += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(kernels > 10_000, "{kernels} kernels were priced");
}

/// An A100 has three peaks: 312, 156 and 19.5 TFLOP/s; a V100 does not round to TF32.
#[test]
fn attention_in_single_precision_takes_as_much_longer_as_its_peak_is_lower() {
    let attention_ns = |cluster: &str, stored, software: Option<&str>| -> f64 {
        let cluster = Cluster::from_toml(named(cluster).unwrap()).unwrap();
        let software = software.map(|name| Software::from_toml(Software::named(name).unwrap()).unwrap());
        let software = software.map(|named| Software { attention: AttentionKernels::Fused, ..named });
        let [_, layer, _] = units(SIZES[1], stored, software.as_ref());
        let kernels = [&layer.forward.kernels, &layer.backward_input.kernels];
        let fused = kernels.into_iter().flatten().filter(|kernel| matches!(kernel, Kernel::Attention { .. }));
        fused.map(|kernel| kernel_ns(&cluster, kernel)).sum()
    };
    let half = attention_ns("a100-80g-dgx", Dtype::Bf16, None);
    let times = |cluster, software| attention_ns(cluster, Dtype::F32, software) / half;
    assert!((times("a100-80g-dgx", None) - 312.0 / 19.5).abs() < ROUNDING);
    assert!((times("a100-80g-dgx", Some("megatron-2021")) - 312.0 / 156.0).abs() < ROUNDING);
    assert!((times("a100-80g-dgx", Some("torchtitan-2024")) - 312.0 / 19.5).abs() < ROUNDING);
    let [tf32, full] = [Some("megatron-2021"), None].map(|software| times("v100-32g-dgx1", software));
    assert_eq!(tf32, full);
}
