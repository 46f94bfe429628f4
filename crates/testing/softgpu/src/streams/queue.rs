//! The work of one stream, in its order.

use std::collections::VecDeque;

use super::clocks::Clock;
use super::graph_run::{GraphRun, Node};
use super::points::Points;
use super::random::Random;
use super::work::Work;

/// The work of one stream, in its order.
#[derive(Debug, Default)]
pub struct Queue {
    items: VecDeque<Entry>,
}

/// Work, and all that the host had waited for when it submitted it.
#[derive(Debug)]
pub struct Entry {
    /// The work.
    pub item: Item,
    /// The work that comes before it.
    pub host: Clock,
    /// Its place among all work of the GPU, in the order in which it was submitted.
    pub place: u64,
}

/// Work that begins when what is in front of it has ended.
#[derive(Debug)]
pub enum Item {
    /// One piece.
    Work(Work),
    Graph(GraphRun),
}

/// The next piece of a stream.
#[derive(Debug)]
pub enum Ready {
    /// It can be run.
    Work(Work, Clock),
    /// A node of the graph in front can be run.
    Node(Node, Work, Clock),
    /// All nodes of a graph have ended; what follows comes after the work of the clock.
    GraphEnded(Clock),
    /// A point of another stream comes first.
    Waits,
    /// There is none.
    Empty,
}

impl Queue {
    /// Adds work at the end.
    pub fn push(&mut self, entry: Entry) {
        self.items.push_back(entry);
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether all work has ended.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The graph in front.
    pub fn graph(&mut self) -> Option<&mut GraphRun> {
        match self.items.front_mut().map(|entry| &mut entry.item) {
            Some(Item::Graph(graph)) => Some(graph),
            Some(Item::Work(_)) | None => None,
        }
    }

    /// Whether the work in front is a kernel that runs already, and waits for other GPUs.
    pub fn has_begun(&self) -> bool {
        self.items.front().is_some_and(|entry| matches!(entry.item, Item::Work(Work::Remote { .. })))
    }

    /// The place of the first work that has not begun.
    pub fn held_from(&self) -> Option<u64> {
        self.items.get(usize::from(self.has_begun())).map(|entry| entry.place)
    }

    /// Whether [`Queue::take`] returns work.
    pub fn is_ready(&self, points: &Points) -> bool {
        match self.items.front().map(|entry| &entry.item) {
            None => false,
            Some(Item::Work(Work::Wait(point) | Work::Remote { until: point, .. })) => points.reached(*point).is_some(),
            Some(Item::Work(_) | Item::Graph(..)) => true,
        }
    }

    /// Takes the next piece of work.
    pub fn take(&mut self, points: &Points, random: &mut Random) -> Ready {
        let Some(Entry { item, host, .. }) = self.items.front_mut() else { return Ready::Empty };
        match item {
            Item::Work(Work::Wait(point) | Work::Remote { until: point, .. }) if points.reached(*point).is_none() => {
                Ready::Waits
            }
            Item::Work(_) => match self.items.pop_front() {
                Some(Entry { item: Item::Work(work), host, .. }) => Ready::Work(work, host),
                _ => Ready::Empty,
            },
            Item::Graph(graph) => {
                if let Some((node, work)) = graph.next(random) {
                    return Ready::Node(node, work, host.clone());
                }
                let after = graph.after();
                self.items.pop_front();
                Ready::GraphEnded(after)
            }
        }
    }
}
