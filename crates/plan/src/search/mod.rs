//! The best layouts of a run on a cluster: everything is decided, and only what two bounds leave over is simulated.
//!
//! Layouts that a rule of `spec::check` refuses are counted and left out. A layout whose memory floor does not fit cannot fit; a layout whose least
//! time is not below the time of the K-th best cannot be among the K best ([`bounds`]). What is left is simulated event by event, in order of its
//! least time, until the next least time is not below the K-th best: so the answer is that of simulating everything.

pub mod bounds;
pub mod candidates;

use std::collections::BTreeMap;

use cluster::{Cluster, Software};
use program::StageSplit;
use sim::{RankMemory, Spent};
use spec::{Parallelism, RunConfig};
use train::SetupError;

use crate::prediction::PreparedStep;
use bounds::{Bounds, Floor};
use candidates::Candidates;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The run; its layout does not count.
    pub config: &'a RunConfig,
    /// Where it is to run.
    pub cluster: &'a Cluster,
    /// The trainer, where it is not pleach.
    pub software: Option<&'a Software>,
    /// Accelerators.
    pub accelerators: usize,
    /// Keys of `[parallelism]` that are given, with their values as [`candidates::keys`] writes them.
    pub fixed: &'a BTreeMap<String, String>,
    /// Bytes that a rank may use.
    pub memory_bytes: f64,
    /// How many layouts are wanted.
    pub top: usize,
}

/// A layout that was simulated and fits.
#[derive(Clone, Debug)]
pub struct Found {
    /// The layout, with its stages written out.
    pub parallelism: Parallelism,
    /// Nanoseconds of a step.
    pub step_ns: u64,
    /// Where they go.
    pub spent: Spent,
    /// Bytes of the hungriest rank at its peak.
    pub memory_bytes: usize,
}

/// How many layouts were decided how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Refused by a rule.
    pub refused: usize,
    /// Excluded because their memory floor does not fit.
    pub over_memory: usize,
    /// Excluded because their least time is too long.
    pub over_time: usize,
    /// Simulated, of which some do not fit when their memory is added up.
    pub simulated: usize,
    /// Simulated and found not to fit.
    pub did_not_fit: usize,
}

/// The answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The best layouts, the fastest first.
    pub best: Vec<Found>,
    /// How they were found.
    pub counts: Counts,
    /// The layout that comes closest to fitting, with its bytes, where none fits.
    pub closest: Option<(Parallelism, f64)>,
}

/// Decides every layout.
///
/// # Errors
/// A unit that cannot be recorded, or a program that breaks its rules: faults of pleach.
pub fn search(question: &Question) -> Result<Answer, SetupError> {
    let mut answer = Answer::default();
    let mut bounds = Bounds::new(question.config, question.cluster, question.software);
    let candidates = Candidates::new(question.config, question.accelerators, question.fixed);
    answer.counts.refused = candidates.refused;
    let mut open: Vec<(u64, Parallelism, StageSplit)> = vec![];
    for parallelism in candidates.legal {
        let Some(Floor { split, least_ns, memory_bytes }) = bounds.of(&parallelism)? else {
            answer.counts.refused += 1;
            continue;
        };
        if memory_bytes > question.memory_bytes {
            answer.counts.over_memory += 1;
            note(&mut answer.closest, &parallelism, memory_bytes);
            continue;
        }
        open.push((least_ns, parallelism, split));
    }
    open.sort_by_key(|(least_ns, ..)| *least_ns);
    let mut open = open.into_iter();
    while let Some((least_ns, parallelism, split)) = open.next() {
        let is_late =
            answer.best.len() >= question.top && answer.best.last().is_none_or(|last| least_ns >= last.step_ns);
        if is_late {
            answer.counts.over_time = 1 + open.len();
            break;
        }
        answer.counts.simulated += 1;
        let layers = split.layers_per_stage().to_vec();
        let parallelism = Parallelism { stage_layers: Some(layers), ..parallelism };
        let step = PreparedStep::new(&question.config.model, &parallelism, &question.config.train, question.software)?;
        let memory_bytes = step.memory().iter().map(RankMemory::occupied_bytes).max().unwrap_or(0);
        if memory_bytes as f64 > question.memory_bytes {
            answer.counts.did_not_fit += 1;
            note(&mut answer.closest, &parallelism, memory_bytes as f64);
            continue;
        }
        let prediction = step.on(question.cluster)?;
        let found = Found { parallelism, step_ns: prediction.step_ns(), spent: prediction.spent, memory_bytes };
        let at = answer.best.partition_point(|other| other.step_ns <= found.step_ns);
        answer.best.insert(at, found);
        answer.best.truncate(question.top);
    }
    if !answer.best.is_empty() {
        answer.closest = None;
    }
    Ok(answer)
}

/// Remembers the layout that needs least of those that do not fit.
fn note(closest: &mut Option<(Parallelism, f64)>, parallelism: &Parallelism, bytes: f64) {
    if closest.as_ref().is_none_or(|(_, least)| bytes < *least) {
        *closest = Some((parallelism.clone(), bytes));
    }
}
