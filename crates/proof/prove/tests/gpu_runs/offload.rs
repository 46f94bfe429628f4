//! Optimizer state in pinned memory of the host.

use std::sync::Arc;

use config::{Format, Muon, MuonScale, Offload, Optimizer, Overlap, Tied, ZeroStage};
use gpu::DriverErrorKind;
use softgpu::Settings;
use testkit::layout::Layout;
use testkit::soft_gpus::{gpus_of, soft_driver, soft_gpus};
use testkit::wrapped_gpu::{CallOutcome, GpuCall, Judge, WrappedDriver};

use crate::gpu_runs::rig::{Folder, On, ZERO_THREE, outcome, part_of_run, stored_layout};

fn offloaded(format: Format, degrees: [usize; 3], zero: ZeroStage, overlap: Overlap) -> Layout {
    let mut layout = stored_layout(format, Tied::Yes, degrees, zero, overlap, 2);
    layout.train.offload = Offload::Optimizer;
    layout
}

fn without(layout: &Layout) -> Layout {
    let mut layout = layout.clone();
    layout.train.offload = Offload::None;
    layout
}

fn compare(layout: &Layout, num_gpus: usize) {
    let gpus = soft_gpus(num_gpus);
    let expected = outcome(&without(layout), &On::Cpus).expect("a run on CPUs");
    let found = outcome(layout, &On::Gpus(gpus)).expect("a run on GPUs");
    assert!(found == expected, "{:?} {:?}", found.losses, expected.losses);
}

#[needs::cuda]
#[test]
fn eight_gpus_with_sharded_optimizer_state_have_the_bits_of_cpus_without() {
    compare(&offloaded(Format::Fp32, [2, 2, 2], ZeroStage::One, Overlap::On), 8);
}

#[needs::cuda]
#[test]
fn eight_gpus_with_sharded_parameters_have_the_bits_of_cpus_without() {
    compare(&offloaded(Format::Bf16, [2, 2, 2], ZERO_THREE, Overlap::On), 8);
}

#[needs::cuda]
#[test]
fn one_gpu_has_the_bits_of_a_cpu_without() {
    compare(&offloaded(Format::Bf16, [1, 1, 1], ZeroStage::Off, Overlap::On), 1);
    compare(&offloaded(Format::Bf16, [1, 1, 1], ZeroStage::Off, Overlap::Off), 1);
}

#[needs::cuda]
#[test]
fn muon_with_averages_has_the_bits_of_cpus_without() {
    let mut layout = offloaded(Format::Bf16, [2, 1, 1], ZeroStage::One, Overlap::Off);
    layout.train.optimizer = Optimizer::Muon(Muon { momentum: 0.9, scale: MuonScale::AdamW });
    layout.train.ema_decay = Some(0.9);
    compare(&layout, 2);
}

/// Storage reads pinned memory, and a resumed run fills it.
#[needs::cuda]
#[test]
fn a_run_moves_to_offloaded_state_and_back_with_the_same_bits() {
    let gpus = soft_gpus(2);
    let gpus = On::Gpus(gpus);
    let layout = offloaded(Format::Bf16, [2, 1, 1], ZeroStage::One, Overlap::On);
    let plain = without(&layout);
    let expected = outcome(&plain, &On::Cpus).expect("a run on CPUs");
    let folder = Folder::new();
    let parts = [
        part_of_run(&plain, &On::Cpus, 1, &folder.0),
        part_of_run(&layout, &gpus, 2, &folder.0),
        part_of_run(&plain, &gpus, 3, &folder.0),
    ];
    let moved = parts.into_iter().reduce(|whole, part| whole.followed_by(part)).expect("parts");
    assert!(moved == expected, "{:?} {:?}", moved.losses, expected.losses);
}

/// The arena is allocated first, then memory of the host.
#[needs::cuda]
#[test]
fn a_host_without_memory_to_lock_names_the_bytes_and_a_remedy() {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let judge: Judge = Arc::new(move |_, call| {
        let is_second = call == GpuCall::Allocate && calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1;
        if is_second { CallOutcome::Fails(DriverErrorKind::OutOfMemory) } else { CallOutcome::Done }
    });
    let soft = soft_driver(vec![Settings::default()]);
    let gpus = gpus_of(Arc::new(WrappedDriver::new(Arc::new(soft), judge)));
    let layout = offloaded(Format::Bf16, [1, 1, 1], ZeroStage::Off, Overlap::On);
    let setup = layout.setup().expect("a plan");
    let bytes = setup.plan(0).host_bytes();
    let said = outcome(&layout, &On::Gpus(gpus)).expect_err("no pinned memory").to_string();
    assert!(said.contains(&format!("cannot allocate {bytes} bytes of pinned memory of the host")), "{said}");
    assert!(said.contains("ulimit -l unlimited") && said.contains("train.offload = \"none\""), "{said}");
}
