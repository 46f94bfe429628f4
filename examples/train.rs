//! Trains a small model in a Rust program, and prints the loss of each step: `cargo run -p run --example train`.

use std::io;

use run::{EndedStep, Failure, Observer, Run, RunFile, TrainSpec};

/// Keys of the run; all others have their defaults. The keys of a run file come with `RunFile::file`.
const KEYS: [&str; 3] = ["train.steps=20", "parallelism.dp=2", "run.folder=runs/example"];

struct Losses;

impl Observer for Losses {
    fn step(&self, step: &EndedStep<'_>) -> io::Result<()> {
        println!("step {} of {}: loss {:.4}", step.report.step, step.steps, step.report.loss);
        Ok(())
    }
}

/// Trains with [`KEYS`], and with `others`, which come after them.
pub fn train(others: impl Iterator<Item = String>) -> Result<(), Failure> {
    let overrides = KEYS.into_iter().map(String::from).chain(others).collect();
    let spec = TrainSpec { run: RunFile { overrides, ..RunFile::default() }, ..TrainSpec::default() };
    Run::open(spec)?.train(&Losses)
}

fn main() -> Result<(), Failure> {
    train(std::env::args().skip(1))
}
