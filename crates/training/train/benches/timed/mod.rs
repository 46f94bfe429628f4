//! Runs whose steps are timed.

use std::sync::Mutex;

use config::RunConfig;
use sync::{into_inner, lock};
use testkit::text::{Labels, ProofText};
use train::{Engine, Observer, Ports, Setup, StepReport, StopRequest};

/// Where the run files are that PyTorch reads, too.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bench/compare");

/// How long a timed run is.
#[derive(Clone, Copy)]
pub struct Length {
    /// Steps that are not timed.
    pub warm_up: u32,
    /// Steps after them that are.
    pub timed: u32,
}

/// Keeps the seconds of each step, and ends the run after the last that is timed.
struct Stopwatch {
    length: Length,
    seconds: Mutex<Vec<f64>>,
}

impl Observer for Stopwatch {
    fn step(&self, report: &StepReport) -> StopRequest {
        lock(&self.seconds).push(report.wall.as_secs_f64());
        if report.step + 1 < self.length.warm_up + self.length.timed { StopRequest::None } else { StopRequest::Stop }
    }
}

/// A run file with changes, and the run that it describes.
pub fn load(file: &str, overrides: &[String]) -> (RunConfig, Setup) {
    let toml = std::fs::read_to_string(file).expect("a run file");
    let config = RunConfig::load(file, &toml, overrides).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let setup = Setup::new(config.model.clone(), config.parallelism.clone(), config.train.clone()).expect("a plan");
    (config, setup)
}

/// The text of a timed run.
pub fn text(setup: &Setup) -> ProofText {
    ProofText { vocabulary: setup.model.vocabulary, seed: 5, labels: Labels::Every }
}

/// Seconds of the timed steps of a run on `engine`.
pub fn seconds_of_steps(setup: &Setup, engine: &dyn Engine, length: Length) -> Vec<f64> {
    let (text, stopwatch) = (text(setup), Stopwatch { length, seconds: Mutex::default() });
    train::run(setup, engine, Ports::new(&text, &stopwatch)).expect("a run");
    into_inner(stopwatch.seconds).split_off(length.warm_up as usize)
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
