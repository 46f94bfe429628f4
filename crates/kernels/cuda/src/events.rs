//! Points in the work of streams: the driver's events for the numbers of [`StreamEvent`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Stream, StreamEvent};
use gpu::{DriverError, EventHandle, Gpu, StreamHandle};

use crate::owned::{Owned, create_event};

/// Points of a stream that are kept. Who waits for an older one waits for the oldest that is kept, which is reached
/// after it.
const KEPT: usize = 256;

/// The points of one stream.
struct Points {
    handle: StreamHandle,
    /// Jobs so far.
    submitted: u64,
    /// Recorded events, each after a number of jobs.
    recorded: VecDeque<(u64, Owned<EventHandle>)>,
}

/// The points of all streams of a rank.
pub(crate) struct Events {
    points: [Points; Stream::COUNT],
    /// An event, and the time of the host when it was reached.
    base: Option<(Owned<EventHandle>, Instant)>,
    /// A failure where no error could be returned.
    failure: Option<DriverError>,
}

impl Events {
    /// No points yet.
    pub fn new(handles: [StreamHandle; Stream::COUNT]) -> Events {
        let points = handles.map(|handle| Points { handle, submitted: 0, recorded: VecDeque::new() });
        Events { points, base: None, failure: None }
    }

    /// Counts a job of `stream`, and returns its number.
    pub fn count(&mut self, stream: Stream) -> u64 {
        let points = &mut self.points[stream.index()];
        points.submitted += 1;
        points.submitted
    }

    /// The point after all jobs of `stream` so far, which is not recorded.
    pub fn last(&self, stream: Stream) -> StreamEvent {
        StreamEvent::new(stream, self.points[stream.index()].submitted)
    }

    /// The point that `stream` has when all its jobs so far have ended.
    pub fn record(&mut self, gpu: &Arc<dyn Gpu>, stream: Stream) -> StreamEvent {
        let points = &mut self.points[stream.index()];
        let number = points.submitted;
        if number > 0
            && points.recorded.back().is_none_or(|(newest, _)| *newest < number)
            && let Err(failure) = points.record(gpu)
        {
            self.failure.get_or_insert(failure);
        }
        StreamEvent::new(stream, number)
    }

    /// Lets `stream` begin what follows after `event`.
    ///
    /// # Errors
    /// The driver's, of this call or of an earlier record.
    pub fn wait(&mut self, gpu: &Arc<dyn Gpu>, stream: Stream, event: StreamEvent) -> Result<(), DriverError> {
        self.failure()?;
        if event.stream() == stream {
            return Ok(());
        }
        let awaited = &self.points[event.stream().index()];
        // Later points include earlier ones.
        let point = awaited.recorded.iter().find(|(number, _)| *number >= event.number());
        match point.filter(|_| event.number() > 0) {
            None => Ok(()),
            Some((_, point)) => {
                let point = point.handle();
                let waiting = &mut self.points[stream.index()];
                waiting.submitted += 1;
                gpu.wait(waiting.handle, point)
            }
        }
    }

    /// When the GPU reached `event`, if it has and the point is kept.
    pub fn reached(&self, gpu: &Arc<dyn Gpu>, event: StreamEvent) -> Option<Instant> {
        let (base, at) = self.base.as_ref()?;
        let recorded = &self.points[event.stream().index()].recorded;
        let (_, point) = recorded.iter().find(|(number, _)| *number == event.number())?;
        if !gpu.is_reached(point.handle()).ok()? {
            return None;
        }
        let elapsed_ms = f64::from(gpu.elapsed_ms(base.handle(), point.handle()).ok()?);
        let apart = Duration::try_from_secs_f64(elapsed_ms.abs() / 1e3).ok()?;
        if elapsed_ms < 0.0 { at.checked_sub(apart) } else { at.checked_add(apart) }
    }

    /// Compares the GPU's clock with the host's. All work has ended.
    ///
    /// # Errors
    /// The driver's, of these calls or of an earlier record.
    pub fn compare_clocks(&mut self, gpu: &Arc<dyn Gpu>) -> Result<(), DriverError> {
        self.failure()?;
        let event = match self.base.take() {
            Some((event, _)) => event,
            None => create_event(gpu)?,
        };
        let stream = self.points[Stream::Compute.index()].handle;
        gpu.record(event.handle(), stream)?;
        gpu.synchronize(stream)?;
        self.base = Some((event, Instant::now()));
        Ok(())
    }

    fn failure(&self) -> Result<(), DriverError> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl Points {
    fn record(&mut self, gpu: &Arc<dyn Gpu>) -> Result<(), DriverError> {
        let event = match self.recorded.len() < KEPT {
            true => None,
            false => self.recorded.pop_front().map(|(_, event)| event),
        };
        let event = event.map_or_else(|| create_event(gpu), Ok)?;
        gpu.record(event.handle(), self.handle)?;
        self.recorded.push_back((self.submitted, event));
        Ok(())
    }
}
