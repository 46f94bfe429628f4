//! The text of a run: what it learns from, and what is held out to measure it.

use std::f64::consts::LN_2;

use data::{Baselines, Batches, DataError, Dataset, Order, Tokenizer};
use spec::RunConfig;
use train::{Evaluation, EvaluationReport, TokenSource};

use crate::failure::Failure;
use crate::figures::grouped;

/// Sequences of a run.
pub struct Text {
    tokenizer: Tokenizer,
    /// Bytes of text behind the held-out tokens.
    held_out_bytes: u64,
    held_out_tokens: u64,
    /// Other models of the same text; none where the text cannot be told from the tokens.
    baselines: Option<Baselines>,
    training: Batches,
    /// Without it, why not.
    held_out: Result<Batches, String>,
    evaluate_every: u32,
}

impl Text {
    /// Reads the text of `config` and splits it.
    ///
    /// # Errors
    /// Text that cannot be read, or too little to train on. Too little to measure on is no error.
    pub fn read(config: &RunConfig) -> Result<Text, Failure> {
        let dataset = Dataset::open(&config.data).map_err(input)?;
        let (train, vocabulary) = (&config.train, config.model.vocabulary);
        let order = Order::Shuffled { seed: train.seed };
        let training = Batches::new(dataset.train.clone(), "training", train, vocabulary, order).map_err(input)?;
        let held_out = Batches::new(dataset.held_out.clone(), "held-out", train, vocabulary, Order::AsWritten);
        Ok(Text {
            baselines: Baselines::measure(&dataset).map_err(input)?,
            held_out_bytes: dataset.held_out_bytes,
            held_out_tokens: dataset.held_out.len() as u64,
            tokenizer: dataset.tokenizer,
            training,
            held_out: held_out.map_err(|error| error.to_string()),
            evaluate_every: config.run.evaluate_every,
        })
    }

    /// What turns text into tokens.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What it is, in a line.
    pub fn description(&self) -> String {
        let held_out = self.held_out.as_ref().map_or(0, |held_out| held_out.corpus().len());
        format!(
            "text    {} tokens, {} sequences per epoch; {} tokens are held out\n",
            grouped(self.training.corpus().len() as u64),
            grouped(self.training.num_windows()),
            grouped(held_out as u64)
        )
    }

    /// Sequences to train on.
    pub fn training(&self) -> &dyn TokenSource {
        &self.training
    }

    /// Sequences to measure on, and when; `None` if there is too little text.
    pub fn evaluation(&self) -> Option<Evaluation<'_>> {
        let held_out = self.held_out.as_ref().ok()?;
        Some(Evaluation { tokens: held_out, sequences: held_out.num_windows(), every: self.evaluate_every })
    }

    /// The measurement in lines, or why there is none.
    pub fn comparison(&self, measured: Option<&EvaluationReport>) -> String {
        match (measured, &self.held_out) {
            (Some(report), _) => {
                let bytes_per_token = self.held_out_bytes as f64 / self.held_out_tokens.max(1) as f64;
                let others = self.baselines.as_ref().map_or(String::new(), |baselines| {
                    format!(
                        "         an order-2 model of bytes {:.3}, gzip {:.3}\n",
                        baselines.order_two, baselines.gzip
                    )
                });
                format!(
                    "held out {:.4} nats per token, {:.3} bits per byte, over {} tokens\n{others}",
                    report.loss,
                    report.loss / LN_2 / bytes_per_token,
                    grouped(report.tokens)
                )
            }
            (None, Ok(_)) => String::new(),
            (None, Err(reason)) => format!("held out not measured: {reason}\n"),
        }
    }
}

fn input(error: DataError) -> Failure {
    Failure::Input(error.to_string())
}
