//! Silent corruption: bits that flip in memory, and in the results of operations, are found on the rank where they
//! flipped. `PLEACH_CASES=200` draws 200 of each kind instead of a few.

mod clean;
mod memory;
mod operations;
mod state;

use std::sync::Mutex;

use config::{Parallelism, Recheck, TrainSpec, ZeroStage};
use device::{Device, DeviceError, Tensor};
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use train::{Engine, Observer, Ports, RankFailure, Setup, StepReport, StopRequest, TrainError, run};

const TEXT: ProofText = ProofText { vocabulary: 61, seed: 5, labels: Labels::Every };

#[derive(Default)]
struct Losses(Mutex<Vec<u64>>);

impl Observer for Losses {
    fn step(&self, report: &StepReport) -> StopRequest {
        self.0.lock().expect("no panic").push(report.loss.to_bits());
        StopRequest::None
    }
}

fn model() -> config::ModelSpec {
    config::ModelSpec { num_layers: 2, ..proof_model(Style::Llama, 4, true) }
}

fn setup(parallelism: Parallelism, train: TrainSpec) -> Setup {
    Setup::new(model(), parallelism, TrainSpec { steps: 3, global_batch: 4, ..train }).expect("legal")
}

/// Two replicas of two tensor-parallel ranks, with sharded optimizer state.
fn four_ranks() -> Setup {
    setup(Parallelism { zero: ZeroStage::One, ..plain_layout(2, 2, 1, 1) }, proof_training())
}

fn losses(setup: &Setup, engine: &dyn Engine, recheck: Recheck) -> Result<Vec<u64>, TrainError> {
    let losses = Losses::default();
    run(setup, engine, Ports { recheck, ..Ports::new(&TEXT, &losses) })?;
    Ok(losses.0.into_inner().expect("no panic"))
}

/// A small generator: places of flips are the same in every run of the test.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn flips() -> u64 {
    needs::cases!(6)
}

/// Flips a bit of a tensor; `at` counts bits from its start.
fn flip(device: &dyn Device, tensor: Tensor, at: usize) -> Result<(), DeviceError> {
    let row =
        at / 8 % (tensor.rows * tensor.cols * tensor.dtype.size_bytes()) / (tensor.cols * tensor.dtype.size_bytes());
    let row = tensor.rows_of(row..row + 1);
    let mut bytes = vec![0; row.size_bytes()];
    device.read(row, &mut bytes)?;
    let byte = at / 8 % bytes.len();
    bytes[byte] ^= 1 << (at % 8);
    device.write(row, &bytes)
}

fn failure(setup: &Setup, engine: &dyn Engine, recheck: Recheck) -> RankFailure {
    match losses(setup, engine, recheck) {
        Err(TrainError::Rank(failure)) => failure,
        Err(other) => panic!("not the failure of a rank: {other}"),
        Ok(losses) => panic!("the flip was not found in {} steps", losses.len()),
    }
}
