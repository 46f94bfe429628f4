//! A run as a page shows it.

use serde::{Deserialize, Serialize};

use crate::metrics::Metrics;

/// A run: what it was asked for, what it has measured, and what was planned for it.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The name in legends.
    pub name: String,
    /// Model, ranks, step and the like, as short sentences.
    pub facts: Vec<Fact>,
    /// The resolved run file, TOML.
    pub run_file: String,
    /// Its measurements and events.
    pub metrics: Metrics,
    /// Planned memory, where the run file could be planned.
    pub memory: Option<MemoryPlan>,
    /// A step in time.
    pub timeline: Option<Timeline>,
}

/// A subject with what there is to say about it: `model`, `6 layers, hidden 128`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// One word.
    pub subject: String,
    /// A phrase.
    pub text: String,
}

/// Planned bytes of a rank of each stage, and what the process has held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// By pipeline coordinate.
    pub stages: Vec<StageMemory>,
    /// Arenas of all ranks together.
    pub arenas_bytes: u64,
    /// The most that the process of all ranks has held; `None` where it is not known or there were several processes.
    pub resident_bytes: Option<u64>,
}

/// Planned bytes of a rank of one stage, at its peak.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StageMemory {
    /// Its name: `pp 0`.
    pub name: String,
    /// Bytes by category.
    pub parts: Vec<(String, u64)>,
}

/// Where the times of a step are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimelineSource {
    /// The run has measured them.
    Measured,
    /// They follow from the schedule, with passes as long as their operations suggest.
    Planned,
}

/// A step in time: one rank of each stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Measured or planned.
    pub source: TimelineSource,
    /// The step; 0 where none was measured.
    pub step: u32,
    /// Microseconds from the first instruction to the end of the last; without a meaning where the times are planned.
    pub end_us: f64,
    pub stages: Vec<StageTime>,
}

impl Timeline {
    /// Whether there is time that somebody has spent: a file that was damaged may have none.
    pub fn can_be_drawn(&self) -> bool {
        let is_time = |time: &f64| time.is_finite() && *time >= 0.0;
        let of_stage = |stage: &StageTime| {
            stage
                .blocks
                .iter()
                .all(|Block(_, _, start, end)| is_time(start) && start <= end && *end <= 2.0 * self.end_us)
                && stage.spent.iter().all(|(_, time)| is_time(time))
        };
        self.end_us > 0.0 && self.end_us.is_finite() && !self.stages.is_empty() && self.stages.iter().all(of_stage)
    }
}

/// A rank of one stage during a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    /// Its name: `pp 0`.
    pub name: String,
    /// Passes, communication and updates, in order.
    pub blocks: Vec<Block>,
    /// Microseconds by kind of work; the rest of the step is waiting.
    pub spent: Vec<(String, f64)>,
}

/// Work of one kind for one microbatch: kind, microbatch, start and end in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block(pub String, pub Option<u32>, pub f64, pub f64);
