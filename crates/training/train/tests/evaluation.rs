//! Evaluations: the same loss whatever the layout, and nothing of a run changed by them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use checkpoint::{Checkpoint, Committer, Disk, Retention, Store, committed};

use config::{
    Balance, Biases, ExpertsSpec, Gathering, GradientReduction, ModelSpec, Parallelism, Recheck, Reshard, RouterScores,
    RouterWeights, Routing, SequenceParallel, TrainSpec, ZeroStage,
};
use testkit::layout::engine;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use train::{
    Assembly, Ending, Evaluation, EvaluationReport, Observer, Ports, Saving, Setup, Start, StepReport, StopRequest,
    TensorMap, Validation, run, run_evaluation,
};

#[derive(Default)]
struct Log {
    losses: Mutex<Vec<f64>>,
    evaluations: Mutex<Vec<EvaluationReport>>,
    validations: Mutex<Vec<(String, EvaluationReport)>>,
}

impl Observer for Log {
    fn step(&self, report: &StepReport) -> StopRequest {
        self.losses.lock().expect("no panic").push(report.loss);
        StopRequest::None
    }

    fn evaluation(&self, report: &EvaluationReport) {
        self.evaluations.lock().expect("no panic").push(*report);
    }

    fn validation(&self, name: &str, report: &EvaluationReport) {
        self.validations.lock().expect("no panic").push((name.into(), *report));
    }
}

/// Two dense layers and two with experts.
fn model() -> ModelSpec {
    let routing =
        Routing { scores: RouterScores::Softmax, weights: RouterWeights::Normalised, scale: 1.0, groups: None };
    let experts = ExpertsSpec {
        number: 8,
        per_token: 2,
        hidden: 32,
        shared: None,
        first_layer: 1,
        layer_interval: 2,
        routing,
        balance: Balance::NONE,
    };
    let plain = proof_model(Style::Gpt2, 12, true);
    ModelSpec { num_layers: 4, experts: Some(experts), biases: Biases::Attention, ..plain }
}

fn training() -> TrainSpec {
    TrainSpec { steps: 3, global_batch: 8, ..proof_training() }
}

fn text() -> ProofText {
    ProofText { vocabulary: model().vocabulary, seed: 7, labels: Labels::Ragged }
}

/// A number that no pass divides.
const SEQUENCES: u64 = 37;

fn held_out(tokens: &ProofText, every: u32) -> Evaluation<'_> {
    Evaluation { tokens, sequences: SEQUENCES, every }
}

struct Trained {
    losses: Vec<f64>,
    evaluations: Vec<EvaluationReport>,
    validations: Vec<(String, EvaluationReport)>,
    weights: TensorMap,
}

fn train(parallelism: &Parallelism, every: Option<u32>) -> Trained {
    let (log, weights, tokens) = (Log::default(), TensorMap::default(), text());
    let held_out_text = ProofText { seed: 8, ..tokens };
    let setup = match every {
        Some(_) => Setup::with_evaluation(model(), parallelism.clone(), training(), SEQUENCES),
        None => Setup::new(model(), parallelism.clone(), training()),
    };
    let setup = setup.expect("a legal run");
    let other_text = ProofText { seed: 9, ..tokens };
    let validation = every.map(|every| {
        [("same", &held_out_text), ("other", &other_text)]
            .map(|(name, text)| Validation { name, evaluation: held_out(text, every) })
    });
    let ports = Ports {
        tokens: &tokens,
        observer: &log,
        start: Start::Seed,
        first_gradients: None,
        weights: Some(&weights),
        saving: None,
        rings: None,
        recheck: Recheck::Off,
        evaluation: every.map(|every| held_out(&held_out_text, every)),
        validation: validation.as_ref().map_or(&[], |list| list),
        samples: None,
    };
    run(&setup, &*engine(&setup, 1), ports).expect("a run");
    let Log { losses, evaluations, validations } = log;
    Trained {
        losses: losses.into_inner().expect("no panic"),
        evaluations: evaluations.into_inner().expect("no panic"),
        validations: validations.into_inner().expect("no panic"),
        weights,
    }
}

fn evaluated(parallelism: &Parallelism, weights: &TensorMap) -> EvaluationReport {
    let setup = Setup::evaluation(model(), parallelism.clone(), training(), SEQUENCES).expect("a legal run");
    let tokens = ProofText { seed: 8, ..text() };
    run_evaluation(&setup, &*engine(&setup, 1), held_out(&tokens, 0), Some(weights)).expect("an evaluation")
}

fn layouts() -> Vec<Parallelism> {
    let zero = Parallelism { zero: ZeroStage::One, ..plain_layout(2, 1, 2, 2) };
    let gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
    let three = ZeroStage::Three { reduce: GradientReduction::Microbatch, gathering };
    let gathered = Parallelism { zero: three, ..plain_layout(2, 1, 2, 1) };
    let shared = Parallelism { sequence_parallel: SequenceParallel::On, ..plain_layout(1, 2, 2, 2) };
    vec![plain_layout(1, 1, 1, 1), plain_layout(1, 2, 2, 2), zero, gathered, shared]
}

#[test]
fn an_evaluation_between_steps_changes_nothing() {
    for layout in layouts() {
        let (without, with) = (train(&layout, None), train(&layout, Some(1)));
        assert_eq!(without.losses, with.losses, "{layout:?}");
        let bits = |weights: TensorMap| -> Vec<(String, Assembly)> { weights.into_tensors().into_iter().collect() };
        assert_eq!(bits(without.weights), bits(with.weights), "{layout:?}");
        let steps: Vec<u32> = with.evaluations.iter().map(|report| report.step).collect();
        assert_eq!(steps, [1, 2, 3]);
        assert!(with.evaluations[2].loss < with.evaluations[0].loss, "{:?}", with.evaluations);
    }
}

#[test]
fn the_last_evaluation_is_that_of_the_saved_weights() {
    let trained = train(&plain_layout(2, 1, 2, 2), Some(0));
    let [last] = trained.evaluations.as_slice() else { panic!("{:?}", trained.evaluations) };
    for pp in [1, 2, 4] {
        // Dropout is not at work, sums are integers: the same bits however sequences are spread and layers are placed.
        for (dp, microbatch_size) in [(1, 1), (2, 2), (3, 1)] {
            let report = evaluated(&plain_layout(dp, 1, pp, microbatch_size), &trained.weights);
            assert_eq!((report.loss, report.tokens), (last.loss, last.tokens), "dp {dp}, pp {pp}");
        }
    }
    let sharded = evaluated(&layouts()[3], &trained.weights);
    assert_eq!((sharded.loss, sharded.tokens), (last.loss, last.tokens), "gathered parameters");
    // Tensor parallelism sums in another order: a few rounding errors of 2^-24 on a loss of about 4.
    let report = evaluated(&plain_layout(1, 4, 1, 1), &trained.weights);
    assert!((report.loss - last.loss).abs() < 1e-5 * last.loss, "{} {}", report.loss, last.loss);
    assert_eq!(report.tokens, last.tokens);
}

#[test]
fn texts_of_their_own_are_measured_under_their_names_and_change_nothing() {
    let plain = plain_layout(1, 2, 2, 2);
    let trained = train(&plain, Some(2));
    let names: Vec<(&str, u32)> =
        trained.validations.iter().map(|(name, report)| (name.as_str(), report.step)).collect();
    assert_eq!(names, [("same", 2), ("other", 2), ("same", 3), ("other", 3)]);
    for (evaluation, pair) in trained.evaluations.iter().zip(trained.validations.chunks(2)) {
        let [(_, same), (_, other)] = pair else { panic!("two texts") };
        // The same text has the same loss to the last bit, and another one has another.
        assert_eq!((same.loss, same.tokens), (evaluation.loss, evaluation.tokens));
        assert_ne!(other.loss, evaluation.loss);
    }
    assert_eq!(trained.losses, train(&plain, None).losses);
}

/// Requests to stop within the first measurement, once the checkpoint that is due with it is there.
struct StopsInMeasurement<'a> {
    log: Log,
    folder: &'a PathBuf,
    is_committed: AtomicBool,
}

impl Observer for StopsInMeasurement<'_> {
    fn step(&self, report: &StepReport) -> StopRequest {
        self.log.step(report)
    }

    fn stop_request(&self) -> StopRequest {
        if self.is_committed.load(Ordering::Relaxed) { StopRequest::Stop } else { StopRequest::None }
    }

    fn evaluating(&self, _share: f64, _elapsed: Duration) {
        let begun = Instant::now();
        while committed(self.folder).expect("a folder").is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(600), "no checkpoint while the text is measured");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.is_committed.store(true, Ordering::Relaxed);
    }

    fn evaluation(&self, report: &EvaluationReport) {
        self.log.evaluation(report);
    }
}

/// Trains with a checkpoint and a measurement after every second step; the folder has the checkpoints.
fn saved_run(name: &str, layout: &Parallelism, observe: impl FnOnce(&PathBuf, &dyn Fn(&dyn Observer) -> Ending)) {
    let folder = std::env::temp_dir().join(format!("pleach-evaluation-{name}-{}", std::process::id()));
    let keep_all = Retention { newest: usize::MAX, every: 0, best: 0 };
    let store = Store::open(&folder, Arc::new(Disk), keep_all).expect("a store");
    let (committer, tokens) = (Committer::new(&store, 1), text());
    let held_out_text = ProofText { seed: 8, ..tokens };
    let train = TrainSpec { steps: 4, ..training() };
    let setup = Setup::with_evaluation(model(), layout.clone(), train, 4 * SEQUENCES).expect("a legal run");
    observe(&folder, &|observer| {
        let saving = Some(Saving::with(&committer).every(2));
        // Several passes of every layout.
        let evaluation = Some(Evaluation { sequences: 4 * SEQUENCES, ..held_out(&held_out_text, 2) });
        let ports = Ports { saving, evaluation, ..Ports::new(&tokens, observer) };
        run(&setup, &*engine(&setup, 1), ports).expect("a run")
    });
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_checkpoint_is_committed_before_the_measurement_that_is_due_with_it() {
    for (name, layout) in [("one", plain_layout(1, 1, 1, 1)), ("eight", plain_layout(2, 2, 2, 1))] {
        saved_run(name, &layout, |folder, run| {
            let observer = StopsInMeasurement { log: Log::default(), folder, is_committed: AtomicBool::new(false) };
            assert_eq!(run(&observer), Ending::Stopped { steps: 2 }, "{name}");
            let found: Vec<u32> = committed(folder).expect("a folder").iter().map(|found| found.steps).collect();
            assert_eq!(found, [2], "{name}: the stop adds no second checkpoint of the step");
            assert!(observer.log.evaluations.into_inner().expect("no panic").is_empty(), "{name}");
        });
    }
}

#[test]
fn a_checkpoint_has_the_loss_of_the_measurement_after_it() {
    saved_run("losses", &plain_layout(2, 1, 2, 2), |folder, run| {
        let log = Log::default();
        assert_eq!(run(&log), Ending::Finished);
        let measured = log.evaluations.into_inner().expect("no panic");
        let found = committed(folder).expect("a folder");
        let saved = found.iter().rev().map(|found| {
            let checkpoint = Checkpoint::open(&found.path).expect("a checkpoint");
            (found.steps, checkpoint.state().held_out_loss)
        });
        let expected: Vec<_> = measured.iter().map(|report| (report.step, Some(report.loss))).collect();
        assert_eq!(saved.collect::<Vec<_>>(), expected);
        assert_eq!(expected.iter().map(|(steps, _)| *steps).collect::<Vec<_>>(), [2, 4]);
    });
}
