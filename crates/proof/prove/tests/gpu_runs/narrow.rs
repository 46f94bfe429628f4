//! Runs that store parameters and activations in bf16 and fp16.

use config::{Format, Overlap, Precision, Products, Tied, ZeroStage};
use prove::Outcome;
use testkit::layout::Layout;
use testkit::soft_gpus::soft_gpus;

use crate::gpu_runs::rig::{On, ZERO_THREE, gemma, outcome, stored_layout, with_more_sequences};

/// Enough for a step after which the learning rate falls.
const STEPS: u32 = 4;

/// The outcome on CPUs, which is that of `dp x tp x pp` ranks on this many GPUs.
fn compare(format: Format, tied: Tied, degrees: [usize; 3], zero: ZeroStage, num_gpus: usize) -> Outcome {
    compare_layout(&stored_layout(format, tied, degrees, zero, Overlap::On, STEPS), num_gpus)
}

fn compare_layout(layout: &Layout, num_gpus: usize) -> Outcome {
    let gpus = soft_gpus(num_gpus);
    let on_cpus = outcome(layout, &On::Cpus).expect("a run on CPUs");
    let on_gpus = outcome(layout, &On::Gpus(gpus)).expect("a run on GPUs");
    assert_eq!(on_gpus.losses, on_cpus.losses);
    // The norm of a skipped step is a NaN, which is not equal to itself.
    let bits = |outcome: &Outcome| outcome.norms.iter().map(|norm| norm.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&on_gpus), bits(&on_cpus));
    assert_eq!(on_gpus.scaling, on_cpus.scaling);
    assert!(on_cpus.losses.first() > on_cpus.losses.last() && on_cpus.losses.len() == STEPS as usize);
    assert!(on_gpus.gradients == on_cpus.gradients, "gradients differ");
    assert!(on_gpus.weights == on_cpus.weights, "weights differ");
    on_cpus
}

#[needs::cuda]
#[test]
fn gpt_in_bf16_with_sharded_optimizer_state() {
    compare(Format::Bf16, Tied::Yes, [2, 2, 2], ZeroStage::One, 8);
}

#[needs::cuda]
#[test]
fn gpt_in_bf16_with_sharded_parameters() {
    compare(Format::Bf16, Tied::Yes, [2, 2, 2], ZERO_THREE, 1);
}

/// Products and attention by tensor cores.
#[needs::cuda]
#[test]
fn llama_in_bf16_and_blocks_with_sharded_parameters() {
    let mut layout = stored_layout(Format::Bf16, Tied::No, [2, 2, 2], ZERO_THREE, Overlap::On, STEPS);
    layout.train.precision = Precision::Bf16(Products::Blocks16);
    compare_layout(&layout, 8);
}

/// The same with soft caps.
#[needs::cuda]
#[test]
fn gemma_in_bf16_and_blocks() {
    let mut layout = stored_layout(Format::Bf16, Tied::No, [1, 2, 1], ZeroStage::One, Overlap::On, STEPS);
    layout.model = gemma(layout.model);
    layout.train.precision = Precision::Bf16(Products::Blocks16);
    compare_layout(&layout, 2);
}

/// The first factor of the loss is so large that gradients overflow: steps are skipped, and others are not.
#[needs::cuda]
#[test]
fn llama_in_fp16_with_a_factor_of_the_loss_that_falls() {
    let layout = stored_layout(Format::Fp16, Tied::No, [2, 2, 1], ZERO_THREE, Overlap::On, STEPS);
    let on_cpus = compare_layout(&with_more_sequences(layout), 2);
    let skipped = on_cpus.norms.iter().filter(|norm| !norm.is_finite()).count();
    assert!(0 < skipped && skipped < on_cpus.norms.len(), "{:?}", on_cpus.norms);
}
