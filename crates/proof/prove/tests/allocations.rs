//! Nothing over 64 KiB is allocated after step one, on one rank and on eight: a counting allocator serves the whole
//! program and counts on threads that ask for it, so other tests may run at the same time.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Mutex;

use config::RunConfig;
use device::DeviceError;
use testkit::layout::engine;
use testkit::text::{Labels, ProofText};
use train::{Observer, Ports, Setup, StepReport, StopRequest, Worker};

const LIMIT_BYTES: usize = 64 * 1024;

thread_local! {
    /// Allocations of this thread since it began to count; `None` before.
    static COUNTED: Cell<Option<Counted>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    calls: usize,
    bytes: usize,
    largest_bytes: usize,
}

struct CountingAllocator;

fn count(bytes: usize) {
    // A thread that is being torn down has no counters left, and allocates nothing that matters.
    let _ = COUNTED.try_with(|counted| {
        if let Some(sums) = counted.get() {
            counted.set(Some(Counted {
                calls: sums.calls + 1,
                bytes: sums.bytes + bytes,
                largest_bytes: sums.largest_bytes.max(bytes),
            }));
        }
    });
}

// SAFETY: every call is passed on to the system's allocator with its own arguments; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's obligation is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's obligation is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: the caller's obligation is the same.
        unsafe { System.realloc(address, layout, new_size) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligation is the same.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The action of an observer in the second step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Frugal,
    /// Allocates this many bytes once on every rank.
    Allocates(usize),
}

/// Lets every rank's thread count from the end of its first step, and keeps the counts of each later step.
struct Watch {
    habit: Habit,
    steps: Mutex<Vec<(usize, u32, Counted)>>,
}

impl Observer for Watch {
    fn step(&self, _report: &StepReport) -> StopRequest {
        StopRequest::None
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if let (Habit::Allocates(bytes), 1, 0) = (self.habit, worker.position.step, worker.position.at) {
            drop(vec![1u8; std::hint::black_box(bytes)]);
        }
        if worker.position.at + 1 == worker.position.program.instrs.len() {
            if let Some(counted) = COUNTED.take() {
                let mut steps = self.steps.lock().unwrap();
                steps.push((worker.ports.communicators.world().position(), worker.position.step, counted));
            }
            COUNTED.set(Some(Counted::default()));
        }
        Ok(())
    }
}

/// The quick start, whose activations are 128 KiB, on `dp x tp x pp` ranks.
fn quick_start(degrees: [usize; 3]) -> Setup {
    let mut config = RunConfig::quick_start();
    [config.parallelism.degrees.dp, config.parallelism.degrees.tp, config.parallelism.degrees.pp] = degrees;
    (config.train.steps, config.train.global_batch) = (3, 8);
    config.model.dropout = 0.1;
    Setup::new(config.model, config.parallelism, config.train).unwrap()
}

/// Counts of every rank and every step after the first.
fn counted(setup: &Setup, habit: Habit) -> Vec<(usize, u32, Counted)> {
    let tokens = ProofText { vocabulary: setup.model.vocabulary, seed: 5, labels: Labels::Every };
    let watch = Watch { habit, steps: Mutex::new(Vec::with_capacity(64)) };
    let ports = Ports::new(&tokens, &watch);
    train::run(setup, &*engine(setup, 1), ports).unwrap();
    watch.steps.into_inner().unwrap()
}

#[test]
fn nothing_large_is_allocated_after_step_one() {
    for degrees in [[1, 1, 1], [2, 2, 2]] {
        let setup = quick_start(degrees);
        let steps = counted(&setup, Habit::Frugal);
        assert_eq!(steps.len(), 2 * setup.mesh.world_size(), "each rank counted two steps");
        for (rank, step, counted) in &steps {
            assert!(counted.largest_bytes <= LIMIT_BYTES, "{degrees:?}, rank {rank}, step {}: {counted:?}", step + 1);
        }
        println!("{degrees:?}: {:?}", steps.iter().map(|(.., counted)| counted).max_by_key(|counted| counted.bytes));
    }
}

#[test]
fn one_large_allocation_is_seen() {
    let setup = quick_start([1, 1, 1]);
    for (bytes, is_seen) in [(LIMIT_BYTES, false), (LIMIT_BYTES + 1, true)] {
        let steps = counted(&setup, Habit::Allocates(bytes));
        assert_eq!(steps.iter().any(|(.., counted)| counted.largest_bytes > LIMIT_BYTES), is_seen, "{bytes}");
    }
}
