//! Hardware queues: streams share a few, and work that cannot begin holds up all that came to its queue later.
//!
//! NVIDIA publishes neither how streams are dealt to queues nor when one holds up another. This is the strict reading
//! of "no guarantee that two streams progress independently": the first work of a queue that waits holds up the rest,
//! and a kernel that runs holds up nothing but its own stream.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;

use gpu::StreamHandle;

use super::points::Points;
use super::queue::Queue;

/// When a stream gets its hardware queue. Each gets the next one, round and round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// When it is created.
    AtCreation,
    /// At its first work.
    AtFirstWork,
}

/// The hardware queues of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareQueues {
    /// How many.
    pub number: NonZeroUsize,
    /// Which stream has which.
    pub deal: Deal,
}

/// Streams with their hardware queues.
#[derive(Debug)]
pub struct DealtQueues {
    /// None where each stream has a queue of its own.
    queues: Option<HardwareQueues>,
    /// None of a stream that stands in for other GPUs.
    of_stream: HashMap<StreamHandle, Option<usize>>,
    dealt: usize,
}

impl DealtQueues {
    /// No stream yet.
    pub fn new(queues: Option<HardwareQueues>) -> DealtQueues {
        DealtQueues { queues, of_stream: HashMap::new(), dealt: 0 }
    }

    /// A stream has come to `moment`.
    pub fn deal(&mut self, stream: StreamHandle, moment: Deal) {
        let Some(queues) = self.queues.filter(|queues| queues.deal == moment) else { return };
        if let std::collections::hash_map::Entry::Vacant(place) = self.of_stream.entry(stream) {
            place.insert(Some(self.dealt % queues.number));
            self.dealt += 1;
        }
    }

    /// Gives a stream no queue.
    pub fn keep_outside(&mut self, stream: StreamHandle) {
        self.of_stream.insert(stream, None);
    }

    fn of(&self, stream: StreamHandle) -> Option<usize> {
        self.of_stream.get(&stream).copied().flatten()
    }

    /// The streams whose next work can begin.
    pub fn ready(&self, streams: &BTreeMap<StreamHandle, Queue>, points: &Points) -> Vec<StreamHandle> {
        let fronts = self.fronts(streams);
        let is_ready = |(stream, queue): &(&StreamHandle, &Queue)| {
            let front = self.of(**stream).and_then(|own| fronts.get(&own));
            let is_held_up = || front.zip(queue.held_from()).is_some_and(|(front, own)| *front < own);
            queue.is_ready(points) && (queue.has_begun() || !is_held_up())
        };
        streams.iter().filter(is_ready).map(|(stream, _)| *stream).collect()
    }

    /// The place of the first work of each hardware queue that has not begun.
    fn fronts(&self, streams: &BTreeMap<StreamHandle, Queue>) -> BTreeMap<usize, u64> {
        let mut fronts = BTreeMap::new();
        for (stream, queue) in streams {
            let (Some(own), Some(place)) = (self.of(*stream), queue.held_from()) else { continue };
            let front = fronts.entry(own).or_insert(place);
            *front = (*front).min(place);
        }
        fronts
    }
}
