//! `pleach eval`: the loss of a run's weights on text that it has not seen.

use std::f64::consts::LN_2;

use config::figures::grouped;
use config::{Requests, RunConfig, SourceSpec, TokenizerSpec, Trusted};
use data::{Batches, Blanks, DataError, Dataset, Order, Targets};
use run::failure::Failure;
use run::gpus::kernels;
use run::messages::stderr::tell;
use run::process_group::group::{ProcessGroup, together};
use run::process_group::meeting::Meeting;
use run::process_group::place::own_number;
use run::process_group::process_ranks::ProcessRanks;
use run::process_group::signal_relay::end_all_while;
use run::signals::interrupt;
use run::source::run_source::RunSource;
use run::text::run_text::{check_attention, left_out};
use run::text::shared_text::OwnText;
use serde_json::json;
use train::{Evaluation, EvaluationReport, Setup};

use crate::arguments::inference::EvalArguments;
use crate::infer;
use crate::screen::output::print;

/// Measures and prints.
///
/// # Errors
/// Input that cannot be used, or the failure of a rank.
pub fn eval(arguments: &EvalArguments) -> Result<(), Failure> {
    let signals = interrupt::ends_at_once()?;
    let mut source = infer::source(&arguments.from, &[])?;
    if let Some(path) = &arguments.data {
        source.config.data.sources = vec![SourceSpec { column: arguments.column.clone(), ..SourceSpec::of(path) }];
        source.config.data.held_out = 0.0;
        source.config.data.requests = Some(Trusted::of_command_line(Requests));
    }
    if own_number()? == 0 {
        source.left_out.iter().for_each(|line| tell(line));
    }
    // One text is measured.
    source.config.data.validation.clear();
    let config = &source.config;
    let is_text = !config.data.sources.iter().any(SourceSpec::is_tokens);
    if is_text && config.data.tokenizer == TokenizerSpec::OfTokenFiles {
        // Weights without a tokenizer are named.
        source.tokenizer()?;
    }
    let text = OwnText::read(&config.data)?;
    let part = if arguments.data.is_some() { EvaluatedPart::All } else { EvaluatedPart::HeldOut };
    let meeting = Meeting { text: text.hash(), ..source.meeting(format!("eval of {} text", part.name()))? };
    let printed = together(&meeting, |process_group| {
        end_all_while(process_group, &signals, || {
            let measured = Measured::new(config, part, text.tokenized(process_group)?)?;
            if process_group.is_first() {
                kernels::tell(config)?;
                let Measured { batches, .. } = &measured;
                tell(&left_out(batches.left_out(), batches.targets(), config.train.sequence_length));
            }
            let report = measured.loss(&source, process_group)?;
            check_finite(&report)?;
            let measure = measured.measure;
            let printed = if arguments.json { record(&report, measure) } else { line(&report, measure) };
            Ok(process_group.is_first().then_some(printed))
        })
    })?;
    printed.flatten().map_or(Ok(()), |printed| print(&format!("{printed}\n")))
}

/// The part of a text on which the loss is measured.
#[derive(Clone, Copy)]
enum EvaluatedPart {
    All,
    HeldOut,
}

impl EvaluatedPart {
    fn name(self) -> &'static str {
        match self {
            EvaluatedPart::All => "evaluation",
            EvaluatedPart::HeldOut => "held-out",
        }
    }
}

/// The meaning of a token of the text.
#[derive(Clone, Copy)]
enum Measure {
    /// This many bytes.
    Bytes(f64),
    /// A token of a part of the text, whose surroundings help to write it, so that it does not represent bytes.
    Tokens(&'static str),
}

/// The text on which the loss is measured.
struct Measured {
    batches: Batches,
    measure: Measure,
}

impl Measured {
    fn new(config: &RunConfig, part: EvaluatedPart, dataset: Dataset) -> Result<Measured, Failure> {
        let text = match part {
            EvaluatedPart::All => dataset.train.clone(),
            EvaluatedPart::HeldOut => dataset.held_out.clone(),
        };
        let bytes = dataset.text_of(&text).map_err(input)?.len();
        let bytes_per_token = bytes as f64 / text.len() as f64;
        let blanks = dataset.blanks(config).map_err(input)?;
        let order = Order::AsWritten;
        let batches = Batches::new(text, part.name(), &config.train, config.model.vocabulary, order).map_err(input)?;
        let batches = batches.with_blanks(blanks.as_ref().map(Blanks::of_text)).map_err(input)?;
        let measure = match batches.targets() {
            Targets::All => Measure::Bytes(bytes_per_token),
            Targets::Blanks => Measure::Tokens("a blank"),
            Targets::Answers => Measure::Tokens("an answer"),
            Targets::Labels => Measure::Tokens("a label"),
        };
        check_attention(config, &batches)?;
        Ok(Measured { batches, measure })
    }

    fn loss(&self, source: &RunSource, process_group: &ProcessGroup) -> Result<EvaluationReport, Failure> {
        let RunConfig { model, parallelism, train, .. } = source.config.clone();
        let sequences = self.batches.num_windows();
        let setup = Setup::evaluation(model, parallelism, train, sequences)
            .map_err(|error| Failure::Work(error.to_string()))?;
        let evaluation = Evaluation { tokens: &self.batches, sequences, every: 0 };
        ProcessRanks::open(process_group, &source.config, &setup)?.evaluate(evaluation, &source.weights)
    }
}

/// A loss that is infinite or NaN says nothing about a text.
fn check_finite(report: &EvaluationReport) -> Result<(), Failure> {
    match report.loss.is_finite() {
        true => Ok(()),
        false => Err(Failure::Work(format!(
            "the loss is {}: the weights or the activations are not finite; use weights of an earlier step, or --set train.precision=fp32",
            report.loss
        ))),
    }
}

fn input(error: DataError) -> Failure {
    Failure::Input(error.to_string())
}

fn bits_per_byte(report: &EvaluationReport, bytes_per_token: f64) -> f64 {
    report.loss / LN_2 / bytes_per_token
}

fn line(report: &EvaluationReport, measure: Measure) -> String {
    let measured = match measure {
        Measure::Bytes(bytes) => format!("nats per token, {:.3} bits per byte", bits_per_byte(report, bytes)),
        Measure::Tokens(of) => format!("nats per token of {of}"),
    };
    format!("loss {:.4} {measured}, over {} tokens", report.loss, grouped(report.tokens))
}

fn record(report: &EvaluationReport, measure: Measure) -> String {
    let bits = match measure {
        Measure::Bytes(bytes) => Some(bits_per_byte(report, bytes)),
        Measure::Tokens(_) => None,
    };
    json!({
        "loss": report.loss,
        "bits_per_byte": bits,
        "tokens": report.tokens,
        "seconds": report.wall.as_secs_f64(),
    })
    .to_string()
}
