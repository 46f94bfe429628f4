//! A run on devices that record.

use std::sync::Mutex;

use device::DeviceError;
use mesh::Rank;
use train::{MetaEngine, Observer, Ports, Setup, StepReport, StopRequest, Worker};

use crate::conservation::cases::Case;

/// The instructions of one rank with their times.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// By step; the first with what happens before it.
    pub steps: Vec<StepWork>,
    /// After the last byte of the arena that was touched.
    pub peak_bytes: usize,
}

/// Work of one rank in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepWork {
    pub multiply_adds: u64,
    pub sent_bytes: u64,
    pub sent_messages: u64,
}

/// Whether `rank` has just executed the last instruction of a step.
pub fn ends_step(worker: &Worker<'_>) -> bool {
    worker.position.at + 1 == worker.position.program.instrs.len()
}

struct Recorder {
    engine: MetaEngine,
    work: Vec<Mutex<Work>>,
}

impl Observer for Recorder {
    fn step(&self, _report: &StepReport) -> StopRequest {
        StopRequest::None
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if ends_step(worker) {
            let number = worker.ports.communicators.world().position();
            let record = self.engine.take_record(Rank(number));
            let mut work = self.work[number].lock().unwrap();
            work.steps.push(StepWork {
                multiply_adds: record.operations.total().multiply_adds,
                sent_bytes: record.sent_bytes(),
                sent_messages: record.sent.values().map(|sent| sent.messages).sum(),
            });
            work.peak_bytes = work.peak_bytes.max(record.operations.peak_bytes);
        }
        Ok(())
    }
}

/// The recorded work of each rank of `setup`.
pub fn record(case: &Case, setup: &Setup) -> Vec<Work> {
    let engine = MetaEngine::new(setup.groups());
    let recorder = Recorder { engine, work: setup.mesh.ranks().map(|_| Mutex::default()).collect() };
    let tokens = case.tokens();
    let ports = Ports::new(&tokens, &recorder);
    train::run(setup, &recorder.engine, ports).unwrap();
    recorder.work.into_iter().map(|work| work.into_inner().unwrap()).collect()
}
