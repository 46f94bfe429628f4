//! `pleach eval`: the loss of a run's weights on text that it has not seen.

use std::f64::consts::LN_2;

use data::{Batches, DataError, Dataset, Order};
use serde_json::json;
use spec::SourceSpec;
use train::{Evaluation, EvaluationReport, Setup, run_evaluation};

use crate::failure::Failure;
use crate::figures::grouped;
use crate::inference_arguments::EvalArguments;
use crate::interrupt;
use crate::output::print;
use crate::run_source::RunSource;

/// Measures and prints.
///
/// # Errors
/// Input that cannot be used, or the failure of a rank.
pub fn eval(arguments: &EvalArguments) -> Result<(), Failure> {
    interrupt::ends_at_once()?;
    let mut source = RunSource::open(&arguments.from.from, &[], &arguments.from.overrides)?;
    if let Some(path) = &arguments.data {
        source.config.data.sources = vec![SourceSpec { path: path.clone(), weight: 1.0 }];
        source.config.data.held_out = 0.0;
    }
    let config = &source.config;
    let dataset = Dataset::open(&config.data).map_err(input)?;
    let (part, text) = match arguments.data {
        Some(_) => ("evaluation", dataset.train.clone()),
        None => ("held-out", dataset.held_out.clone()),
    };
    let bytes = dataset.text_of(&text).map_err(input)?.len();
    let bytes_per_token = bytes as f64 / text.len() as f64;
    let batches = Batches::new(text, part, &config.train, config.model.vocabulary, Order::AsWritten).map_err(input)?;
    let sequences = batches.num_windows();
    let setup = Setup::evaluation(config.model.clone(), config.parallelism.clone(), config.train.clone(), sequences)
        .map_err(|error| Failure::Work(error.to_string()))?;
    let evaluation = Evaluation { tokens: &batches, sequences, every: 0 };
    let report = run_evaluation(&setup, &source.engine(&setup), evaluation, Some(&source.weights))
        .map_err(|error| Failure::Work(error.to_string()))?;
    let told = if arguments.json { record(&report, bytes_per_token) } else { line(&report, bytes_per_token) };
    print(&format!("{told}\n"))
}

fn input(error: DataError) -> Failure {
    Failure::Input(error.to_string())
}

fn bits_per_byte(report: &EvaluationReport, bytes_per_token: f64) -> f64 {
    report.loss / LN_2 / bytes_per_token
}

fn line(report: &EvaluationReport, bytes_per_token: f64) -> String {
    format!(
        "loss {:.4} nats per token, {:.3} bits per byte, over {} tokens",
        report.loss,
        bits_per_byte(report, bytes_per_token),
        grouped(report.tokens)
    )
}

fn record(report: &EvaluationReport, bytes_per_token: f64) -> String {
    json!({
        "loss": report.loss,
        "bits_per_byte": bits_per_byte(report, bytes_per_token),
        "tokens": report.tokens,
        "seconds": report.wall.as_secs_f64(),
    })
    .to_string()
}
