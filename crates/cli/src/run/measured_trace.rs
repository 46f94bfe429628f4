//! When every rank ran every instruction of a step, for `pleach train --trace`.

use std::sync::Mutex;
use std::time::Instant;

use device::DeviceError;
use sim::{RankTimes, Trace};
use sync::{into_inner, lock};
use train::{Setup, Worker, WorkloadIndex};

use crate::failure::Failure;
use crate::screen::output_file::OutputFile;
use crate::simulate::rank_times::rank_times;

/// Times of instructions of the last step that every rank has ended.
pub struct Recorder {
    began: Instant,
    /// By rank.
    ranks: Vec<Mutex<Option<Step>>>,
}

/// The program that ran, and start and end of its instructions in nanoseconds.
type Step = (WorkloadIndex, Vec<(u64, u64)>);

impl Recorder {
    /// For a run of so many ranks.
    pub fn new(ranks: usize) -> Recorder {
        Recorder { began: Instant::now(), ranks: (0..ranks).map(|_| Mutex::default()).collect() }
    }

    /// Notes that `rank` has issued its instruction; after the last one of a step it waits for all of them.
    ///
    /// # Errors
    /// The device's.
    pub fn ended(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if worker.position.at + 1 < worker.position.program.instrs.len() {
            return Ok(());
        }
        let Some(record) = self.ranks.get(worker.ports.communicators.world().position()) else { return Ok(()) };
        let ns = |at: Instant| at.saturating_duration_since(self.began).as_nanos() as u64;
        let spans: Option<Vec<(u64, u64)>> =
            worker.spans()?.into_iter().map(|span| span.map(|(start, end)| (ns(start), ns(end)))).collect();
        if let Some(spans) = spans {
            *lock(record) = Some((worker.position.workload, spans));
        }
        Ok(())
    }

    /// Writes the last step that was done as a Chrome trace, which begins with the first instruction of a rank, and returns it.
    ///
    /// # Errors
    /// A file that cannot be written, or a run that did not end a step.
    pub fn write(self, setup: &Setup, file: &OutputFile) -> Result<Trace, Failure> {
        let done: Option<Vec<Step>> = self.ranks.into_iter().map(into_inner).collect();
        let Some(done) = done.filter(|done| !done.is_empty()) else {
            return Err(Failure::Work(format!("{}: no step was done that could be drawn", file.path().display())));
        };
        let first_ns = done.iter().flat_map(|(_, spans)| spans).map(|(start, _)| *start).min().unwrap_or(0);
        let graph = setup.graph_of(done[0].0);
        let ranks = done.iter().enumerate().map(|(number, (_, spans))| {
            let spans = spans.iter().map(|(start, end)| (start - first_ns, end - first_ns)).collect();
            rank_times(&setup.mesh, number, spans)
        });
        let trace = Trace::new(graph, &ranks.collect::<Vec<RankTimes>>());
        file.write(sim::ChromeTrace(&trace))?;
        Ok(trace)
    }
}
