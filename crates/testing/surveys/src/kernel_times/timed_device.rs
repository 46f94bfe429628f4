//! A device that keeps the operations of each step with their times.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use device::{Around, Device, DeviceError, Op, Stream, StreamEvent, Tensor};
use sync::lock;

/// Operations between two waits for the device, which keeps the times of its last points only; fewer in later steps, so
/// that other operations of each step are the first after a wait.
const BETWEEN_WAITS: usize = 61;

/// An operation of the stream of computation.
#[derive(Clone, Debug)]
pub struct TimedOp {
    /// The operation.
    pub op: Op,
    /// From the end of the operation before to its own end. `None` where the device keeps no time, and for the first
    /// operation after a wait.
    pub time: Option<Duration>,
}

/// The operations of each step, in order. The first step includes those before it.
pub type Steps = Vec<Vec<TimedOp>>;

/// The times that a device has kept.
#[derive(Default)]
pub struct Noted {
    /// All steps so far.
    pub steps: Steps,
    /// Points after the last operations of the last step.
    pending: Vec<StreamEvent>,
}

/// Wraps the device of a run's only rank.
pub struct TimedDevice {
    inner: Box<dyn Device>,
    noted: Arc<Mutex<Noted>>,
}

impl TimedDevice {
    /// `inner`, whose operations are kept in `noted`.
    pub fn new(inner: Box<dyn Device>, noted: &Arc<Mutex<Noted>>) -> TimedDevice {
        TimedDevice { inner, noted: Arc::clone(noted) }
    }

    /// Waits for the device and gives the last operations their times.
    fn resolve(&self, noted: &mut Noted) -> Result<(), DeviceError> {
        self.inner.synchronize()?;
        let ends: Vec<Option<Instant>> = noted.pending.drain(..).map(|event| self.inner.reached(event)).collect();
        let Some(step) = noted.steps.last_mut() else { return Ok(()) };
        let first = step.len() - ends.len();
        for (index, pair) in ends.windows(2).enumerate() {
            if let [Some(before), Some(end)] = pair {
                step[first + index + 1].time = end.checked_duration_since(*before);
            }
        }
        Ok(())
    }
}

impl Around for TimedDevice {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        self.inner.submit(stream, op)?;
        if stream != Stream::Compute {
            return Ok(());
        }
        let mut noted = lock(&self.noted);
        if noted.steps.is_empty() {
            noted.steps.push(vec![]);
        }
        if let Some(step) = noted.steps.last_mut() {
            step.push(TimedOp { op: *op, time: None });
        }
        noted.pending.push(self.inner.record(stream));
        if noted.pending.len() >= BETWEEN_WAITS.saturating_sub(noted.steps.len()).max(2) {
            self.resolve(&mut noted)
        } else {
            Ok(())
        }
    }

    /// A batch that is uploaded after an update of weights begins a step.
    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        let mut noted = lock(&self.noted);
        let is_updated = |step: &Vec<TimedOp>| step.iter().any(|timed| matches!(timed.op, Op::AdamW { .. }));
        if noted.steps.last().is_some_and(is_updated) {
            self.resolve(&mut noted)?;
            noted.steps.push(vec![]);
        }
        self.inner.upload(stream, to, from)
    }
}
