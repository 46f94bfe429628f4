//! A log of everything that a rank enqueues on its streams, and the accesses in it that no wait orders.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use device::{Around, Device, DeviceError, Op, Stream, StreamEvent, Tensor};
use sync::lock;
use train::RankEngine;

use crate::intercepted::{Call, Group, Interceptor, intercept};

/// One thing that was asked of a rank's device or groups.
#[derive(Clone, Debug)]
enum Entry {
    /// An operation or a call.
    Access { stream: Stream, what: String, reads: Vec<Range<usize>>, writes: Vec<Range<usize>> },
    /// An event: how far a stream is.
    Recorded(u64, Stream),
    /// A stream waits for an event.
    Awaited(Stream, u64),
    /// All streams are waited for.
    Synchronized,
}

/// The work that one rank enqueued, in order. Streams are taken to be as independent as devices may make them: whatever
/// no wait orders may happen at the same time.
#[derive(Clone, Debug, Default)]
pub struct StreamLog {
    entries: Arc<Mutex<Vec<Entry>>>,
}

/// By stream, how many of its accesses have ended.
type Ended = [usize; Stream::COUNT];

/// Bytes that are read, or written where the flag says so.
type Access = (String, Range<usize>, bool);

/// The findings of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// Accesses of the same bytes by two streams, of which one writes, that no wait orders.
    pub conflicts: Vec<String>,
    /// Waits by or for the stream in question that order something which nothing before does, by their place in the
    /// log.
    pub waits: Vec<usize>,
}

impl StreamLog {
    /// The same rank, whose work is written into this log.
    pub fn of(&self, rank: RankEngine) -> RankEngine {
        let rank = intercept(rank, LoggedCalls(self.clone()));
        let device = LoggedDevice { inner: rank.device, log: self.clone(), events: RefCell::default() };
        RankEngine { device: Box::new(device), ..rank }
    }

    /// Operations and calls on `stream`.
    pub fn accesses_of(&self, stream: Stream) -> usize {
        let is_of = |entry: &&Entry| matches!(entry, Entry::Access { stream: other, .. } if *other == stream);
        lock(&self.entries).iter().filter(is_of).count()
    }

    /// Goes through the log as if the wait at the place `without` were not there; `stream` is the one whose waits are
    /// reported.
    pub fn replay(&self, stream: Stream, without: Option<usize>) -> Replay {
        let mut replay = Replay::default();
        // By stream: what it knows of all streams, and what it has accessed.
        let mut known = [Ended::default(); Stream::COUNT];
        let mut accesses: [Vec<Access>; Stream::COUNT] = Default::default();
        let mut events: BTreeMap<u64, (Stream, Ended)> = BTreeMap::new();
        for (place, entry) in lock(&self.entries).iter().enumerate() {
            match entry {
                Entry::Recorded(number, of) => {
                    events.insert(*number, (*of, known[of.index()]));
                }
                Entry::Awaited(by, number) => {
                    let Some((of, at)) = events.get(number) else { continue };
                    let joined = latest(known[by.index()], *at);
                    if of != by && [*of, *by].contains(&stream) && joined != known[by.index()] {
                        replay.waits.push(place);
                    }
                    if without != Some(place) {
                        known[by.index()] = joined;
                    }
                }
                Entry::Synchronized => known = [known.into_iter().fold(Ended::default(), latest); Stream::COUNT],
                Entry::Access { stream, what, reads, writes } => {
                    let own = stream.index();
                    let of = |ranges: &[Range<usize>], writes: bool| -> Vec<Access> {
                        ranges.iter().map(|range| (what.clone(), range.clone(), writes)).collect()
                    };
                    for access in [of(reads, false), of(writes, true)].concat() {
                        let others = (0..Stream::COUNT).filter(|other| *other != own);
                        let unordered = others.flat_map(|other| &accesses[other][known[own][other]..]);
                        replay.conflicts.extend(unordered.filter_map(|earlier| conflict(earlier, &access)));
                        accesses[own].push(access);
                    }
                    known[own][own] = accesses[own].len();
                }
            }
        }
        replay
    }

    fn push(&self, entry: Entry) {
        lock(&self.entries).push(entry);
    }

    fn access(&self, stream: Stream, what: &str, reads: &[Tensor], writes: &[Tensor]) {
        let bytes = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.bytes()).collect();
        self.push(Entry::Access { stream, what: what.into(), reads: bytes(reads), writes: bytes(writes) });
    }
}

fn latest(one: Ended, other: Ended) -> Ended {
    std::array::from_fn(|stream| one[stream].max(other[stream]))
}

fn conflict((earlier, at, writes): &Access, (later, place, also_writes): &Access) -> Option<String> {
    let meet = at.start < place.end && place.start < at.end && (*writes || *also_writes);
    meet.then(|| format!("{earlier} of bytes {at:?} and {later} of bytes {place:?}"))
}

struct LoggedCalls(StreamLog);

impl Interceptor for LoggedCalls {
    fn call(&self, _: &dyn Device, group: Group<'_>, stream: Stream, call: Call) -> Result<(), DeviceError> {
        let [reads, writes] = call.operands();
        self.0.access(stream, call.method(), reads.as_slice(), writes.as_slice());
        group.communicator.call(stream, call)
    }
}

struct LoggedDevice {
    inner: Box<dyn Device>,
    log: StreamLog,
    /// The events of the device within, by their number in the log.
    events: RefCell<Vec<StreamEvent>>,
}

impl LoggedDevice {
    fn inner_event(&self, event: StreamEvent) -> Option<StreamEvent> {
        self.events.borrow().get(usize::try_from(event.number()).ok()?).copied()
    }
}

impl Around for LoggedDevice {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let (operands, name) = (op.operands(), op.name());
        let [reads, writes] = [operands.reads().collect::<Vec<_>>(), operands.writes().collect()];
        self.log.access(stream, name, &reads, &writes);
        self.inner.submit(stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.log.access(stream, "upload", &[], &[to]);
        self.inner.upload(stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.log.push(Entry::Synchronized);
        self.inner.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.log.push(Entry::Synchronized);
        self.inner.read(from, to)
    }

    fn record(&self, stream: Stream) -> StreamEvent {
        let mut events = self.events.borrow_mut();
        let event = StreamEvent::new(stream, events.len() as u64);
        events.push(self.inner.record(stream));
        self.log.push(Entry::Recorded(event.number(), stream));
        event
    }

    fn reached(&self, event: StreamEvent) -> Option<Instant> {
        self.inner.reached(self.inner_event(event)?)
    }

    fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        self.log.push(Entry::Awaited(stream, event.number()));
        self.inner_event(event).map_or(Ok(()), |event| self.inner.wait(stream, event))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.log.push(Entry::Synchronized);
        self.inner.synchronize()
    }
}
