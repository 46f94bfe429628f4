//! Steps that are not as usual: a gradient that is not finite on one rank, and a batch with a spike.

#![expect(clippy::wildcard_enum_match_arm, reason = "tests look for one operation among many")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use config::{Anomalies, ModelSpec, OnNonFinite, OnSpike, Parallelism, TrainSpec, ZeroStage};
use device::{LogitGradient, Op, Write};
use mesh::{Coord, Rank};
use testkit::intercepted::intercept_ops;
use testkit::layout::engine;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use testkit::wrapped_engine::WrappedEngine;
use train::{
    Anomaly, AnomalyReport, Assembly, Engine, MOST_SKIPPED_IN_A_ROW, Observer, Ports, RankEngine, Setup, SpikeKind,
    StepReport, StopRequest, TensorMap, TrainError, UpdateOutcome, run,
};

const TEXT: ProofText = ProofText { vocabulary: 61, seed: 5, labels: Labels::Every };

#[derive(Default)]
struct Log(Mutex<Vec<StepReport>>);

impl Observer for Log {
    fn step(&self, report: &StepReport) -> StopRequest {
        self.0.lock().expect("no panic").push(*report);
        StopRequest::None
    }
}

fn setup(anomalies: Anomalies, steps: u32) -> Setup {
    let model = ModelSpec { num_layers: 2, ..proof_model(Style::Llama, 4, true) };
    let layout = Parallelism { zero: ZeroStage::One, ..plain_layout(2, 1, 2, 1) };
    Setup::new(model, layout, TrainSpec { steps, global_batch: 4, anomalies, ..proof_training() }).expect("legal")
}

/// A run that has ended: its reports, its weights, and the error that ended it.
struct Run {
    reports: Vec<StepReport>,
    weights: BTreeMap<String, Assembly>,
    error: Option<TrainError>,
}

fn train(setup: &Setup, engine: &dyn Engine) -> Run {
    let (log, weights) = (Log::default(), TensorMap::default());
    let error = run(setup, engine, Ports { weights: Some(&weights), ..Ports::new(&TEXT, &log) }).err();
    Run { reports: log.0.into_inner().expect("no panic"), weights: weights.into_tensors(), error }
}

/// Rank 3's first gradient of a weight in each of `steps`, counted from 0, is not finite: a product with the value
/// infinity added.
fn poisoned(rank: RankEngine, steps: std::ops::Range<u32>) -> RankEngine {
    let (step, is_done) = (Cell::new(0), Cell::new(false));
    intercept_ops(rank, move |device, stream, op| {
        if let Op::ClipCoefficient { .. } = op {
            step.set(step.get() + 1);
            is_done.set(false);
        }
        device.submit(stream, op)?;
        match op {
            Op::MatMul {
                out, write: Write::Assign | Write::Accumulate, orientation: device::Orientation::Tn, ..
            } if steps.contains(&step.get()) && !is_done.replace(true) => {
                device.submit(stream, &Op::Fill { out: *out, value: f32::INFINITY })
            }
            _ => Ok(()),
        }
    })
}

fn poisoned_run(setup: &Setup, steps: std::ops::Range<u32>) -> Run {
    let wrap = |coord: Coord, engine: RankEngine| {
        if setup.mesh.rank(coord) == Rank(3) { poisoned(engine, steps.clone()) } else { engine }
    };
    let engine = WrappedEngine::new(setup, &wrap);
    train(setup, &engine)
}

fn of_nonfinite(on_nonfinite: OnNonFinite) -> Anomalies {
    Anomalies { on_nonfinite, ..Anomalies::default() }
}

#[test]
fn a_gradient_that_is_not_finite_on_one_rank_is_skipped_on_all() {
    let setup = setup(of_nonfinite(OnNonFinite::Skip), 4);
    let run = poisoned_run(&setup, 2..3);
    assert!(run.error.is_none(), "{:?}", run.error);
    let skipped: Vec<Option<(Anomaly, UpdateOutcome, u32)>> = run
        .reports
        .iter()
        .map(|report| {
            report.anomaly.map(|AnomalyReport { anomaly, update, skipped_steps }| (anomaly, update, skipped_steps))
        })
        .collect();
    assert_eq!(skipped, [None, None, Some((Anomaly::NonFinite, UpdateOutcome::Skipped, 1)), None]);
    let clean = train(&setup, &*engine(&setup, 1));
    let loss = |run: &Run, step: usize| run.reports[step].loss.to_bits();
    assert_eq!([loss(&run, 0), loss(&run, 1)], [loss(&clean, 0), loss(&clean, 1)]);
    // Step 4 reads other weights than in the clean run: those before step 3.
    assert_ne!(loss(&run, 3), loss(&clean, 3));
}

#[test]
fn a_skipped_step_changes_no_weight() {
    let (skip, stop) = (setup(of_nonfinite(OnNonFinite::Skip), 3), setup(of_nonfinite(OnNonFinite::Stop), 3));
    let stopped = poisoned_run(&stop, 2..3);
    assert!(matches!(stopped.error, Some(TrainError::NotFinite { step: 3, .. })), "{:?}", stopped.error);
    // A run of two steps has the rates of one of three where neither warms up nor decays to another step.
    let two = Setup::new(skip.model.clone(), skip.parallelism.clone(), TrainSpec { steps: 2, ..skip.train.clone() });
    let two = two.expect("legal");
    let clean = train(&two, &*engine(&two, 1));
    let poisoned = poisoned_run(&skip, 2..3);
    assert!(poisoned.error.is_none(), "{:?}", poisoned.error);
    assert!(poisoned.weights == clean.weights, "weights after two updates");
    // Skipped once or twice, step 3 begins with the weights after step 1.
    let [middle, both] = [1..2, 1..3].map(|steps| poisoned_run(&skip, steps));
    assert_eq!(middle.reports[2].loss.to_bits(), both.reports[2].loss.to_bits());
    assert_eq!(both.reports[2].anomaly.map(|report| report.skipped_steps), Some(2));
}

#[test]
fn steps_that_never_become_finite_end_the_run() {
    let setup = setup(of_nonfinite(OnNonFinite::Skip), 30);
    let run = poisoned_run(&setup, 1..30);
    let Some(TrainError::Skipping { step, steps, .. }) = run.error else { panic!("{:?}", run.error) };
    assert_eq!((step, steps), (MOST_SKIPPED_IN_A_ROW + 2, MOST_SKIPPED_IN_A_ROW + 1));
}

#[test]
fn a_rollback_is_asked_for_by_all_ranks_in_the_same_step() {
    let setup = setup(of_nonfinite(OnNonFinite::RollBack), 4);
    let run = poisoned_run(&setup, 2..3);
    let Some(error @ TrainError::RollBack { step: 3, anomaly: Anomaly::NonFinite, .. }) = run.error else {
        panic!("{:?}", run.error)
    };
    assert!(error.to_string().ends_with("; no weight was changed"), "{error}");
}

/// The gradients of one step are multiplied by a thousand on one rank.
fn spiking(rank: RankEngine, of_step: u32) -> RankEngine {
    let step = Cell::new(0);
    intercept_ops(rank, move |device, stream, op| {
        if let Op::ClipCoefficient { .. } = op {
            step.set(step.get() + 1);
        }
        let mut op = *op;
        if let (Op::CrossEntropy { gradient: Some(LogitGradient { scale, .. }), .. }, true) =
            (&mut op, step.get() == of_step)
        {
            *scale *= 1000.0;
        }
        device.submit(stream, &op)
    })
}

#[test]
fn a_spike_of_the_norm_is_reported_or_skipped() {
    let run = |on_spike| {
        let setup = setup(Anomalies { on_spike, ..Anomalies::default() }, 32);
        let wrap = |_: Coord, engine: RankEngine| spiking(engine, 28);
        let engine = WrappedEngine::new(&setup, &wrap);
        train(&setup, &engine)
    };
    let [off, warned, skipped] = [OnSpike::Off, OnSpike::Warn, OnSpike::Skip].map(run);
    let found = |run: &Run| -> Vec<(u32, SpikeKind, UpdateOutcome)> {
        let spike = |report: &StepReport| match report.anomaly? {
            AnomalyReport { anomaly: Anomaly::Spike(spike), update, .. } => Some((report.step, spike.kind, update)),
            AnomalyReport { anomaly: Anomaly::NonFinite, .. } => None,
        };
        run.reports.iter().filter_map(spike).collect()
    };
    assert_eq!(found(&off), []);
    assert_eq!(found(&warned), [(29, SpikeKind::GradientNorm, UpdateOutcome::Updated)]);
    assert_eq!(found(&skipped), [(29, SpikeKind::GradientNorm, UpdateOutcome::Skipped)]);
    assert!(off.weights == warned.weights, "a warning changes no bit");
    assert!(skipped.weights != warned.weights);
}
