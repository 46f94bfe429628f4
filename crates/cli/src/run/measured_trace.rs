//! When every rank ran every instruction of a step, for `pleach train --trace`.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use sim::Trace;
use sim::trace::RankTimes;
use train::Setup;
use train::setup::WorkloadIndex;
use train::worker::Worker;

use crate::failure::Failure;
use crate::screen::output_file::OutputFile;
use crate::simulate::rank_times::rank_times;

/// Ends of instructions of the last step that every rank has ended, as the ranks report them.
pub struct Recorder {
    began: Instant,
    ranks: Vec<Mutex<RankRecord>>,
}

#[derive(Default)]
struct RankRecord {
    running: Vec<u64>,
    done: Option<(WorkloadIndex, Vec<u64>)>,
}

impl Recorder {
    /// For a run of so many ranks.
    pub fn new(ranks: usize) -> Recorder {
        Recorder { began: Instant::now(), ranks: (0..ranks).map(|_| Mutex::default()).collect() }
    }

    /// Notes that `rank` has ended its instruction.
    pub fn ended(&self, worker: &Worker<'_>) {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        let Some(record) = self.ranks.get(worker.communicators.world.position()) else { return };
        // A rank that panics ends the run; what others have noted is still true.
        let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
        if worker.at == 0 {
            record.running.clear();
        }
        record.running.push(now_ns);
        if worker.at + 1 == worker.program.instrs.len() {
            record.done = Some((worker.workload, std::mem::take(&mut record.running)));
        }
    }

    /// Writes the last step that was done as a Chrome trace, which begins where the first instruction of a rank ends.
    ///
    /// # Errors
    /// A file that cannot be written, or a run that did not end a step.
    pub fn write(self, setup: &Setup, file: &OutputFile) -> Result<(), Failure> {
        let records =
            self.ranks.into_iter().map(|record| record.into_inner().unwrap_or_else(PoisonError::into_inner).done);
        let done: Option<Vec<(WorkloadIndex, Vec<u64>)>> = records.collect();
        let Some(done) = done.filter(|done| !done.is_empty()) else {
            return Err(Failure::Work(format!("{}: no step was done that could be drawn", file.path().display())));
        };
        let first_ns = done.iter().filter_map(|(_, ends)| ends.first()).min().copied().unwrap_or(0);
        let graph = setup.graph_of(done[0].0);
        let ranks = done.iter().enumerate();
        let ranks: Vec<RankTimes> =
            ranks.map(|(number, (_, ends))| rank_times(&setup.mesh, number, times(ends, first_ns))).collect();
        file.write(sim::ChromeTrace(&Trace::new(graph, &ranks)))
    }
}

/// Instructions are issued one after the other, so each starts when the one before it has ended.
fn times(ends: &[u64], first_ns: u64) -> Vec<(u64, u64)> {
    let ends = ends.iter().map(|end| end - first_ns);
    let starts = ends.clone().take(1).chain(ends.clone());
    starts.zip(ends).collect()
}
