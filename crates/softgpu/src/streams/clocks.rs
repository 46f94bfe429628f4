//! Which work comes before which: vector clocks over streams.

use std::collections::{BTreeMap, HashMap};

use gpu::StreamHandle;

/// For each stream, the last work that comes before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(BTreeMap<StreamHandle, u32>);

impl Clock {
    /// What comes before either.
    pub fn join(&mut self, other: &Clock) {
        for (stream, work) in &other.0 {
            let known = self.0.entry(*stream).or_default();
            *known = (*known).max(*work);
        }
    }

    fn of(&self, stream: StreamHandle) -> u32 {
        self.0.get(&stream).copied().unwrap_or(0)
    }
}

/// The clocks of all streams.
#[derive(Debug, Default)]
pub struct Clocks {
    streams: HashMap<StreamHandle, Clock>,
    /// The stream of each work that has run, from number 1 on.
    work: Vec<StreamHandle>,
    last: BTreeMap<StreamHandle, u32>,
    /// What the host has waited for.
    host: Clock,
}

impl Clocks {
    /// What comes before the next work of a stream.
    pub fn of(&self, stream: StreamHandle) -> Clock {
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    /// What comes before whatever the host submits now.
    pub fn host(&self) -> Clock {
        self.host.clone()
    }

    /// The host has seen that a stream's work has ended.
    pub fn host_waits(&mut self, clock: &Clock) {
        self.host.join(clock);
    }

    /// A stream waits for what is in `clock`.
    pub fn wait(&mut self, stream: StreamHandle, clock: &Clock) {
        self.streams.entry(stream).or_default().join(clock);
    }

    /// The next work of a stream begins.
    pub fn begin(&mut self, stream: StreamHandle) -> WorkOrder {
        self.work.push(stream);
        let number = self.work.len() as u32;
        let clock = self.streams.entry(stream).or_default();
        clock.0.insert(stream, number);
        let clock = clock.clone();
        let unknown = self.last.iter().filter(|(stream, last)| clock.of(**stream) < **last);
        let limit = unknown.map(|(stream, _)| clock.of(*stream)).min().unwrap_or(number);
        self.last.insert(stream, number);
        // The list is copied only where some work is unordered.
        let streams = if limit < number { self.work.clone() } else { vec![] };
        WorkOrder { number, limit, clock, streams }
    }
}

/// A piece of work among all others.
#[derive(Clone, Debug, Default)]
pub struct WorkOrder {
    /// Its number: work is numbered as it runs.
    pub number: u32,
    /// All work up to this number comes before.
    limit: u32,
    clock: Clock,
    streams: Vec<StreamHandle>,
}

impl WorkOrder {
    /// Whether a work that has run comes before this one in every schedule.
    pub fn is_behind(&self, work: u32) -> bool {
        work <= self.limit || self.stream(work).is_none_or(|stream| self.clock.of(stream) >= work)
    }

    /// The stream of a work.
    pub fn stream(&self, work: u32) -> Option<StreamHandle> {
        self.streams.get((work as usize).checked_sub(1)?).copied()
    }
}
