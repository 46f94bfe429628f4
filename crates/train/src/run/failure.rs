//! How a rank's failure is told: which rank, step and instruction, and the program around it.

use std::fmt;

use config::GradientSums;
use mesh::Rank;
use thiserror::Error;

/// Why a run ended before its last step.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The run cannot start: the program, the plan or the data do not fit.
    #[error("{0}")]
    Prepare(String),
    /// A rank failed or panicked; every other rank stopped because of it.
    #[error("{0}")]
    Rank(RankFailure),
    /// Loss or gradient overflows however little it is scaled. Seen by all ranks before any weight changed.
    #[error(
        "step {step}: fp16 overflows at the least loss scale, {loss_scale}, after {skipped_steps} skipped steps (loss {loss}); no weight was changed. \
         A lower learning rate, a longer warm-up or train.precision = \"bf16\" may help"
    )]
    Overflow {
        /// Counted from 1.
        step: u32,
        /// The factor of the loss.
        loss_scale: f32,
        /// Steps before that changed no weight.
        skipped_steps: u32,
        /// As reported.
        loss: f64,
    },
    /// Loss or gradient is not finite. Seen by all ranks before any weight changed.
    #[error(
        "step {step}: loss {loss}, gradient norm {gradient_norm}; no weight was changed. {}", remedy(*sums)
    )]
    NotFinite {
        /// Counted from 1.
        step: u32,
        /// As reported.
        loss: f64,
        /// As reported.
        gradient_norm: f64,
        /// In which numbers gradients were summed.
        sums: GradientSums,
    },
}

fn remedy(sums: GradientSums) -> &'static str {
    match sums {
        GradientSums::Single => "A lower learning rate, a longer warm-up or clipping may help",
        GradientSums::Exact => {
            "Where train.sums = \"exact\" a gradient of 2048 or more does not fit either; \"single\", a lower learning rate, a longer warm-up \
             or a smaller model.init_std may help"
        }
    }
}

/// Where and why a rank failed.
#[derive(Clone, Debug, PartialEq)]
pub struct RankFailure {
    /// The rank.
    pub rank: Rank,
    /// Counted from 1; 0 before the first step.
    pub step: u32,
    /// The program around the instruction, an arrow at it.
    pub excerpt: String,
    /// The instruction.
    pub instruction: String,
    /// What happened.
    pub cause: String,
}

impl fmt::Display for RankFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.step, self.excerpt.is_empty()) {
            (0, true) => write!(f, "{} failed before the first step: {}", self.rank, self.cause)?,
            (step, _) => write!(f, "{} failed in step {step} at \"{}\": {}", self.rank, self.instruction, self.cause)?,
        }
        if !self.excerpt.is_empty() {
            write!(f, "\n{}", self.excerpt)?;
        }
        Ok(())
    }
}

/// Lines of context before and after the arrow.
const CONTEXT: usize = 3;

/// The instructions around `index`, one a line, an arrow at it.
pub fn excerpt(instructions: &[impl fmt::Display], index: usize) -> String {
    let first = index.saturating_sub(CONTEXT);
    let last = (index + CONTEXT + 1).min(instructions.len());
    let mut text = String::new();
    for (number, instruction) in instructions.iter().enumerate().take(last).skip(first) {
        let arrow = if number == index { "-->" } else { "   " };
        text.push_str(&format!("  {arrow} {number:5}  {instruction}\n"));
    }
    text.truncate(text.trim_end().len());
    text
}
