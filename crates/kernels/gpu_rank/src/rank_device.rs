//! The device of a rank some of whose streams have threads of the host: what waits for other ranks there must not keep
//! the rank's own thread from submitting.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use device::{Device, DeviceError, KeptTimes, Op, Stream, StreamEvent, StreamQueues, Tensor};
use sync::lock;

use crate::nccl::NcclRank;
use crate::rank_streams::{QueueOrder, RankStreams};

/// Points of a stream that are kept: those of a step of any usual size. Who waits for an older one waits for the oldest
/// that is kept, which is reached after it.
const KEPT_POINTS: usize = 1 << 12;

/// Points of the streams with threads: jobs of the thread, each with the device's event when it had ended.
type Points = [Mutex<VecDeque<(u64, StreamEvent)>>; Stream::COUNT];

/// Submits to a [`cuda::CudaDevice`]: work of streams with a thread on that thread, in order, and all other work at
/// once.
pub struct RankDevice {
    streams: RankStreams,
    queues: Arc<StreamQueues>,
    points: Arc<Points>,
    /// NCCL, where some groups use it.
    nccl: Option<Arc<NcclRank>>,
}

impl RankDevice {
    /// The device of `streams`, whose `queues` have the threads. With one queue of the device there are no threads.
    pub fn new(streams: RankStreams, queues: Arc<StreamQueues>) -> RankDevice {
        let has_threads = Stream::ALL.iter().any(|stream| queues.of(*stream).is_some());
        assert!(streams.order == QueueOrder::PerStream || !has_threads, "one queue is that of the rank's own thread");
        RankDevice { streams, queues, points: Arc::default(), nccl: None }
    }

    /// The same device, whose reads fail where NCCL has cancelled work that they would read the result of.
    #[must_use]
    pub fn with_nccl(self, nccl: Arc<NcclRank>) -> RankDevice {
        RankDevice { nccl: Some(nccl), ..self }
    }

    fn check(&self) -> Result<(), DeviceError> {
        self.nccl.as_ref().map_or(Ok(()), |nccl| nccl.check())
    }

    fn device(&self) -> &dyn Device {
        &*self.streams.device
    }

    fn is_queued(&self, stream: Stream) -> bool {
        self.queues.of(stream).is_some()
    }

    /// The device's event of a point. The thread of its stream, where it has one, has ended its jobs until then.
    fn event(points: &Points, event: StreamEvent, is_queued: bool) -> Option<StreamEvent> {
        if !is_queued {
            return Some(event);
        }
        let points = lock(&points[event.stream().index()]);
        points.iter().find(|(number, _)| *number >= event.number()).map(|(_, event)| *event)
    }
}

impl Device for RankDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        if !self.is_queued(stream) {
            return self.streams.named(self.device().submit(self.streams.order.stream(stream), op));
        }
        let (device, op) = (Arc::clone(&self.streams.device), *op);
        self.streams.on(&self.queues, stream, move || device.submit(stream, &op))
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        if !self.is_queued(stream) {
            return self.streams.named(self.device().upload(self.streams.order.stream(stream), to, from));
        }
        let (device, bytes) = (Arc::clone(&self.streams.device), from.to_vec());
        self.streams.on(&self.queues, stream, move || device.upload(stream, to, &bytes))
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.queues.synchronize()?;
        self.streams.named(self.device().write(to, from))
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.queues.synchronize()?;
        self.streams.named(self.device().read(from, to))?;
        self.check()
    }

    fn record(&self, stream: Stream) -> StreamEvent {
        let Some(queue) = self.queues.of(stream) else {
            return self.device().record(self.streams.order.stream(stream));
        };
        let (device, points) = (Arc::clone(&self.streams.device), Arc::clone(&self.points));
        // Only the rank's own thread submits, so this is the number of the job below.
        let number = queue.submitted() + 1;
        queue.submit(Box::new(move || {
            let event = device.record(stream);
            let mut points = lock(&points[stream.index()]);
            if points.len() == KEPT_POINTS {
                points.pop_front();
            }
            points.push_back((number, event));
            Ok(())
        }));
        StreamEvent::new(stream, number)
    }

    fn reached(&self, event: StreamEvent) -> Option<Instant> {
        let event = RankDevice::event(&self.points, event, self.is_queued(event.stream()))?;
        self.device().reached(event)
    }

    fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        if event.stream() == self.streams.order.stream(stream) {
            return Ok(());
        }
        // The host first: what the awaited stream's thread has not submitted yet has no event of the device.
        let is_queued = self.is_queued(event.stream());
        if is_queued {
            self.queues.wait(stream, event)?;
        } else {
            self.streams.named(self.streams.device.launch_until(event))?;
        }
        let (device, points) = (Arc::clone(&self.streams.device), Arc::clone(&self.points));
        let stream_of_device = self.streams.order.stream(stream);
        self.streams.on(&self.queues, stream, move || match RankDevice::event(&points, event, is_queued) {
            None => Ok(()),
            Some(event) => device.wait(stream_of_device, event),
        })
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.queues.synchronize()?;
        self.streams.named(self.device().synchronize())?;
        self.check()
    }

    fn keep_times(&self, times: KeptTimes) {
        self.device().keep_times(times);
    }
}
