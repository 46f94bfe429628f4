//! Work that is captured instead of run, with what it comes after.

use std::collections::{HashMap, HashSet};

use gpu::{EventHandle, StreamHandle};

use super::work::Work;

/// Captured work.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    work: Work,
    predecessors: Vec<usize>,
}

impl Graph {
    /// Adds work that comes after earlier nodes.
    pub fn add(&mut self, work: Work, predecessors: Vec<usize>) {
        self.nodes.push(Node { work, predecessors });
    }

    /// Gives a node other work; `false` where there is no such node.
    pub fn replace(&mut self, node: usize, work: Work) -> bool {
        let found = self.nodes.get_mut(node);
        found.map(|node| node.work = work).is_some()
    }

    /// A graph's nodes that can be run, if those of `has_ended` have ended.
    pub fn ready(&self, has_ended: &[bool]) -> Vec<usize> {
        let is_ready =
            |node: &usize| !has_ended[*node] && self.nodes[*node].predecessors.iter().all(|before| has_ended[*before]);
        (0..self.nodes.len()).filter(is_ready).collect()
    }

    /// The work of a node.
    pub fn work(&self, node: usize) -> Work {
        self.nodes[node].work.clone()
    }

    /// The nodes that a node comes after.
    pub fn predecessors(&self, node: usize) -> &[usize] {
        &self.nodes[node].predecessors
    }

    /// The chain of each node: one after the other within a chain, and chains in any order where no edge orders them.
    /// The first node that comes after another one continues its chain.
    pub fn chains(&self) -> Vec<usize> {
        let mut chains: Vec<usize> = vec![];
        let mut last_of_chain: Vec<usize> = vec![];
        for (index, node) in self.nodes.iter().enumerate() {
            let continued = node.predecessors.iter().find(|before| last_of_chain[chains[**before]] == **before);
            let chain = continued.map_or(last_of_chain.len(), |before| chains[*before]);
            last_of_chain.resize(last_of_chain.len().max(chain + 1), index);
            last_of_chain[chain] = index;
            chains.push(chain);
        }
        chains
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// A capture that has not ended.
#[derive(Clone, Debug)]
pub struct Capture {
    graph: Graph,
    /// The stream on which it began.
    origin: StreamHandle,
    /// Nodes that the next work of each stream comes after.
    fronts: HashMap<StreamHandle, Vec<usize>>,
    /// The same for events.
    events: HashMap<EventHandle, Vec<usize>>,
}

impl Capture {
    /// A capture that begins on `origin`.
    pub fn new(origin: StreamHandle) -> Capture {
        Capture { graph: Graph::default(), origin, fronts: HashMap::from([(origin, vec![])]), events: HashMap::new() }
    }

    /// Whether the work of a stream is captured.
    pub fn has_stream(&self, stream: StreamHandle) -> bool {
        self.fronts.contains_key(&stream)
    }

    /// The stream on which it began.
    pub fn origin(&self) -> StreamHandle {
        self.origin
    }

    /// Whether an event was recorded in it.
    pub fn has_event(&self, event: EventHandle) -> bool {
        self.events.contains_key(&event)
    }

    /// Adds work of a stream.
    pub fn add(&mut self, stream: StreamHandle, work: Work) {
        let node = self.graph.nodes.len();
        let predecessors = self.fronts.insert(stream, vec![node]).unwrap_or_default();
        self.graph.add(work, predecessors);
    }

    /// An event is for what a stream has done so far.
    pub fn record(&mut self, event: EventHandle, stream: StreamHandle) {
        let front = self.fronts.get(&stream).cloned().unwrap_or_default();
        self.events.insert(event, front);
    }

    /// The next work of a stream comes after an event, too.
    pub fn wait(&mut self, stream: StreamHandle, event: EventHandle) {
        let predecessors = self.events.get(&event).cloned().unwrap_or_default();
        let front = self.fronts.entry(stream).or_default();
        front.extend(predecessors);
        front.sort_unstable();
        front.dedup();
    }

    /// The graph; an error with the number of nodes that the origin does not wait for.
    pub fn end(self) -> Result<Graph, usize> {
        let mut seen = HashSet::new();
        let mut open = self.fronts.get(&self.origin).cloned().unwrap_or_default();
        while let Some(node) = open.pop() {
            if seen.insert(node) {
                open.extend(&self.graph.nodes[node].predecessors);
            }
        }
        let missing = self.graph.nodes.len() - seen.len();
        if missing > 0 { Err(missing) } else { Ok(self.graph) }
    }
}

#[cfg(test)]
mod tests {
    use gpu::DevicePointer;

    use super::*;

    #[test]
    fn branches_of_a_graph_are_chains_of_their_own() {
        let node = |predecessors: &[usize]| Node {
            work: Work::Fill { to: DevicePointer(0), value: 0, bytes: 1 },
            predecessors: predecessors.to_vec(),
        };
        // 0 forks into 1 and 2; 3 follows 2; 4 joins; 5 follows nothing.
        let graph = Graph { nodes: vec![node(&[]), node(&[0]), node(&[0]), node(&[2]), node(&[1, 3]), node(&[])] };
        assert_eq!(graph.chains(), [0, 0, 1, 1, 0, 2]);
    }
}
