//! The best layouts on any number of accelerators up to a given one: the others stay idle.

use std::collections::btree_map::Entry;

use config::{Parallelism, RunConfig};
use sim::{ProductFormat, peak_flops_per_ns};
use train::SetupError;

use super::candidates::{Candidates, Refusals};
use super::{Answer, Headroom, Question, decide};
use crate::PreparedStep;

/// Searches as [`super::search`] does, with layouts on fewer accelerators than asked for as well. Each number is
/// searched, from the largest on, until the number left could not be faster than the best layouts even at the peak of
/// every accelerator.
///
/// # Errors
/// As there.
pub fn search_up_to(question: &Question) -> Result<Answer, SetupError> {
    let mut answer = Answer::default();
    let mut recordings = question.recordings(&[])?;
    let mut work = None;
    for accelerators in (1..=question.accelerators).rev() {
        let Question { config, software, fixed, .. } = *question;
        let Candidates { legal, refusals } = Candidates::new(config, software, accelerators, fixed);
        answer.refusals.join(refusals);
        let Some(first) = legal.first() else { continue };
        let at_peak_ns = match work {
            Some(work) => work,
            None => *work.insert(one_at_peak_ns(question, first)?),
        };
        if at_peak_ns / accelerators as f64 >= answer.late_ns(question.top, Headroom::Margin) as f64 {
            break;
        }
        recordings.record(&legal)?;
        decide(&Question { accelerators, ..question.clone() }, legal, &recordings, &mut answer)?;
    }
    answer.forget_slower();
    Ok(answer)
}

/// Nanoseconds of the model's operations of a step on one accelerator at its peak. No layout has fewer.
fn one_at_peak_ns(question: &Question, layout: &Parallelism) -> Result<f64, SetupError> {
    let RunConfig { model, train, .. } = question.config;
    let step = PreparedStep::new(model, layout, train, question.software)?;
    let format = ProductFormat::of(train.precision.stored().size_bytes(), question.software);
    let all = step.model_flops_per_rank() * layout.world_size() as f64;
    Ok(all / peak_flops_per_ns(&question.cluster.accelerator, format))
}

impl Refusals {
    /// Counts those of `others` as well; what a rule says of the first stays.
    fn join(&mut self, others: Refusals) {
        for (key, (number, problem)) in others.by_key {
            match self.by_key.entry(key) {
                Entry::Vacant(free) => {
                    free.insert((number, problem));
                }
                Entry::Occupied(mut known) => known.get_mut().0 += number,
            }
        }
    }
}
