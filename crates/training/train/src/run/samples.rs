//! Texts that a run continues between steps, with the weights that it trains. No state of training is written.

use std::time::{Duration, Instant};

use program::Purpose;

use crate::infer::generate::{self, Text};
use crate::infer::sampling::Sampling;
use crate::ranks::launch::{Progress, Stop};
use crate::setup::{Setup, WorkloadIndex};
use crate::worker::Worker;

/// Prompts that are continued, and the steps after which they are.
#[derive(Clone, Copy)]
pub struct Samples<'a> {
    /// The beginnings: at least one token each, all of the model's vocabulary.
    pub prompts: &'a [Vec<i32>],
    /// Tokens to add to each.
    pub max_tokens: usize,
    /// How each is drawn.
    pub sampling: Sampling,
    /// Steps from one sample of each prompt to the next.
    pub every: u32,
}

impl Samples<'_> {
    /// Whether samples are due after N steps.
    pub fn is_due_after(&self, steps: u32) -> bool {
        self.every > 0 && steps.is_multiple_of(self.every)
    }
}

/// A continued text.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleReport {
    /// Steps that were done before.
    pub step: u32,
    /// Index of the prompt.
    pub prompt: usize,
    /// The tokens after it.
    pub tokens: Vec<i32>,
    /// Wall time on rank 0.
    pub wall: Duration,
}

/// The texts of one rank, one for each prompt.
pub(crate) struct SampledTexts<'a> {
    pub(crate) samples: Samples<'a>,
    texts: Vec<Text>,
}

impl<'a> SampledTexts<'a> {
    pub(crate) fn new(setup: &Setup, samples: Samples<'a>) -> SampledTexts<'a> {
        let texts = samples.prompts.iter().map(|prompt| Text::new(prompt, setup.model.context)).collect();
        SampledTexts { samples, texts }
    }
}

/// The workload of a setup that generates, if it has one.
pub(crate) fn generating_workload(setup: &Setup) -> Option<WorkloadIndex> {
    setup.workload(Purpose::Generate)
}

/// Continues every prompt; the same tokens on every rank.
///
/// # Errors
/// The device's and the groups', and logits without a distribution.
pub(crate) fn sample<'a>(
    worker: &mut Worker<'a>,
    texts: &'a SampledTexts<'a>,
    step: u32,
    progress: &Progress,
) -> Result<Vec<SampleReport>, Stop> {
    let Some(workload) = generating_workload(worker.position.setup) else { return Ok(vec![]) };
    let interrupted = (worker.position.workload, worker.ports.source);
    let mut reports = vec![];
    for (prompt, text) in texts.texts.iter().enumerate() {
        let started = Instant::now();
        let beginning = &texts.samples.prompts[prompt];
        text.restart(beginning);
        worker.take_up(workload, text);
        let mut tokens = Vec::with_capacity(texts.samples.max_tokens);
        for position in beginning.len()..beginning.len() + texts.samples.max_tokens {
            tokens.push(generate::next_token(worker, text, (texts.samples.sampling, position), progress)?);
        }
        reports.push(SampleReport { step, prompt, tokens, wall: started.elapsed() });
    }
    // Training continues where it was.
    worker.position.first_cached = 0;
    worker.take_up(interrupted.0, interrupted.1);
    Ok(reports)
}
