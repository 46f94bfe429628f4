//! The text of a run: what it learns from, and what is held out to measure it.

use std::f64::consts::LN_2;

use data::{Batches, DataError, Document, Order};
use spec::RunConfig;
use train::{Evaluation, EvaluationReport, TokenSource};

use crate::failure::Failure;
use crate::figures::grouped;

/// Sequences of a run.
pub struct Text {
    training: Batches,
    /// Without it, why not.
    held_out: Result<Batches, String>,
}

impl Text {
    /// Reads the text of `config` and splits it.
    ///
    /// # Errors
    /// Text that cannot be read, or too little to train on. Too little to measure on is no error.
    pub fn read(config: &RunConfig) -> Result<Text, Failure> {
        let documents: Vec<Document> = match &config.data.path {
            None => data::embedded(),
            Some(path) => data::read(path).map_err(input)?,
        };
        let split = data::split(documents);
        let (train, vocabulary) = (&config.train, config.model.vocabulary);
        let order = Order::Shuffled { seed: train.seed };
        let training = Batches::new(split.train, "training", train, vocabulary, order).map_err(input)?;
        let held_out = Batches::new(split.held_out, "held-out", train, vocabulary, Order::AsWritten);
        Ok(Text { training, held_out: held_out.map_err(|error| error.to_string()) })
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

    /// Sequences to measure on after the last step; `None` if there is too little text.
    pub fn evaluation(&self) -> Option<Evaluation<'_>> {
        let held_out = self.held_out.as_ref().ok()?;
        Some(Evaluation { tokens: held_out, sequences: held_out.num_windows(), every: 0 })
    }

    /// The measurement in lines, or why there is none.
    pub fn comparison(&self, measured: Option<&EvaluationReport>) -> String {
        match (measured, &self.held_out) {
            (Some(report), _) => format!(
                "held out {:.4} nats per token, {:.3} bits per byte, over {} tokens\n",
                report.loss,
                // A token is a byte.
                report.loss / LN_2,
                grouped(report.tokens)
            ),
            (None, Ok(_)) => String::new(),
            (None, Err(reason)) => format!("held out not measured: {reason}\n"),
        }
    }
}

fn input(error: DataError) -> Failure {
    Failure::Input(error.to_string())
}
