//! Activations in pinned memory of the host.

use config::{ChunkOrder, ContextKind, Format, Offload, Overlap, Recompute, ScheduleKind, Tied, ZeroStage};
use testkit::layout::Layout;
use testkit::soft_gpus::soft_gpus;

use crate::gpu_runs::rig::{On, ZERO_THREE, outcome, stored_layout};
use crate::gpu_runs::shared_sequences::{FOUR, shared};

fn offloaded(format: Format, degrees: [usize; 3], zero: ZeroStage, overlap: Overlap) -> Layout {
    let mut layout = stored_layout(format, Tied::Yes, degrees, zero, overlap, 2);
    layout.train.offload = Offload::Activations;
    layout
}

fn compare(layout: &Layout, num_gpus: usize) {
    let gpus = soft_gpus(num_gpus);
    let mut without = layout.clone();
    without.train.offload = Offload::None;
    let expected = outcome(&without, &On::Cpus).expect("a run on CPUs");
    let found = outcome(layout, &On::Gpus(gpus)).expect("a run on GPUs");
    assert!(found == expected, "{:?} {:?}", found.losses, expected.losses);
}

#[needs::cuda]
#[test]
fn one_gpu_has_the_bits_of_a_cpu_without() {
    compare(&offloaded(Format::Fp32, [1, 1, 1], ZeroStage::Off, Overlap::On), 1);
    compare(&offloaded(Format::Bf16, [1, 1, 1], ZeroStage::Off, Overlap::Off), 1);
}

#[needs::cuda]
#[test]
fn eight_gpus_with_all_that_can_be_offloaded_have_the_bits_of_cpus_without() {
    let mut layout = offloaded(Format::Bf16, [2, 2, 2], ZeroStage::One, Overlap::On);
    layout.train.offload = Offload::All;
    compare(&layout, 8);
}

#[needs::cuda]
#[test]
fn sharded_parameters_recomputation_and_another_schedule_have_the_bits_of_cpus_without() {
    let mut layout = offloaded(Format::Bf16, [2, 1, 2], ZERO_THREE, Overlap::On);
    layout.parallelism.recompute = Recompute::Selective;
    layout.parallelism.schedule = ScheduleKind::GPipe.into();
    compare(&layout, 4);
}

#[needs::cuda]
#[test]
fn shared_sequences_have_the_bits_of_cpus_without() {
    let mut layout = shared(Tied::No, FOUR, ContextKind::Ring, ChunkOrder::Balanced, ZeroStage::One);
    layout.train.offload = Offload::Activations;
    layout.model.num_layers = 4;
    compare(&layout, 4);
}
