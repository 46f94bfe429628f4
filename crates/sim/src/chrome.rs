//! A trace in the format of Chrome's tracing, which Perfetto opens: one process per rank, one thread per stream, an arrow per message.

use program::Stream;
use serde_json::{Value, json};

use crate::trace::Trace;

/// The trace as JSON. Times are in microseconds, as the format asks.
pub fn chrome_trace(trace: &Trace) -> Value {
    let mut events: Vec<Value> = vec![];
    for rank in &trace.ranks {
        let pid = rank.number;
        events.push(json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": rank.name}}));
        for stream in [Stream::Compute, Stream::Reduce, Stream::Transfer, Stream::Io] {
            let args = json!({"name": stream_name(stream)});
            events.push(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": stream as u32, "args": args}));
        }
        for timed in rank.instrs.iter().filter(|timed| timed.end_ns > timed.start_ns) {
            events.push(json!({
                "ph": "X",
                "name": timed.instr.to_string(),
                "cat": stream_name(timed.instr.stream()),
                "pid": pid,
                "tid": timed.instr.stream() as u32,
                "ts": microseconds(timed.start_ns),
                "dur": microseconds(timed.end_ns - timed.start_ns),
            }));
        }
    }
    for (id, (send, receive)) in trace.messages.iter().enumerate() {
        let tid = Stream::Transfer as u32;
        let sent = trace.ranks[send.rank].instrs[send.index].start_ns;
        let received = trace.ranks[receive.rank].instrs[receive.index].end_ns;
        let event = |phase: &str, place: usize, at: u64| json!({"ph": phase, "name": "message", "cat": "message", "id": id, "pid": trace.ranks[place].number, "tid": tid, "ts": microseconds(at)});
        events.push(event("s", send.rank, sent));
        let mut end = event("f", receive.rank, received);
        end["bp"] = json!("e");
        events.push(end);
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
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
    }
}
