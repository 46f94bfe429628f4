//! A trace in the format of Chrome's tracing, which Perfetto opens: one process per rank, one thread per stream, an
//! arrow per message, and a counter of memory.

use std::fmt;

use device::Stream;
use mesh::Rank;
use program::StepGraph;
use serde_json::{Map, Value, json};

use crate::memory_over_time::MemoryOverTime;
use crate::moved::{Moved, Movements};
use crate::trace::{RankTrace, TimedInstr, Trace};

/// Writes itself as JSON, an event a line and one after the other: the events of a thousand ranks as one value would
/// not fit into memory.
#[derive(Clone, Copy, Debug)]
pub struct ChromeTrace<'a> {
    /// The ranks, by their numbers in the mesh.
    pub trace: &'a Trace,
    /// The step that they run.
    pub graph: &'a StepGraph,
    /// Bytes, groups and algorithms of their instructions.
    pub movements: &'a Movements<'a>,
    /// Their memory, in the order of the trace's ranks.
    pub memory: &'a [&'a MemoryOverTime],
}

impl fmt::Display for ChromeTrace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = &self.trace.ranks;
        let names = ranks.iter().flat_map(names);
        let instrs = ranks.iter().flat_map(|rank| {
            let timed = rank.instrs.iter().filter(|timed| timed.end_ns > timed.start_ns);
            timed.map(|timed| self.instruction(rank, timed))
        });
        let counters = ranks.iter().zip(self.memory).flat_map(|(rank, memory)| counters(rank, memory));
        let arrows = (0..self.trace.messages.len()).flat_map(|id| arrow(self.trace, id));
        f.write_str("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        for (index, event) in names.chain(instrs).chain(counters).chain(arrows).enumerate() {
            write!(f, "{}\n{event}", if index > 0 { "," } else { "" })?;
        }
        f.write_str("\n]}\n")
    }
}

impl ChromeTrace<'_> {
    fn instruction(&self, rank: &RankTrace, timed: &TimedInstr) -> Value {
        let mut event = json!({
            "ph": "X",
            "name": timed.instr.to_string(),
            "cat": stream_name(timed.instr.stream()),
            "pid": rank.number,
            "tid": timed.instr.stream() as u32,
            "ts": microseconds(timed.start_ns),
            "dur": microseconds(timed.end_ns - timed.start_ns),
        });
        let args = self.args(rank, timed);
        if !args.is_empty() {
            event["args"] = args.into();
        }
        event
    }

    /// The microbatch, and what is moved.
    fn args(&self, rank: &RankTrace, timed: &TimedInstr) -> Map<String, Value> {
        let mut args = Map::new();
        if let Some(microbatch) = timed.instr.microbatch() {
            args.insert("microbatch".into(), microbatch.0.into());
        }
        let number = Rank(rank.number);
        let program = self.graph.programs().get(self.movements.stage(number));
        if let Some(Moved { bytes, group, algorithm }) =
            program.and_then(|program| self.movements.of(number, &program.view, timed.instr))
        {
            args.insert("bytes".into(), bytes.into());
            args.insert("group".into(), group.into());
            args.insert("algorithm".into(), algorithm.into());
        }
        args
    }
}

/// Bytes of a rank by what they are for, at every change.
fn counters(rank: &RankTrace, memory: &MemoryOverTime) -> Vec<Value> {
    let parts: Vec<String> = memory.parts().iter().map(ToString::to_string).collect();
    let counter = |(ns, bytes): &(u64, Vec<usize>)| {
        let args: Map<String, Value> = parts.iter().cloned().zip(bytes.iter().map(|bytes| (*bytes).into())).collect();
        json!({"ph": "C", "name": "memory (bytes)", "pid": rank.number, "ts": microseconds(*ns), "args": args})
    };
    memory.changes().iter().map(counter).collect()
}

/// Names of a process and of its threads, and their order: that of ranks and of streams, whatever a viewer sees first.
fn names(rank: &RankTrace) -> Vec<Value> {
    let pid = rank.number;
    let process = json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": rank.name}});
    let order = json!({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}});
    let threads = [Stream::Compute, Stream::Reduce, Stream::Transfer, Stream::Io].into_iter().flat_map(|stream| {
        let (tid, name) = (stream as u32, stream_name(stream));
        let metadata = |key: &str, args: Value| json!({"ph": "M", "name": key, "pid": pid, "tid": tid, "args": args});
        [metadata("thread_name", json!({"name": name})), metadata("thread_sort_index", json!({"sort_index": tid}))]
    });
    [process, order].into_iter().chain(threads).collect()
}

/// Both ends of a message's arrow.
fn arrow(trace: &Trace, id: usize) -> [Value; 2] {
    let (send, receive) = trace.messages[id];
    let (from, to) = (&trace.ranks[send.rank], &trace.ranks[receive.rank]);
    let end = |phase: &str, rank: &RankTrace, at_ns: u64| {
        let (pid, tid, ts) = (rank.number, Stream::Transfer as u32, microseconds(at_ns));
        json!({"ph": phase, "name": "message", "cat": "message", "id": id, "pid": pid, "tid": tid, "ts": ts})
    };
    let mut received = end("f", to, to.instrs[receive.index].end_ns);
    received["bp"] = json!("e");
    [end("s", from, from.instrs[send.index].start_ns), received]
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn stream_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Compute => "compute",
        Stream::Reduce => "gather and reduce",
        Stream::Transfer => "transfer",
        Stream::Io => "storage",
        Stream::Shift => "ring shift",
        Stream::Fetch => "from host memory",
        Stream::Offload => "to host memory",
    }
}
