//! The order of work: vector clocks over streams.

use std::collections::{BTreeMap, HashMap};

use gpu::StreamHandle;

/// Bits of a work's number that name its stream.
const STREAM_BITS: u32 = 8;

/// For each stream, the last work that comes before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(BTreeMap<u32, u32>);

impl Clock {
    /// Adds the work that comes before `other`.
    pub fn join(&mut self, other: &Clock) {
        for (stream, work) in &other.0 {
            let known = self.0.entry(*stream).or_default();
            *known = (*known).max(*work);
        }
    }

    fn of(&self, stream: u32) -> u32 {
        self.0.get(&stream).copied().unwrap_or(0)
    }
}

/// The clocks of all streams.
#[derive(Debug, Default)]
pub struct Clocks {
    streams: HashMap<StreamHandle, Clock>,
    /// Streams by the number that work carries. More than 256 streams share numbers, and count as one then.
    names: Vec<StreamHandle>,
    numbers: HashMap<StreamHandle, u32>,
    /// Work that has run.
    count: u32,
    last: BTreeMap<u32, u32>,
    /// The work that the host has waited for.
    host: Clock,
}

impl Clocks {
    /// The work that comes before the next work of a stream.
    pub fn of(&self, stream: StreamHandle) -> Clock {
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    /// The work that comes before all that the host submits now.
    pub fn host(&self) -> Clock {
        self.host.clone()
    }

    /// The host has seen that the work of a clock has ended.
    pub fn host_waits(&mut self, clock: &Clock) {
        self.host.join(clock);
    }

    /// A stream waits for the work of a clock.
    pub fn wait(&mut self, stream: StreamHandle, clock: &Clock) {
        self.streams.entry(stream).or_default().join(clock);
    }

    /// The next work of a stream begins.
    pub fn begin(&mut self, stream: StreamHandle) -> WorkOrder {
        let next = self.names.len() as u32;
        let index = *self.numbers.entry(stream).or_insert(next);
        if index == next {
            self.names.push(stream);
        }
        let slot = index % (1 << STREAM_BITS);
        self.count += 1;
        let number = self.count << STREAM_BITS | slot;
        let clock = self.streams.entry(stream).or_default();
        clock.0.insert(slot, number);
        let clock = clock.clone();
        let unknown = self.last.iter().filter(|(stream, last)| clock.of(**stream) < **last);
        let limit = unknown.map(|(stream, _)| clock.of(*stream)).min().unwrap_or(number);
        self.last.insert(slot, number);
        WorkOrder { number, limit, clock, names: self.names.clone() }
    }
}

/// A piece of work among all others.
#[derive(Clone, Debug, Default)]
pub struct WorkOrder {
    /// Its number. Numbers grow as work runs.
    pub number: u32,
    /// All work up to this number comes before.
    limit: u32,
    clock: Clock,
    names: Vec<StreamHandle>,
}

impl WorkOrder {
    /// Whether a work that has run comes before this one in every schedule.
    pub fn follows(&self, work: u32) -> bool {
        work <= self.limit || self.clock.of(work % (1 << STREAM_BITS)) >= work
    }

    /// The stream of a work.
    pub fn stream(&self, work: u32) -> Option<StreamHandle> {
        self.names.get((work % (1 << STREAM_BITS)) as usize).copied()
    }
}
