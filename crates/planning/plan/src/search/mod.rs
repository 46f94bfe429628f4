//! The best layouts of a run on a cluster: everything is decided, and only what two bounds leave over is simulated.
//!
//! Layouts that a rule of `config::check` refuses are counted and left out. A layout whose memory floor does not fit
//! cannot fit; a layout whose least time is not below the time of the K-th best cannot be among the K best. Both bounds
//! are of two kinds, a cheap one ([`Floors`]) and a close one ([`Recordings`]). Always the layout of the least bound
//! is taken: its bound is made closer, or it is simulated event by event, until the least bound that is left is not
//! below the K-th best time. So the answer is that of simulating everything.

mod candidates;
mod floor;
mod gathers;
mod idle;
mod parameters;
mod pipeline;
mod recordings;
mod remedies;

use std::collections::BTreeMap;

use cluster::{Cluster, Software};
use config::{Parallelism, RunConfig};
use rayon::prelude::*;
use sim::Spent;
use train::SetupError;

pub use candidates::{Candidates, Refusals, has_schedule, keys, values};
pub use floor::{Floor, Floors};
pub use idle::search_up_to;
pub use recordings::Recordings;
pub use remedies::{Remedies, Smallest};

/// Input of a search: a run, a cluster, and the keys that are fixed.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The run; its layout does not count.
    pub config: &'a RunConfig,
    /// Where it is to run.
    pub cluster: &'a Cluster,
    /// The trainer, where it is not pleach.
    pub software: Option<&'a Software>,
    /// Rows of the rank with the most rows of experts, relative to balanced routing: 1 or more.
    pub expert_load: f64,
    pub accelerators: usize,
    /// Keys of `[parallelism]` that are given, with their values as [`keys`] writes them.
    pub fixed: &'a BTreeMap<String, String>,
    /// Bytes that a rank may use.
    pub memory_bytes: f64,
    /// Bytes of these that a layout of [`Answer::best`] leaves free.
    pub margin_bytes: f64,
    /// How many layouts are wanted.
    pub top: usize,
}

/// The share of an accelerator's memory that is left free unless something else is asked for: twice the largest error
/// of memory predictions, 2.8 per cent (`docs/accuracy.md`, to which nothing is fitted), since allocators fragment
/// and libraries take buffers that no prediction knows.
pub const MEMORY_MARGIN: f64 = 0.06;

/// A layout that was simulated and fits.
#[derive(Clone, Debug)]
pub struct Found {
    /// The layout, with its stages written out.
    pub parallelism: Parallelism,
    /// Nanoseconds of a step.
    pub step_ns: u64,
    /// Where they go.
    pub spent: Spent,
    /// Bytes of the largest rank at its peak.
    pub memory_bytes: usize,
}

/// How many legal layouts were decided how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Excluded because their memory floor does not fit.
    pub over_memory: usize,
    /// Excluded because their least time is too long.
    pub over_time: usize,
    /// Simulated, of which some do not fit when their memory is added up.
    pub simulated: usize,
    /// Simulated and found not to fit.
    pub did_not_fit: usize,
}

/// Result of a search: the best layouts, and the counts of the others.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The best layouts that leave the margin, the fastest first. No two take the same time and memory.
    pub best: Vec<Found>,
    /// Faster ones that fit and do not leave it; where none leaves it, the fastest that fit.
    pub closer: Vec<Found>,
    /// Combinations that are not layouts.
    pub refusals: Refusals,
    /// How the others were decided.
    pub counts: Counts,
}

/// A layout that is not decided yet.
#[derive(Clone, Debug)]
struct Open {
    parallelism: Parallelism,
    /// Its largest rank, as far as is known.
    largest: usize,
    bound_kind: BoundKind,
    headroom: Headroom,
}

/// The memory that a layout leaves free, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Headroom {
    /// It may leave the margin.
    Margin,
    /// Its memory floor alone does not leave it.
    Close,
}

/// The bound on a layout's time that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoundKind {
    Floor,
    Cells,
}

/// The result for a layout.
enum Step {
    /// A closer bound on its time.
    Bound(u64),
    /// One of its ranks does not fit.
    OverMemory,
    /// Its time, which is too long to ask for its memory.
    Slow,
    /// Its time and its memory.
    Simulated(Box<Found>),
}

/// Layouts of each kind of bound that are bounded closer at once: so many that cores have work, and no more, for some
/// may turn out to be in vain. The counts do not depend on the machine.
const AT_ONCE: [usize; 2] = [32, 2];

/// Decides every layout.
///
/// # Errors
/// A unit that cannot be recorded, or a program that breaks its rules: faults of pleach.
pub fn search(question: &Question) -> Result<Answer, SetupError> {
    let candidates = Candidates::new(question.config, question.software, question.accelerators, question.fixed);
    let recordings = question.recordings(&candidates.legal)?;
    let mut answer = Answer { refusals: candidates.refusals, ..Answer::default() };
    decide(question, candidates.legal, &recordings, &mut answer)?;
    answer.forget_slower();
    Ok(answer)
}

/// Decides these legal layouts, whose passes are recorded, with those that `answer` has already.
fn decide(
    question: &Question,
    legal: Vec<Parallelism>,
    recordings: &Recordings,
    answer: &mut Answer,
) -> Result<(), SetupError> {
    let mut open = OpenLayouts::new(legal, recordings, question, answer);
    loop {
        let late_ns = answer.late_ns(question.top, Headroom::Margin);
        let late_close_ns = late_ns.min(answer.late_ns(question.top, Headroom::Close));
        answer.counts.over_time += open.forget_close(late_close_ns);
        let some = open.take(late_ns);
        if some.is_empty() {
            break;
        }
        let steps: Vec<_> =
            some.par_iter().with_max_len(1).map(|(_, layout)| layout.step(recordings, question, late_ns)).collect();
        for ((place, layout), step) in some.into_iter().zip(steps) {
            match step? {
                Step::Bound(least_ns) => {
                    open.put(least_ns.max(place.0), place.1, Open { bound_kind: BoundKind::Cells, ..layout })
                }
                Step::OverMemory => answer.counts.over_memory += 1,
                Step::Slow => answer.counts.simulated += 1,
                Step::Simulated(found) => answer.add(*found, question),
            }
        }
    }
    answer.counts.over_time += open.len();
    Ok(())
}

/// Open layouts in the order of their bounds on time; of equal ones, the one that was tried first.
struct OpenLayouts {
    open: BTreeMap<(u64, usize), Open>,
}

impl OpenLayouts {
    /// All layouts whose memory floor fits, with the cheap bound.
    fn new(
        layouts: Vec<Parallelism>,
        recordings: &Recordings,
        question: &Question,
        answer: &mut Answer,
    ) -> OpenLayouts {
        let mut open_layouts = OpenLayouts { open: BTreeMap::new() };
        let mut floors = Floors::new(recordings);
        for (index, parallelism) in layouts.into_iter().enumerate() {
            // Legal layouts have no more stages than there is to put into them.
            let Some(floor) = floors.of(&parallelism) else { continue };
            let Floor { least_ns, memory_bytes, largest, .. } = floor;
            if memory_bytes > question.memory_bytes {
                answer.counts.over_memory += 1;
                continue;
            }
            let leaves_margin = memory_bytes <= question.memory_bytes - question.margin_bytes;
            let headroom = if leaves_margin { Headroom::Margin } else { Headroom::Close };
            let parallelism = floor.laid_out(parallelism);
            open_layouts.put(least_ns, index, Open { parallelism, largest, bound_kind: BoundKind::Floor, headroom });
        }
        open_layouts
    }

    fn put(&mut self, least_ns: u64, index: usize, layout: Open) {
        self.open.insert((least_ns, index), layout);
    }

    /// The first layouts, as far as they have the same kind of bound and their bounds below `late_ns`.
    fn take(&mut self, late_ns: u64) -> Vec<((u64, usize), Open)> {
        let mut some: Vec<((u64, usize), Open)> = vec![];
        while let Some(entry) = self.open.first_entry() {
            let bound_kind = some.first().map_or(entry.get().bound_kind, |(_, first)| first.bound_kind);
            let is_full = some.len() == AT_ONCE[bound_kind as usize];
            if is_full || entry.get().bound_kind != bound_kind || entry.key().0 >= late_ns {
                break;
            }
            some.push(entry.remove_entry());
        }
        some
    }

    /// Forgets the layouts at the front that do not leave the margin and take `late_ns` at least; returns how many
    /// there were.
    fn forget_close(&mut self, late_ns: u64) -> usize {
        let before = self.open.len();
        while let Some(entry) = self.open.first_entry()
            && entry.key().0 >= late_ns
            && entry.get().headroom == Headroom::Close
        {
            entry.remove();
        }
        before - self.open.len()
    }

    fn len(&self) -> usize {
        self.open.len()
    }
}

impl Open {
    /// One step on: to the close bound, or to the simulation.
    fn step(&self, recordings: &Recordings, question: &Question, late_ns: u64) -> Result<Step, SetupError> {
        let parallelism = &self.parallelism;
        match self.bound_kind {
            BoundKind::Floor => Ok(Step::Bound(recordings.cells_ns(parallelism)?)),
            BoundKind::Cells => {
                if recordings.rank_bytes(parallelism, self.largest)? as f64 > question.memory_bytes {
                    return Ok(Step::OverMemory);
                }
                let step = recordings.step(parallelism)?;
                let prediction = step.on(question.cluster)?;
                if prediction.step_ns() >= late_ns {
                    return Ok(Step::Slow);
                }
                Ok(Step::Simulated(Box::new(Found {
                    parallelism: parallelism.clone(),
                    step_ns: prediction.step_ns(),
                    spent: prediction.spent,
                    memory_bytes: step.memory_bytes(),
                })))
            }
        }
    }
}

impl<'a> Question<'a> {
    fn recordings(&self, layouts: &[Parallelism]) -> Result<Recordings<'a>, SetupError> {
        Recordings::new(self.config, self.cluster, (self.software, self.expert_load), layouts)
    }
}

impl Answer {
    /// No layout with so much room that takes so long is wanted any more.
    fn late_ns(&self, top: usize, headroom: Headroom) -> u64 {
        let list = match headroom {
            Headroom::Margin => &self.best,
            Headroom::Close => &self.closer,
        };
        if list.len() < top { u64::MAX } else { list.last().map_or(0, |last| last.step_ns) }
    }

    fn add(&mut self, found: Found, question: &Question) {
        self.counts.simulated += 1;
        let memory_bytes = found.memory_bytes as f64;
        if memory_bytes > question.memory_bytes {
            self.counts.did_not_fit += 1;
            return;
        }
        let leaves_margin = memory_bytes <= question.memory_bytes - question.margin_bytes;
        let list = if leaves_margin { &mut self.best } else { &mut self.closer };
        let rank = |found: &Found| (found.step_ns, found.memory_bytes);
        let at = list.partition_point(|other| rank(other) < rank(&found));
        // Of layouts that take the same time and memory, the one that was simulated first stands for all.
        if list.get(at).is_none_or(|other| rank(other) != rank(&found)) {
            list.insert(at, found);
            list.truncate(question.top);
        }
    }

    /// Layouts that do not leave the margin are worth showing where they are faster than all that do.
    fn forget_slower(&mut self) {
        if let Some(best) = self.best.first() {
            let best_ns = best.step_ns;
            self.closer.retain(|found| found.step_ns < best_ns);
        }
    }
}
