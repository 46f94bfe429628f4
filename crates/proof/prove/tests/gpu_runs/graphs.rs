//! Kernels that a rank launches again and again are graphs of the driver: with the bits of CPUs, as many as follows
//! from the program, with the arguments of each step, and one by one where the driver has none.

use std::sync::{Arc, Mutex};

use config::{Format, Overlap, Tied, ZeroStage};
use gpu::DriverErrorKind;
use prove::{NoWatch, Outcome, run_first};
use softgpu::{FaultPlan, PlannedFault, Settings};
use testkit::layout::Layout;
use testkit::models::proof_text;
use testkit::soft_gpus::{gpus_of, gpus_with_graphs, soft_driver};
use testkit::wrapped_gpu::{CallOutcome, GpuCall, Judge, WrappedDriver};
use train::{GraphNotice, GraphUse};

use crate::gpu_runs::idle_gpu::IdleDriver;
use crate::gpu_runs::rig::{On, ZERO_THREE, layout, outcome, stored_layout};

/// Calls of all GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Kernels that were launched one by one.
    single: usize,
    graphs_made: usize,
    graph_launches: usize,
    /// Kernels of these launches.
    in_graphs: usize,
    nodes_set: usize,
}

impl Counts {
    fn add(&mut self, call: GpuCall) {
        match call {
            GpuCall::Launch(_) => self.single += 1,
            GpuCall::CreateGraph(_) => self.graphs_made += 1,
            GpuCall::SetNode(..) => self.nodes_set += 1,
            GpuCall::LaunchGraph(_, kernels) => {
                self.graph_launches += 1;
                self.in_graphs += kernels;
            }
            GpuCall::Allocate
            | GpuCall::Transfer(..)
            | GpuCall::Host(_)
            | GpuCall::Copy(_)
            | GpuCall::Record(..)
            | GpuCall::Wait(..)
            | GpuCall::Create(_)
            | GpuCall::Synchronize(_)
            | GpuCall::Load => {}
        }
    }

    /// The calls of this run that one with fewer steps does not have.
    fn without(self, fewer: Counts) -> Counts {
        Counts {
            single: self.single - fewer.single,
            graphs_made: self.graphs_made - fewer.graphs_made,
            graph_launches: self.graph_launches - fewer.graph_launches,
            in_graphs: self.in_graphs - fewer.in_graphs,
            nodes_set: self.nodes_set - fewer.nodes_set,
        }
    }
}

/// Two layers, and two microbatches a replica: each run computes little.
fn small(tied: Tied, degrees: [usize; 3], zero: ZeroStage, overlap: Overlap, steps: u32) -> Layout {
    let mut layout = layout(tied, degrees, zero, overlap, steps);
    (layout.model.num_layers, layout.train.global_batch) = (2, 4 * degrees[0]);
    layout
}

/// A judge that counts calls and lets all be done.
fn counting() -> (Arc<Mutex<Counts>>, Judge) {
    let counts = Arc::new(Mutex::new(Counts::default()));
    let counted = Arc::clone(&counts);
    let judge: Judge = Arc::new(move |_, call| {
        counted.lock().expect("whole").add(call);
        CallOutcome::Done
    });
    (counts, judge)
}

/// The calls of a run on GPUs that launch as `graphs` say, with its outcome.
fn counted(layout: &Layout, graphs: GraphUse) -> (Counts, Outcome) {
    let (counts, judge) = counting();
    let soft = soft_driver(vec![Settings::default(); layout.parallelism.degrees.world_size()]);
    let gpus = gpus_with_graphs(Arc::new(WrappedDriver::new(Arc::new(soft), judge)), graphs);
    let outcome = outcome(layout, &On::Gpus(gpus)).expect("a run on GPUs");
    let counts = *counts.lock().expect("whole");
    (counts, outcome)
}

/// Graphs; a driver that has none ends the test.
fn with_graphs() -> GraphUse {
    crate::gpu_runs::rig::graphs()
}

/// The calls of step `steps`, counted from 1, of a run with the bits of CPUs.
fn calls_of_step(layout: &Layout, steps: u32, graphs: &dyn Fn() -> GraphUse) -> Counts {
    let of = |steps: u32| {
        let mut layout = layout.clone();
        layout.train.steps = steps;
        let (counts, on_gpus) = counted(&layout, graphs());
        assert!(on_gpus == outcome(&layout, &On::Cpus).expect("a run on CPUs"), "{steps} steps have other bits");
        counts
    };
    of(steps).without(of(steps - 1))
}

/// One rank, without overlap: the passes of a microbatch are a series, which begins after the upload of its tokens. The
/// squares of gradients follow the upload of the rank's vote, and the update the host's look at the norm.
#[needs::cuda]
#[test]
fn a_rank_launches_a_graph_for_each_microbatch() {
    let layout = small(Tied::Yes, [1, 1, 1], ZeroStage::Off, Overlap::Off, 4);
    let step = calls_of_step(&layout, 4, &with_graphs);
    let single = calls_of_step(&layout, 4, &|| GraphUse::Off);
    println!("{step:?}; one by one {single:?}");
    assert_eq!((single.graph_launches, single.graphs_made, single.nodes_set), (0, 0, 0));
    assert_eq!(step.graphs_made, 0, "all were made before");
    assert_eq!(step.single + step.in_graphs, single.single, "the same kernels");
    let microbatches = layout.train.global_batch / layout.parallelism.microbatch_size;
    assert_eq!(step.graph_launches, microbatches + 2);
}

#[needs::cuda]
#[test]
fn eight_ranks_launch_the_same_graphs_in_every_step() {
    for (tied, zero) in [(Tied::Yes, ZeroStage::One), (Tied::No, ZERO_THREE)] {
        let layout = small(tied, [2, 2, 2], zero, Overlap::On, 5);
        assert!(layout.model.dropout > 0.0 && layout.train.warmup_steps < 4, "arguments change");
        let step = calls_of_step(&layout, 5, &with_graphs);
        let single = calls_of_step(&layout, 5, &|| GraphUse::Off);
        println!("{zero:?}: {step:?}; one by one {single:?}");
        assert_eq!(step.graphs_made, 0, "all were made before");
        assert_eq!(step.single + step.in_graphs, single.single, "the same kernels");
        assert!(step.graph_launches > 0 && step.nodes_set > 0 && step.in_graphs > step.single, "{step:?}");
    }
}

/// A run on one GPU in software, whose call number `number` of those that `counts` counts is left out.
fn with_one_left_out(layout: &Layout, number: usize, counts: fn(GpuCall) -> bool) -> Result<Outcome, String> {
    let calls = Mutex::new(0);
    let judge: Judge = Arc::new(move |_, call| {
        if !counts(call) {
            return CallOutcome::Done;
        }
        let mut calls = calls.lock().expect("whole");
        *calls += 1;
        if *calls == number { CallOutcome::LeftOut } else { CallOutcome::Done }
    });
    let soft = soft_driver(vec![Settings::default(); layout.parallelism.degrees.world_size()]);
    let gpus = gpus_of(Arc::new(WrappedDriver::new(Arc::new(soft), judge)));
    outcome(layout, &On::Gpus(gpus)).map_err(|error| error.to_string())
}

/// The keys of dropout, the step and the learning rate: each is needed.
#[needs::cuda]
#[test]
fn an_argument_that_is_not_updated_changes_the_bits() {
    let layout = small(Tied::Yes, [1, 1, 1], ZeroStage::Off, Overlap::Off, 4);
    let expected = outcome(&layout, &On::Cpus).expect("a run on CPUs");
    let (counts, clean) = counted(&layout, with_graphs());
    assert!(clean == expected && counts.nodes_set > 20, "{counts:?}");
    for number in [1, 2, counts.nodes_set / 2, counts.nodes_set - 1, counts.nodes_set] {
        let faulty = with_one_left_out(&layout, number, |call| matches!(call, GpuCall::SetNode(..)));
        assert!(faulty.is_ok_and(|faulty| faulty != expected), "node {number} of {}", counts.nodes_set);
    }
}

#[needs::cuda]
#[test]
fn a_graph_whose_chain_is_broken_is_a_race() {
    let layout = small(Tied::Yes, [1, 1, 1], ZeroStage::Off, Overlap::Off, 4);
    let faulty = with_one_left_out(&layout, 1, |call| matches!(call, GpuCall::CreateGraph(_)));
    let said = faulty.expect_err("a race");
    for part in ["rank 0 failed in step ", "GPU 0 (soft GPU", " of a graph of stream ", "without an order"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Whether a call is one of those of which some fail.
type IsCounted = fn(GpuCall) -> bool;

#[needs::cuda]
#[test]
fn without_graphs_of_the_driver_kernels_are_launched_one_by_one() {
    let layout = small(Tied::Yes, [2, 1, 1], ZeroStage::One, Overlap::On, 4);
    let expected = outcome(&layout, &On::Cpus).expect("a run on CPUs");
    // A driver without graphs; one that has no memory for the second graph; one that refuses a change.
    let failing: [(DriverErrorKind, IsCounted, usize); 3] = [
        (DriverErrorKind::Unavailable, |call| matches!(call, GpuCall::CreateGraph(_)), 0),
        (DriverErrorKind::OutOfMemory, |call| matches!(call, GpuCall::CreateGraph(_)), 1),
        (DriverErrorKind::InvalidArgument, |call| matches!(call, GpuCall::SetNode(..)), 3),
    ];
    for (kind, counts, first) in failing {
        let calls = Mutex::new(0);
        let judge: Judge = Arc::new(move |_, call| {
            if !counts(call) {
                return CallOutcome::Done;
            }
            let mut calls = calls.lock().expect("whole");
            *calls += 1;
            if *calls > first { CallOutcome::Fails(kind) } else { CallOutcome::Done }
        });
        let lines = Arc::new(Mutex::new(vec![]));
        let notice = {
            let lines = Arc::clone(&lines);
            GraphNotice::new(move |line| lines.lock().expect("whole").push(line.to_owned()))
        };
        let soft = soft_driver(vec![Settings::default(); 2]);
        let driver = Arc::new(WrappedDriver::new(Arc::new(soft), judge));
        let gpus = gpus_with_graphs(driver, GraphUse::Auto(Arc::new(notice)));
        assert!(outcome(&layout, &On::Gpus(gpus)).expect("a run on GPUs") == expected, "{kind:?}");
        let line = format!("graphs  off, kernels are launched one by one: judged: {kind}: a test has it so");
        assert_eq!(*lines.lock().expect("whole"), [line]);
    }
}

/// The failure of a run on one GPU with these settings, whose calls fail as `judge` says.
fn failure(settings: Settings, judge: Judge) -> String {
    let gpus = gpus_of(Arc::new(WrappedDriver::new(Arc::new(soft_driver([settings])), judge)));
    let layout = small(Tied::Yes, [1, 1, 1], ZeroStage::Off, Overlap::Off, 4);
    outcome(&layout, &On::Gpus(gpus)).expect_err("a GPU has failed").to_string()
}

#[needs::cuda]
#[test]
fn a_failure_of_a_graph_names_rank_step_instruction_and_operations() {
    let launches = Mutex::new(0);
    let judge: Judge = Arc::new(move |_, call| {
        let mut launches = launches.lock().expect("whole");
        *launches += usize::from(matches!(call, GpuCall::LaunchGraph(..)));
        if *launches > 3 { CallOutcome::Fails(DriverErrorKind::Lost) } else { CallOutcome::Done }
    });
    let said = failure(Settings::default(), judge);
    for part in ["rank 0 failed in step ", "at \"", "GPU 0 (soft GPU", " kernels, from ", "the GPU is lost", "Xid"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Within a graph that runs: a later call learns of it.
    let layout = small(Tied::Yes, [1, 1, 1], ZeroStage::Off, Overlap::Off, 4);
    let (all, _) = counted(&layout, with_graphs());
    let last = (all.single + all.in_graphs - 40) as u64;
    let faults = FaultPlan::new(&[PlannedFault::EccAtLaunch(last)]);
    let said = failure(Settings { faults, ..Settings::default() }, Arc::new(|_, _| CallOutcome::Done));
    let parts =
        ["rank 0 failed in step 4 ", "at \"", "GPU 0 (soft GPU", " after ", "cannot be corrected", "nvidia-smi"];
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// The calls of a rank in a step of GPT-2 124M, 8 sequences of 1024 tokens in 2 microbatches of 4, in bf16: as
/// docs/gpu.md has them. Nothing is computed.
fn calls_of_gpt2(dropout: f32, graphs: &dyn Fn() -> GraphUse) -> Counts {
    let mut layout = stored_layout(Format::Bf16, Tied::Yes, [1, 1, 1], ZeroStage::Off, Overlap::Off, 4);
    let precision = config::Precision::Bf16(config::Products::Blocks16);
    let model = config::ModelSpec {
        num_layers: 12,
        hidden: 768,
        num_heads: 12,
        num_kv_heads: 12,
        head_dim: 64,
        ffn_hidden: 3072,
        vocabulary: 50_257,
        context: 1024,
        dropout,
        attention_dropout: dropout,
        ..layout.model
    };
    layout.model = model;
    layout.parallelism.microbatch_size = 4;
    layout.train = config::TrainSpec { global_batch: 8, sequence_length: 1024, precision, ..layout.train };
    let of = |steps: u32| {
        let (counts, judge) = counting();
        let gpus = gpus_with_graphs(Arc::new(WrappedDriver::new(Arc::new(IdleDriver), judge)), graphs());
        let mut layout = layout.clone();
        layout.train.steps = steps;
        let setup = layout.setup().expect("a plan");
        run_first(steps, &setup, &*On::Gpus(gpus).engine(&setup), &proof_text(), &NoWatch).expect("a run");
        *counts.lock().expect("whole")
    };
    of(4).without(of(3))
}

#[needs::cuda]
#[test]
fn a_step_of_gpt2_has_few_calls() {
    for (dropout, kernels, nodes_set) in [(0.0, 1173, 27), (0.1, 1201, 223)] {
        let step = calls_of_gpt2(dropout, &with_graphs);
        let single = calls_of_gpt2(dropout, &|| GraphUse::Off);
        println!("dropout {dropout}: {step:?}; one by one {single:?}");
        assert_eq!(single, Counts { single: kernels, ..Counts::default() });
        let expected = Counts { graph_launches: 4, in_graphs: kernels, nodes_set, ..Counts::default() };
        assert_eq!(step, expected, "two microbatches, the norm and the update");
    }
}
