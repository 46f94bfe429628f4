//! A graph that a stream runs, with the order of its nodes.

use std::sync::Arc;

use super::capture::Graph;
use super::clocks::Clock;
use super::random::Random;
use super::work::Work;

/// A launch of a graph.
#[derive(Debug)]
pub struct GraphRun {
    graph: Arc<Graph>,
    chains: Vec<usize>,
    has_begun: Vec<bool>,
    /// The work that comes before what follows each node.
    ended: Vec<Option<Clock>>,
    /// The work that comes before the graph, once it has begun.
    start: Option<Clock>,
}

/// A node that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number in the graph.
    pub number: usize,
    /// Its chain; other chains are in any order where no edge orders them.
    pub chain: usize,
}

impl GraphRun {
    /// A launch that has not begun.
    pub fn new(graph: Arc<Graph>) -> GraphRun {
        let (chains, nodes) = (graph.chains(), graph.len());
        GraphRun { graph, chains, has_begun: vec![false; nodes], ended: vec![None; nodes], start: None }
    }

    /// A node that can run, drawn among them; `None` after the last one.
    pub fn next(&mut self, random: &mut Random) -> Option<(Node, Work)> {
        let ready = self.graph.ready(&self.has_begun);
        let number = *ready.get(random.below(ready.len()))?;
        self.has_begun[number] = true;
        Some((Node { number, chain: self.chains[number] }, self.graph.work(number)))
    }

    /// The work that comes before a node of a graph that `stream` runs.
    pub fn before(&mut self, node: Node, stream: &Clock) -> Clock {
        let mut clock = self.start.get_or_insert_with(|| stream.clone()).clone();
        for before in self.graph.predecessors(node.number) {
            if let Some(ended) = &self.ended[*before] {
                clock.join(ended);
            }
        }
        clock
    }

    /// A node has ended, and what follows it comes after the work of `clock`.
    pub fn end(&mut self, node: Node, clock: Clock) {
        self.ended[node.number] = Some(clock);
    }

    /// The work that comes before what follows the graph.
    pub fn after(&self) -> Clock {
        let mut after = Clock::default();
        for clock in self.start.iter().chain(self.ended.iter().flatten()) {
            after.join(clock);
        }
        after
    }
}
