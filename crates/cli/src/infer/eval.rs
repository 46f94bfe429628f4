//! `pleach eval`: the loss of a run's weights on text that it has not seen.

use std::f64::consts::LN_2;

use config::SourceSpec;
use data::{Batches, Blanks, DataError, Dataset, Order};
use serde_json::json;
use train::{Evaluation, EvaluationReport, Setup};

use crate::arguments::inference::EvalArguments;
use crate::failure::Failure;
use crate::input::run_source::RunSource;
use crate::run::interrupt;
use crate::screen::figures::grouped;
use crate::screen::output::print;

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
    let blanks = dataset.blanks(config).map_err(input)?;
    let batches = Batches::new(text, part, &config.train, config.model.vocabulary, Order::AsWritten).map_err(input)?;
    let batches = batches.with_blanks(blanks.as_ref().map(Blanks::of_text));
    // What is read around a blank helps to fill it: its tokens do not stand for so many bytes.
    let bytes_per_token = (!batches.has_blanks()).then_some(bytes_per_token);
    let sequences = batches.num_windows();
    let setup = Setup::evaluation(config.model.clone(), config.parallelism.clone(), config.train.clone(), sequences)
        .map_err(|error| Failure::Work(error.to_string()))?;
    let evaluation = Evaluation { tokens: &batches, sequences, every: 0 };
    let report = source.ranks(&setup)?.evaluate(evaluation, &source.weights)?;
    let told = if arguments.json { record(&report, bytes_per_token) } else { line(&report, bytes_per_token) };
    print(&format!("{told}\n"))
}

fn input(error: DataError) -> Failure {
    Failure::Input(error.to_string())
}

fn bits_per_byte(report: &EvaluationReport, bytes_per_token: f64) -> f64 {
    report.loss / LN_2 / bytes_per_token
}

fn line(report: &EvaluationReport, bytes_per_token: Option<f64>) -> String {
    let measured = match bytes_per_token {
        Some(bytes) => format!("nats per token, {:.3} bits per byte", bits_per_byte(report, bytes)),
        None => "nats per token of a blank".into(),
    };
    format!("loss {:.4} {measured}, over {} tokens", report.loss, grouped(report.tokens))
}

fn record(report: &EvaluationReport, bytes_per_token: Option<f64>) -> String {
    json!({
        "loss": report.loss,
        "bits_per_byte": bytes_per_token.map(|bytes| bits_per_byte(report, bytes)),
        "tokens": report.tokens,
        "seconds": report.wall.as_secs_f64(),
    })
    .to_string()
}
