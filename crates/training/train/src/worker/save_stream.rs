//! The end that a rank has of the thread that saves its state.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use checkpoint::{CheckpointFolder, RunState};
use config::Unit;
use device::DeviceError;
use program::{Value, Values};

/// A thread that gets stuck longer than this ends the run.
const DEADLINE: Duration = Duration::from_secs(600);

/// A rank's end of the thread that saves its state.
pub struct SaveStream {
    tasks: Sender<SaveTask>,
    done: Receiver<Unit>,
    /// Units whose state is still to be read.
    pending: Vec<(Unit, Values)>,
    waited: Duration,
}

/// A request of a rank to the thread.
pub(crate) enum SaveTask {
    Begin(Box<RunState>, CheckpointFolder),
    Save(Unit),
    Finish,
}

impl SaveStream {
    /// An end, and the two of its thread: where that takes tasks, and where it tells which units it has read.
    pub(crate) fn new() -> (SaveStream, Receiver<SaveTask>, Sender<Unit>) {
        let ((tasks, taken), (tell, done)) = (channel(), channel());
        (SaveStream { tasks, done, pending: vec![], waited: Duration::ZERO }, taken, tell)
    }

    /// Waits until nothing is still to be read that an instruction is about to write.
    ///
    /// # Errors
    /// A thread that makes no progress.
    pub(crate) fn wait_for_readers(&mut self, written: &Values) -> Result<(), DeviceError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        let is_written = |value: &Value| written.as_slice().contains(value);
        while let Some((unit, _)) = self.pending.iter().find(|(_, read)| read.as_slice().iter().any(is_written)) {
            match self.done.recv_timeout(DEADLINE) {
                Ok(unit) => self.pending.retain(|(pending, _)| *pending != unit),
                Err(error) => return Err(stuck(*unit, error)),
            }
        }
        self.waited += started.elapsed();
        Ok(())
    }

    /// How long instructions have waited so far.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// From now on the thread reads the state of `unit`, the values `read`.
    pub(crate) fn save(&mut self, unit: Unit, read: Values) -> Result<(), DeviceError> {
        self.pending.push((unit, read));
        self.send(SaveTask::Save(unit))
    }

    /// A checkpoint of `state` in `folder` begins.
    pub(crate) fn begin(&mut self, state: RunState, folder: &CheckpointFolder) -> Result<(), DeviceError> {
        // A unit whose state of the checkpoint before is still to be read would otherwise count as read when that is.
        while let Some((unit, _)) = self.pending.first() {
            let done = self.done.recv_timeout(DEADLINE).map_err(|error| stuck(*unit, error))?;
            self.pending.retain(|(pending, _)| *pending != done);
        }
        self.send(SaveTask::Begin(Box::new(state), folder.clone()))
    }

    /// All units of it have been named.
    pub(crate) fn finish(&mut self) -> Result<(), DeviceError> {
        self.send(SaveTask::Finish)
    }

    fn send(&self, task: SaveTask) -> Result<(), DeviceError> {
        let ended = |_| DeviceError::Storage { what: "the run".into(), reason: "its thread has ended".into() };
        self.tasks.send(task).map_err(ended)
    }
}

fn stuck(unit: Unit, error: RecvTimeoutError) -> DeviceError {
    let reason = match error {
        RecvTimeoutError::Timeout => format!("it has not read it for {} s", DEADLINE.as_secs()),
        RecvTimeoutError::Disconnected => "its thread has ended".into(),
    };
    DeviceError::Storage { what: unit.to_string(), reason }
}
