//! Runs that diverge are warned about in time, and healthy ones with a warm-up are not. `PLEACH_CASES=30` trains 30
//! of the former and 100 of the latter.

use std::sync::Mutex;

use config::{LearningRateSchedule, ModelSpec, TrainSpec};
use testkit::layout::engine;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use train::{Anomaly, Observer, Ports, Setup, StepReport, StopRequest, TrainError, run};

/// The share of a new loss in the smoothed one, and the ratio to its minimum from which a run diverges, as
/// docs/failures.md has them.
const SHARE: f64 = 0.1;
const DIVERGES: f64 = 1.5;
/// Steps within which a warning must come.
const LATE: usize = 20;

#[derive(Default)]
struct Reports(Mutex<Vec<(f64, bool)>>);

impl Observer for Reports {
    fn step(&self, report: &StepReport) -> StopRequest {
        let warns = report.anomaly.is_some_and(|report| match report.anomaly {
            Anomaly::NonFinite | Anomaly::Spike(_) => true,
        });
        self.0.lock().expect("no panic").push((report.loss, warns));
        StopRequest::None
    }
}

fn diverging() -> u64 {
    needs::cases!(3)
}

/// Losses of a run, each with whether it was warned about; it may end because a number is not finite, which is a
/// warning.
fn trained(train: TrainSpec, seed: u64) -> Vec<(f64, bool)> {
    let model = ModelSpec { num_layers: 2, ..proof_model(Style::Llama, 4, true) };
    let setup = Setup::new(model, plain_layout(1, 1, 1, 4), TrainSpec { seed, ..train }).expect("legal");
    let (reports, text) = (Reports::default(), ProofText { vocabulary: 61, seed, labels: Labels::Every });
    match run(&setup, &*engine(&setup, 1), Ports::new(&text, &reports)) {
        Ok(_) | Err(TrainError::NotFinite { .. }) => {}
        Err(other) => panic!("seed {seed}: {other}"),
    }
    reports.0.into_inner().expect("no panic")
}

/// The first step, counted from 0, whose smoothed loss is 1.5 times its minimum.
fn first_divergence(losses: &[(f64, bool)]) -> Option<usize> {
    let (mut smoothed, mut least) = (losses.first()?.0, f64::INFINITY);
    losses.iter().position(|(loss, _)| {
        smoothed += SHARE * (loss - smoothed);
        least = least.min(smoothed);
        smoothed >= DIVERGES * least
    })
}

#[test]
fn runs_that_diverge_are_warned_about_within_twenty_steps() {
    let mut after = vec![];
    for seed in 0..diverging() {
        // The learning rate rises until the weights run away.
        let rate = 4.0 + (seed % 10) as f32;
        let train = TrainSpec {
            steps: 200,
            global_batch: 8,
            learning_rate: rate,
            min_learning_rate: rate,
            warmup_steps: 100,
            schedule: LearningRateSchedule::Constant,
            clip_norm: None,
            ..proof_training()
        };
        let losses = trained(train, seed);
        let late = first_divergence(&losses);
        let first = losses.iter().position(|(_, warns)| *warns);
        let late = late.unwrap_or_else(|| panic!("seed {seed}: a rate of {rate} is too small"));
        let first = first.unwrap_or_else(|| panic!("seed {seed}: no warning, diverged in {late}"));
        assert!(first <= late + LATE, "seed {seed}: warned in {first}, diverged in {late}");
        after.push(first as i64 - late as i64);
    }
    after.sort_unstable();
    let (earliest, latest) = (after[0], after[after.len() - 1]);
    println!("{} diverging runs, warned {earliest} to {latest} steps after the first diverging one", after.len());
}

#[test]
fn healthy_runs_with_a_warm_up_are_silent() {
    let healthy = if diverging() >= 30 { 100 } else { 6 };
    for seed in 0..healthy {
        let train = TrainSpec { steps: 120, global_batch: 16, warmup_steps: 30, ..proof_training() };
        let losses = trained(train, seed);
        let warned = losses.iter().position(|(_, warns)| *warns);
        assert_eq!(warned, None, "seed {seed}: {losses:?}");
        assert!(losses.len() == 120 && losses[119].0 < losses[0].0, "seed {seed} has learned");
    }
    println!("{healthy} healthy runs without a warning");
}
