//! A run that moves from CPUs to GPUs and back has the bits of one that has not moved.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use config::{Overlap, Tied, ZeroStage};
use gpu::StreamHandle;
use softgpu::Settings;
use testkit::soft_gpus::{gpus_of, soft_driver, soft_gpus};
use testkit::wrapped_gpu::{CallOutcome, GpuCall, Judge, WrappedDriver};

use crate::gpu_runs::rig::{
    Folder, On, ZERO_THREE, layout, outcome, part_of_run, part_that_saves_every, with_more_sequences,
};

#[needs::cuda]
#[test]
fn a_checkpoint_moves_to_gpus_and_back_with_the_same_bits() {
    let gpus = soft_gpus(2);
    let gpus = On::Gpus(gpus);
    let sharded = layout(Tied::Yes, [2, 1, 2], ZeroStage::One, Overlap::Off, 3);
    let gathered = layout(Tied::Yes, [2, 1, 2], ZERO_THREE, Overlap::On, 2);
    let whole = outcome(&sharded, &On::Cpus).expect("a run on CPUs");
    let folder = Folder::new();
    let parts = [
        part_of_run(&sharded, &On::Cpus, 1, &folder.0),
        part_of_run(&sharded, &gpus, 2, &folder.0),
        part_of_run(&sharded, &On::Cpus, 3, &folder.0),
    ];
    let moved = parts.into_iter().reduce(|whole, part| whole.followed_by(part)).expect("parts");
    assert!(moved == whole, "{:?} {:?}", moved.losses, whole.losses);
    // Saved on GPUs from shards of parameters, and read there.
    let whole = outcome(&gathered, &On::Cpus).expect("a run on CPUs");
    let folder = Folder::new();
    let moved = part_of_run(&gathered, &gpus, 1, &folder.0).followed_by(part_of_run(&gathered, &gpus, 2, &folder.0));
    assert!(moved == whole, "{:?} {:?}", moved.losses, whole.losses);
}

/// Launches on a GPU that the reader of its state waits for, once.
const LAUNCHES: usize = 200;

/// The properties of GPU 0.
#[derive(Default)]
struct Held {
    /// The stream that was created last: from the first launch on the reader's, for a rank opens it after all others.
    reader: Option<StreamHandle>,
    launches: usize,
    /// Launches since the reader began to wait for its first copy, once it has ended that wait.
    meanwhile: Option<usize>,
}

/// Kernels of a launch.
fn kernels(call: GpuCall) -> usize {
    if let GpuCall::LaunchGraph(_, kernels) = call { kernels } else { 1 }
}

/// The first copy of state ends only after launches of the step that follows: a run that waited for it would not
/// continue.
#[needs::cuda]
#[test]
fn a_step_continues_while_state_is_read() {
    let held = Arc::new((Mutex::new(Held::default()), Condvar::new()));
    let judge: Judge = {
        let held = Arc::clone(&held);
        Arc::new(move |gpu, call| {
            let (state, changed) = &*held;
            if gpu == 0 {
                let mut state = state.lock().expect("whole");
                match call {
                    GpuCall::Create(stream) => state.reader = Some(stream),
                    GpuCall::Launch(_) | GpuCall::LaunchGraph(..) => {
                        state.launches += kernels(call);
                        changed.notify_all();
                    }
                    GpuCall::Synchronize(stream)
                        if state.reader == Some(stream) && state.launches > 0 && state.meanwhile.is_none() =>
                    {
                        let before = state.launches;
                        let is_early = |state: &mut Held| state.launches < before + LAUNCHES;
                        // Only a failure waits so long.
                        let waited = changed.wait_timeout_while(state, Duration::from_secs(120), is_early);
                        let (mut state, _) = waited.expect("whole");
                        state.meanwhile = Some(state.launches - before);
                    }
                    GpuCall::Allocate
                    | GpuCall::Transfer(..)
                    | GpuCall::Host(_)
                    | GpuCall::Copy(_)
                    | GpuCall::Record(..)
                    | GpuCall::Wait(..)
                    | GpuCall::Synchronize(_)
                    | GpuCall::Load
                    | GpuCall::CreateGraph(_)
                    | GpuCall::SetNode(..) => {}
                }
            }
            CallOutcome::Done
        })
    };
    let soft = soft_driver(vec![Settings::default(); 4]);
    let gpus = gpus_of(Arc::new(WrappedDriver::new(Arc::new(soft), judge)));
    let layout = with_more_sequences(layout(Tied::Yes, [2, 1, 2], ZeroStage::One, Overlap::On, 3));
    let expected = outcome(&layout, &On::Cpus).expect("a run on CPUs");
    let folder = Folder::new();
    assert!(part_that_saves_every(1, &layout, &On::Gpus(gpus), 3, &folder.0) == expected);
    let meanwhile = held.0.lock().expect("whole").meanwhile;
    assert!(meanwhile.is_some_and(|launches| launches >= LAUNCHES), "{meanwhile:?}");
}
