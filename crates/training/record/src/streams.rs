//! The order in which a function of a unit enqueues its work, where it uses several streams.

use std::cell::RefCell;
use std::rc::Rc;

use comm::{CollectiveCall, MetaCommunicator};
use device::{Around, Call, Communicator, Device, DeviceError, MetaDevice, Op, Stream, StreamEvent};

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

impl Around for OrderedDevice {
    fn inner(&self) -> &dyn Device {
        &self.inner
    }

    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        op.unfused().try_for_each(|op| {
            self.log.push(Enqueued::Operation(stream));
            self.inner.submit(stream, &op)
        })
    }

    fn record(&self, stream: Stream) -> StreamEvent {
        let number = self.log.order.borrow().len();
        let event = StreamEvent::new(stream, number as u64);
        self.log.push(Enqueued::Recorded(event));
        event
    }

    fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        self.log.push(Enqueued::Awaited(stream, event));
        Ok(())
    }
}

/// A recording group whose calls are kept in the order of all work.
pub(crate) struct OrderedGroup {
    pub(crate) inner: MetaCommunicator,
    pub(crate) log: Rc<Log>,
}

impl Communicator for OrderedGroup {
    fn size(&self) -> usize {
        self.inner.size()
    }

    fn position(&self) -> usize {
        self.inner.position()
    }

    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        self.inner.call(stream, call)?;
        let mut collectives = self.log.collectives.borrow_mut();
        for call in self.inner.take_calls() {
            self.log.push(Enqueued::Collective(stream, collectives.len()));
            collectives.push(call);
        }
        Ok(())
    }
}
