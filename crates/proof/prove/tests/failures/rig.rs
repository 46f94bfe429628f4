//! A small run on eight ranks, and what failed in it.

use std::time::{Duration, Instant};

use comm::Timeouts;
use config::{ModelSpec, Parallelism, TrainSpec, ZeroStage};
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use train::{
    Engine, Observer, Ports, RankFailure, Setup, StepReport, StopRequest, ThreadEngine, TrainError, queued_streams,
};

pub const TOKENS: ProofText = ProofText { vocabulary: 61, seed: 5, labels: Labels::Every };

/// A deadline that no failure may need: a rank that is not informed waits this long.
pub const NEVER: Duration = Duration::from_secs(3600);

pub struct Silent;

impl Observer for Silent {
    fn step(&self, _report: &StepReport) -> StopRequest {
        StopRequest::None
    }
}

pub fn train_spec() -> TrainSpec {
    TrainSpec { steps: 3, global_batch: 8, ..proof_training() }
}

pub fn model() -> ModelSpec {
    ModelSpec { num_layers: 4, ..proof_model(Style::Gpt2, 12, true) }
}

/// Every kind of group has two members or more.
pub fn eight_ranks() -> Setup {
    let layout = Parallelism { zero: ZeroStage::One, ..plain_layout(2, 2, 2, 1) };
    Setup::new(model(), layout, train_spec()).unwrap()
}

pub fn two_replicas() -> Setup {
    Setup::new(model(), plain_layout(2, 1, 1, 1), train_spec()).unwrap()
}

pub fn threads(setup: &Setup, wait: Duration) -> ThreadEngine {
    ThreadEngine::new(setup.groups(), Timeouts::new(wait)).with_queues(queued_streams(&setup.parallelism))
}

/// Runs; the rank that failed. Prints how long the run took to its end.
pub fn failure_of(setup: &Setup, engine: &dyn Engine) -> RankFailure {
    let started = Instant::now();
    let error = train::run(setup, engine, Ports::new(&TOKENS, &Silent)).expect_err("the run fails");
    println!("ended after {:?}: {error}", started.elapsed());
    match error {
        TrainError::Rank(failure) => failure,
        TrainError::Prepare(_)
        | TrainError::NotFinite { .. }
        | TrainError::Skipping { .. }
        | TrainError::RollBack { .. }
        | TrainError::Overflow { .. } => {
            panic!("not the failure of a rank: {error}")
        }
    }
}
