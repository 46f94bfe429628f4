//! The order of work: vector clocks over streams and over the chains of graphs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use gpu::StreamHandle;

use super::work_log::Used;

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

/// Whose work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A stream's.
    Stream(StreamHandle),
    /// The work of a chain of nodes of a graph, which a stream launched.
    Chain(StreamHandle, usize),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Stream(stream) => write!(f, "stream {}", stream.0),
            Origin::Chain(stream, chain) => write!(f, "branch {chain} of a graph of stream {}", stream.0),
        }
    }
}

/// The clocks of all streams, and of the chains of graphs that run.
#[derive(Debug, Default)]
pub struct Clocks {
    origins: HashMap<Origin, Clock>,
    /// Origins by the number that work carries. More than 256 share numbers, and count as one then.
    names: Vec<Origin>,
    numbers: HashMap<Origin, u32>,
    /// Work that has run.
    count: u32,
    last: BTreeMap<u32, u32>,
    /// The work that the host has waited for.
    host: Clock,
}

impl Clocks {
    /// The work that comes before the next work of an origin.
    pub fn of(&self, origin: Origin) -> Clock {
        self.origins.get(&origin).cloned().unwrap_or_default()
    }

    /// The next work of an origin comes after that of a clock, and no other.
    pub fn set(&mut self, origin: Origin, clock: Clock) {
        self.origins.insert(origin, clock);
    }

    /// The work that comes before all that the host submits now.
    pub fn host(&self) -> Clock {
        self.host.clone()
    }

    /// The host has seen that the work of a clock has ended.
    pub fn host_waits(&mut self, clock: &Clock) {
        self.host.join(clock);
    }

    /// An origin waits for the work of a clock.
    pub fn wait(&mut self, origin: Origin, clock: &Clock) {
        self.origins.entry(origin).or_default().join(clock);
    }

    /// The next work of an origin begins.
    pub fn begin(&mut self, origin: Origin) -> WorkOrder {
        let next = self.names.len() as u32;
        let index = *self.numbers.entry(origin).or_insert(next);
        if index == next {
            self.names.push(origin);
        }
        let slot = index % (1 << STREAM_BITS);
        self.count += 1;
        let number = self.count << STREAM_BITS | slot;
        let clock = self.origins.entry(origin).or_default();
        clock.0.insert(slot, number);
        let clock = clock.clone();
        let unknown = self.last.iter().filter(|(slot, last)| clock.of(**slot) < **last);
        let limit = unknown.map(|(slot, _)| clock.of(*slot)).min().unwrap_or(number);
        self.last.insert(slot, number);
        WorkOrder { number, limit, clock, names: self.names.clone(), used: Used::default() }
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
    names: Vec<Origin>,
    /// The earlier work whose memory it has used.
    pub used: Used,
}

impl WorkOrder {
    /// Whether a work that has run comes before this one in every schedule.
    pub fn follows(&self, work: u32) -> bool {
        work <= self.limit || self.clock.of(work % (1 << STREAM_BITS)) >= work
    }

    /// Whose work it is.
    pub fn origin(&self, work: u32) -> Option<Origin> {
        self.names.get((work % (1 << STREAM_BITS)) as usize).copied()
    }
}
