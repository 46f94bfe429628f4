//! The order in which a function of a unit enqueues its work, where it uses several streams.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use comm::{CollectiveCall, MetaCommunicator};
use device::{Communicator, Device, DeviceError, MetaDevice, Op, Reduction, Stream, StreamEvent, SumTree, Tensor};

/// One thing that was asked of a device or of a group, in the order in which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The next operation of [`device::Record::submitted`].
    Operation(Stream),
    /// A collective: an index of [`UnitRecord::collectives`](crate::UnitRecord::collectives).
    Collective(Stream, usize),
    /// The point of a stream when everything before has ended; events have numbers of their own.
    Recorded(StreamEvent),
    /// Later work of the stream begins after the event.
    Awaited(Stream, StreamEvent),
}

impl Enqueued {
    /// The stream whose work it is.
    pub fn stream(self) -> Stream {
        match self {
            Enqueued::Operation(stream) | Enqueued::Collective(stream, _) | Enqueued::Awaited(stream, _) => stream,
            Enqueued::Recorded(event) => event.stream(),
        }
    }
}

/// The work that the device and the groups of one function were asked for so far.
#[derive(Debug, Default)]
pub(crate) struct Log {
    order: RefCell<Vec<Enqueued>>,
    collectives: RefCell<Vec<CollectiveCall>>,
}

impl Log {
    /// The collectives, and the order of everything where something is on another stream than the one that computes.
    pub(crate) fn take(&self) -> (Vec<CollectiveCall>, Vec<Enqueued>) {
        let (collectives, order) = (self.collectives.take(), self.order.take());
        let is_in_line = order.iter().all(|enqueued| enqueued.stream() == Stream::Compute);
        (collectives, if is_in_line { vec![] } else { order })
    }

    fn push(&self, enqueued: Enqueued) {
        self.order.borrow_mut().push(enqueued);
    }
}

/// A recording device that keeps the order of its work.
pub(crate) struct OrderedDevice {
    pub(crate) inner: MetaDevice,
    pub(crate) log: Rc<Log>,
}

impl Device for OrderedDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        op.unfused().try_for_each(|op| {
            self.log.push(Enqueued::Operation(stream));
            self.inner.submit(stream, &op)
        })
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.upload(stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(from, to)
    }

    fn record(&self, stream: Stream) -> StreamEvent {
        let number = self.log.order.borrow().len();
        let event = StreamEvent::new(stream, number as u64);
        self.log.push(Enqueued::Recorded(event));
        event
    }

    fn reached(&self, event: StreamEvent) -> Option<Instant> {
        self.inner.reached(event)
    }

    fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        self.log.push(Enqueued::Awaited(stream, event));
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.inner.synchronize()
    }
}

/// A recording group whose calls are kept in the order of all work.
pub(crate) struct OrderedGroup {
    pub(crate) inner: MetaCommunicator,
    pub(crate) log: Rc<Log>,
}

impl OrderedGroup {
    fn on(
        &self,
        stream: Stream,
        call: impl FnOnce(&MetaCommunicator) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        call(&self.inner)?;
        let mut collectives = self.log.collectives.borrow_mut();
        for call in self.inner.take_calls() {
            self.log.push(Enqueued::Collective(stream, collectives.len()));
            collectives.push(call);
        }
        Ok(())
    }
}

impl Communicator for OrderedGroup {
    fn size(&self) -> usize {
        self.inner.size()
    }

    fn position(&self) -> usize {
        self.inner.position()
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.on(stream, |group| group.all_reduce(stream, x, reduction))
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        self.on(stream, |group| group.reduce_scatter(stream, x, tree))
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, |group| group.all_gather(stream, x))
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.on(stream, |group| group.all_to_all(stream, from, to))
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.on(stream, |group| group.shift(stream, from, to))
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, |group| group.send(stream, to, tag, x))
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, |group| group.receive(stream, from, tag, x))
    }
}
