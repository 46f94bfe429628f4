//! GPUs that fail: the run ends in time with one cause, which names rank, GPU, step, instruction and remedy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use config::{Overlap, Tied, ZeroStage};
use gpu::DriverErrorKind;
use softgpu::{FaultPlan, PlannedFault, Settings};
use testkit::soft_gpus::{gpus_of, gpus_with_graphs, soft_driver};
use testkit::wrapped_gpu::{CallOutcome, GpuCall, Judge, WrappedDriver};
use train::{GraphNotice, GraphUse};

use crate::gpu_runs::rig::{On, layout, outcome, with_more_sequences};

/// The failure of a run whose GPU 1 fails from call number `first` on, for calls that `counts` counts.
fn failure(kind: DriverErrorKind, first: usize, counts: fn(GpuCall) -> bool) -> String {
    let calls = AtomicUsize::new(0);
    let judge: Judge = Arc::new(move |gpu, call| {
        if gpu != 1 || !counts(call) || calls.fetch_add(1, Ordering::Relaxed) < first {
            return CallOutcome::Done;
        }
        CallOutcome::Fails(kind)
    });
    let soft = soft_driver(vec![Settings::default(); 4]);
    let gpus = gpus_of(Arc::new(WrappedDriver::new(Arc::new(soft), judge)));
    let layout = with_more_sequences(layout(Tied::Yes, [2, 1, 2], ZeroStage::One, Overlap::On, 3));
    let error = outcome(&layout, &On::Gpus(gpus)).expect_err("a GPU has failed").to_string();
    assert!(!error.contains(" waited "), "the failure ends the run, and no deadline: {error}");
    error
}

fn is_launch(call: GpuCall) -> bool {
    matches!(call, GpuCall::Launch(_) | GpuCall::LaunchGraph(..))
}

fn is_any(_: GpuCall) -> bool {
    true
}

#[needs::cuda]
#[test]
fn a_failing_gpu_is_named_with_rank_step_instruction_and_remedy() {
    let kinds = [
        (DriverErrorKind::Lost, "the GPU is lost", "Xid"),
        (DriverErrorKind::Ecc, "an error of the GPU's memory that cannot be corrected", "nvidia-smi"),
        (DriverErrorKind::Timeout, "a kernel that does not end", "smaller microbatch"),
        (DriverErrorKind::KernelFault, "a fault in a kernel", "report"),
    ];
    for (number, (kind, reason, remedy)) in kinds.into_iter().enumerate() {
        // After the drawing of weights, in some step: a graph is one launch.
        let said = failure(kind, 200 + 40 * number, is_launch);
        assert!(said.starts_with("rank 1 failed in step "), "{said}");
        for part in ["at \"", "GPU 1 (soft GPU", reason, remedy, "-->"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[needs::cuda]
#[test]
fn a_gpu_that_is_lost_at_any_call_ends_the_run() {
    for first in [0, 3, 17, 120, 333, 1200, 2500] {
        let said = failure(DriverErrorKind::Lost, first, is_any);
        assert!(said.contains("rank 1 failed") && said.contains("the GPU is lost"), "{first}: {said}");
    }
}

#[needs::cuda]
#[test]
fn a_gpu_without_memory_names_what_needs_less() {
    let said = failure(DriverErrorKind::OutOfMemory, 0, |call| call == GpuCall::Allocate);
    assert!(
        said.contains("rank 1 failed before the first step: GPU 1 (soft GPU (sm_90a)): cannot allocate an arena of "),
        "{said}"
    );
    assert!(said.contains("a smaller microbatch, more ranks or a higher ZeRO stage need less"), "{said}");
}

/// The failure of a run whose GPU 1 fails by itself, as its settings plan it.
fn planned(fault: PlannedFault) -> String {
    let faulty = Settings { faults: FaultPlan::new(&[fault]), ..Settings::default() };
    let settings = [Settings::default(), faulty, Settings::default(), Settings::default()];
    // The call that learns of the failure may be one that makes a graph. That is a notice first.
    let graphs = GraphUse::Auto(Arc::new(GraphNotice::new(|_| ())));
    let gpus = gpus_with_graphs(Arc::new(soft_driver(settings)), graphs);
    let layout = layout(Tied::Yes, [2, 1, 2], ZeroStage::One, Overlap::On, 3);
    let error = outcome(&layout, &On::Gpus(gpus)).expect_err("a GPU has failed").to_string();
    assert!(!error.contains(" waited "), "the failure ends the run, and no deadline: {error}");
    error
}

/// The GPU in software fails in the middle of work that was submitted before, as hardware does: a later call learns of
/// it.
#[needs::cuda]
#[test]
fn a_gpu_that_fails_by_itself_is_named_with_its_remedy() {
    let faults = [
        (PlannedFault::LostAtCall(900), "the GPU is lost", "Xid"),
        (PlannedFault::EccAtLaunch(450), "an error of the GPU's memory that cannot be corrected", "nvidia-smi"),
        (PlannedFault::TimeoutAtLaunch(520), "a kernel that does not end", "smaller microbatch"),
        (PlannedFault::OutOfMemoryAtAllocation(1), "cannot allocate an arena of ", "a higher ZeRO stage need less"),
    ];
    for (fault, reason, remedy) in faults {
        let said = planned(fault);
        for part in ["rank 1 failed", "GPU 1 (soft GPU", reason, remedy] {
            assert!(said.contains(part), "{fault:?}, {part}: {said}");
        }
    }
}
