//! When every rank ran every instruction of a step, for `pleach train --trace`.

use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use device::{DeviceError, KeptTimes};
use plan::PreparedStep;
use serde::{Deserialize, Serialize};
use sim::{Algorithms, ChromeTrace, MemoryOverTime, RankTimes, Trace};
use sync::{into_inner, lock};
use train::{Setup, Worker, WorkloadIndex};

use crate::failure::Failure;
use crate::places::output_file::OutputFile;
use crate::process_group::member::GroupMember;

/// Times of instructions of the last step that every rank has ended.
pub struct Recorder {
    began: Instant,
    /// The same moment by the clock of the host, in nanoseconds: processes of other hosts have other origins of
    /// [`Instant`].
    began_unix_ns: u64,
    /// By rank.
    ranks: Vec<Mutex<Option<Spans>>>,
    /// The last step, which is the same on all ranks.
    recorded: Mutex<Option<Recorded>>,
    recording: Recording,
}

/// Which steps are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// Every one, for a trace of the last.
    EveryStep,
    /// Now and then, and the last of `steps` steps, for a report.
    Sampled {
        /// Steps of the run.
        steps: u32,
    },
}

impl Recording {
    /// Steps from one sample to the next.
    const SAMPLE: u32 = 20;

    /// Whether `step`, counted from 0, is recorded.
    fn has(self, step: u32) -> bool {
        match self {
            Recording::EveryStep => true,
            Recording::Sampled { steps } => step + 1 == steps || step % Recording::SAMPLE == 1,
        }
    }
}

/// The step that was recorded last.
#[derive(Clone, Copy)]
struct Recorded {
    workload: WorkloadIndex,
    /// Counted from 0.
    step: u32,
}

/// Start and end of the instructions of one rank, in nanoseconds since the recorder began.
type Spans = Vec<(u64, u64)>;

/// The last step of the ranks of one process.
#[derive(Serialize, Deserialize)]
struct ProcessSpans {
    began_unix_ns: u64,
    ranks: Vec<(usize, Spans)>,
}

impl Recorder {
    /// For a run of `ranks` ranks.
    pub fn new(ranks: usize, recording: Recording) -> Recorder {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Recorder {
            began: Instant::now(),
            began_unix_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            ranks: (0..ranks).map(|_| Mutex::default()).collect(),
            recorded: Mutex::default(),
            recording,
        }
    }

    /// Notes that `rank` has issued its instruction; after the last one of a step it waits for all of them.
    ///
    /// # Errors
    /// The device's.
    pub fn ended(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if worker.position.at == 0 {
            // Nothing but tokens was submitted before.
            let is_recorded = self.recording.has(worker.position.step);
            worker.ports.device.keep_times(if is_recorded { KeptTimes::OfAll } else { KeptTimes::OfWaits });
        }
        let is_last = worker.position.at + 1 == worker.position.program.instrs.len();
        if !is_last || !self.recording.has(worker.position.step) {
            return Ok(());
        }
        let Some(record) = self.ranks.get(worker.ports.communicators.world().position()) else { return Ok(()) };
        let ns = |at: Instant| at.saturating_duration_since(self.began).as_nanos() as u64;
        let spans: Option<Vec<(u64, u64)>> =
            worker.spans()?.into_iter().map(|span| span.map(|(start, end)| (ns(start), ns(end)))).collect();
        if let Some(spans) = spans {
            *lock(record) = Some(spans);
            let (workload, step) = (worker.position.workload, worker.position.step);
            *lock(&self.recorded) = Some(Recorded { workload, step });
        }
        Ok(())
    }

    /// Takes the times of the ranks of other processes on process 0, and sends those of this process there on all
    /// others. All processes call it after their last step. Across hosts, times are as exact as their clocks agree.
    ///
    /// # Errors
    /// A failure of the run.
    pub fn gather(&self, member: &GroupMember) -> Result<(), Failure> {
        let malformed = |error: serde_json::Error| Failure::Work(format!("the times of instructions: {error}"));
        let ranks = self.ranks.iter().enumerate();
        let ranks = ranks.filter_map(|(rank, spans)| lock(spans).clone().map(|spans| (rank, spans))).collect();
        let own = ProcessSpans { began_unix_ns: self.began_unix_ns, ranks };
        let own = serde_json::to_vec(&own).map_err(malformed)?;
        for process in member.gather("the times of instructions", own)?.unwrap_or_default() {
            self.take(serde_json::from_slice(&process).map_err(malformed)?);
        }
        Ok(())
    }

    fn take(&self, process: ProcessSpans) {
        let ahead_ns = process.began_unix_ns.wrapping_sub(self.began_unix_ns).cast_signed();
        let here = |ns: u64| ns.saturating_add_signed(ahead_ns);
        for (rank, spans) in process.ranks {
            if let Some(record) = self.ranks.get(rank) {
                *lock(record) = Some(spans.into_iter().map(|(start, end)| (here(start), here(end))).collect());
            }
        }
    }

    /// The last recorded step, which begins with the first instruction of a rank; `None` where no step was recorded.
    pub fn last_step(self, setup: &Setup) -> Option<MeasuredStep> {
        let done: Option<Vec<Spans>> = self.ranks.into_iter().map(into_inner).collect();
        let (done, Recorded { workload, step }) = (done?, into_inner(self.recorded)?);
        let first_ns = done.iter().flatten().map(|(start, _)| *start).min().unwrap_or(0);
        let graph = setup.graph_of(workload);
        let ranks = done.iter().enumerate().map(|(number, spans)| {
            let spans = spans.iter().map(|(start, end)| (start - first_ns, end - first_ns)).collect();
            RankTimes::of_rank(&setup.mesh, number, spans)
        });
        let ranks: Vec<RankTimes> = ranks.collect();
        Some(MeasuredStep { trace: Trace::new(graph, &ranks), number: step + 1, ranks, workload })
    }
}

/// A step that all ranks have recorded.
pub struct MeasuredStep {
    /// Every rank.
    pub trace: Trace,
    /// Its number, counted from 1.
    pub number: u32,
    ranks: Vec<RankTimes>,
    workload: WorkloadIndex,
}

impl MeasuredStep {
    /// Writes it as a Chrome trace, with the planned memory of every rank, and collectives by these `algorithms`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, file: &OutputFile, setup: &Setup, algorithms: Algorithms<'_>) -> Result<(), Failure> {
        let refused = |error: train::SetupError| Failure::Work(error.to_string());
        let step = PreparedStep::new(&setup.model, &setup.parallelism, &setup.train, None).map_err(refused)?;
        let movements = step.movements(algorithms).map_err(refused)?;
        let (graph, plans) = (setup.graph_of(self.workload), setup.memory_of(self.workload));
        let memory = |rank: &RankTimes| {
            MemoryOverTime::planned(&plans.ranks[rank.pp], &graph.programs()[rank.pp].instrs, &rank.times)
        };
        let memory: Vec<MemoryOverTime> = self.ranks.iter().map(memory).collect();
        let memory: Vec<&MemoryOverTime> = memory.iter().collect();
        file.write(ChromeTrace { trace: &self.trace, graph, movements: &movements, memory: &memory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_another_process_are_moved_to_the_clock_of_this_one() {
        let recorder = Recorder { began_unix_ns: 1_000, ..Recorder::new(2, Recording::EveryStep) };
        recorder.take(ProcessSpans { began_unix_ns: 1_500, ranks: vec![(1, vec![(10, 20)])] });
        assert_eq!(*lock(&recorder.ranks[1]), Some(vec![(510, 520)]));
        recorder.take(ProcessSpans { began_unix_ns: 400, ranks: vec![(0, vec![(700, 800)]), (7, vec![])] });
        assert_eq!(*lock(&recorder.ranks[0]), Some(vec![(100, 200)]));
    }
}
