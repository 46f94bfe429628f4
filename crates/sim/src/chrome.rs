//! A trace in the format of Chrome's tracing, which Perfetto opens: one process per rank, one thread per stream, an arrow per message.

use std::fmt;

use device::Stream;
use serde_json::{Value, json};

use crate::trace::{RankTrace, TimedInstr, Trace};

/// Writes itself as JSON, an event a line and one after the other: the events of a thousand ranks as one value would not fit into memory.
#[derive(Clone, Copy, Debug)]
pub struct ChromeTrace<'a>(pub &'a Trace);

impl fmt::Display for ChromeTrace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChromeTrace(trace) = self;
        let names = trace.ranks.iter().flat_map(names);
        let instrs = trace.ranks.iter().flat_map(|rank| {
            let timed = rank.instrs.iter().filter(|timed| timed.end_ns > timed.start_ns);
            timed.map(|timed| instruction(rank, timed))
        });
        let arrows = (0..trace.messages.len()).flat_map(|id| arrow(trace, id));
        f.write_str("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        for (index, event) in names.chain(instrs).chain(arrows).enumerate() {
            write!(f, "{}\n{event}", if index > 0 { "," } else { "" })?;
        }
        f.write_str("\n]}\n")
    }
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

fn instruction(rank: &RankTrace, timed: &TimedInstr) -> Value {
    let mut event = json!({
        "ph": "X",
        "name": timed.instr.to_string(),
        "cat": stream_name(timed.instr.stream()),
        "pid": rank.number,
        "tid": timed.instr.stream() as u32,
        "ts": microseconds(timed.start_ns),
        "dur": microseconds(timed.end_ns - timed.start_ns),
    });
    if let Some(microbatch) = timed.instr.microbatch() {
        event["args"] = json!({"microbatch": microbatch.0});
    }
    event
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
    }
}
