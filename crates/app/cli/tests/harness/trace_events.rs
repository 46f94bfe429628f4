//! Rules of the published trace event format: phases and their fields, nesting, pairs of arrows, counters. Checked for
//! every event.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Process and thread of an event.
type Thread = (u64, u64);

/// Every rule that an event of `trace` breaks, as a sentence; none of a trace that viewers read as it is meant.
pub fn broken_rules(trace: &Value) -> Vec<String> {
    let Some(events) = trace["traceEvents"].as_array() else { return vec!["no array traceEvents".into()] };
    let mut broken: Vec<String> =
        events.iter().filter_map(|event| fault(event).map(|fault| format!("{fault}: {event}"))).collect();
    if broken.is_empty() {
        broken.extend(unnamed(events));
        broken.extend(unsorted(events));
        broken.extend(jumping(events));
        let slices = slices(events);
        broken.extend(crossing(&slices));
        broken.extend(unpaired(events, &slices));
    }
    broken
}

/// The first rule that one event breaks by itself.
fn fault(event: &Value) -> Option<&'static str> {
    let is_time = |key: &str| event[key].as_f64().is_some_and(|time| time.is_finite() && time >= 0.0);
    let args = &event["args"];
    if !event["name"].is_string() || event["pid"].as_u64().is_none() {
        return Some("without name or process");
    }
    if !args.is_null() && !args.is_object() {
        return Some("args that are not an object");
    }
    let timed = match event["ph"].as_str() {
        Some("M") => {
            let known = match event["name"].as_str() {
                Some("process_name" | "thread_name") => args["name"].is_string(),
                Some("process_sort_index" | "thread_sort_index") => args["sort_index"].is_i64(),
                _ => false,
            };
            return (!known).then_some("metadata of no known form");
        }
        Some("X") => is_time("dur"),
        // A counter belongs to its process, and its series are numbers.
        Some("C") => {
            let series = args.as_object().filter(|series| !series.is_empty());
            let are_numbers = series.is_some_and(|series| series.values().all(Value::is_number));
            return (!are_numbers || !is_time("ts")).then_some("a counter without numbers");
        }
        Some("s") => event["cat"].is_string() && event["id"].is_u64(),
        Some("f") => event["cat"].is_string() && event["id"].is_u64() && event["bp"] == "e",
        _ => return Some("of an unknown phase"),
    };
    (!timed || !is_time("ts") || event["tid"].as_u64().is_none()).then_some("without the fields of its phase")
}

fn of_phase<'a>(events: &'a [Value], phase: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["ph"] == phase)
}

fn thread(event: &Value) -> Thread {
    (event["pid"].as_u64().unwrap_or_default(), event["tid"].as_u64().unwrap_or_default())
}

/// Whole nanoseconds, in which a trace is measured.
fn nanoseconds(event: &Value, key: &str) -> u64 {
    (event[key].as_f64().unwrap_or_default() * 1000.0).round() as u64
}

/// Threads that have slices and no name.
fn unnamed(events: &[Value]) -> Vec<String> {
    let named = of_phase(events, "M").filter(|event| event["name"] == "thread_name").map(thread);
    let named: BTreeSet<Thread> = named.collect();
    let used: BTreeSet<Thread> = of_phase(events, "X").map(thread).collect();
    used.difference(&named).map(|thread| format!("a thread without name: {thread:?}")).collect()
}

/// Threads that have slices and no place in their process.
fn unsorted(events: &[Value]) -> Vec<String> {
    let placed = of_phase(events, "M").filter(|event| event["name"] == "thread_sort_index").map(thread);
    let placed: BTreeSet<Thread> = placed.collect();
    let used: BTreeSet<Thread> = of_phase(events, "X").map(thread).collect();
    used.difference(&placed).map(|thread| format!("a thread without place: {thread:?}")).collect()
}

/// Counters that go back in time, or whose series change their names: a viewer draws each series from event to event.
fn jumping(events: &[Value]) -> Vec<String> {
    let mut last: BTreeMap<(u64, &str), &Value> = BTreeMap::new();
    let mut broken = vec![];
    for event in of_phase(events, "C") {
        let counter = (thread(event).0, event["name"].as_str().unwrap_or_default());
        let names = |event: &Value| event["args"].as_object().map(|series| series.keys().cloned().collect::<Vec<_>>());
        if let Some(before) = last.insert(counter, event) {
            if nanoseconds(event, "ts") < nanoseconds(before, "ts") {
                broken.push(format!("counter {counter:?} runs backwards"));
            }
            if names(event) != names(before) {
                broken.push(format!("counter {counter:?} has other series"));
            }
        }
    }
    broken
}

/// Starts and ends of the slices of every thread, in the order of their starts; the longest first.
fn slices(events: &[Value]) -> BTreeMap<Thread, Vec<(u64, u64)>> {
    let mut slices: BTreeMap<Thread, Vec<(u64, u64)>> = BTreeMap::new();
    for event in of_phase(events, "X") {
        let start = nanoseconds(event, "ts");
        slices.entry(thread(event)).or_default().push((start, start + nanoseconds(event, "dur")));
    }
    slices.values_mut().for_each(|slices| slices.sort_by_key(|&(start, end)| (start, u64::MAX - end)));
    slices
}

/// Slices of one thread that begin in another one and outlast it: they must nest.
fn crossing(slices: &BTreeMap<Thread, Vec<(u64, u64)>>) -> Vec<String> {
    let mut broken = vec![];
    for (thread, slices) in slices {
        let mut open: Vec<u64> = vec![];
        for &(start, end) in slices {
            open.retain(|outer| *outer > start);
            if open.last().is_some_and(|outer| end > *outer) {
                broken.push(format!("slices of {thread:?} cross at {start} ns"));
            }
            open.push(end);
        }
    }
    broken
}

/// Arrows that lack an end, run backwards, or end where no slice is, so that a viewer drops them.
fn unpaired(events: &[Value], slices: &BTreeMap<Thread, Vec<(u64, u64)>>) -> Vec<String> {
    let mut arrows: BTreeMap<u64, [Vec<&Value>; 2]> = BTreeMap::new();
    for (end, phase) in ["s", "f"].into_iter().enumerate() {
        for event in of_phase(events, phase) {
            arrows.entry(event["id"].as_u64().unwrap_or_default()).or_default()[end].push(event);
        }
    }
    let on_slice = |event: &Value| {
        let at = nanoseconds(event, "ts");
        slices.get(&thread(event)).is_some_and(|slices| slices.iter().any(|&(start, end)| (start..=end).contains(&at)))
    };
    let mut broken = vec![];
    for (id, [sent, received]) in arrows {
        match (sent.as_slice(), received.as_slice()) {
            ([sent], [received]) => {
                if nanoseconds(sent, "ts") > nanoseconds(received, "ts") {
                    broken.push(format!("arrow {id} runs backwards"));
                }
                if !on_slice(sent) || !on_slice(received) {
                    broken.push(format!("arrow {id} ends on no slice"));
                }
            }
            (sent, received) => broken.push(format!("arrow {id} has {} + {} ends", sent.len(), received.len())),
        }
    }
    broken
}

#[test]
fn every_rule_rejects() {
    let event = |ph: &str, tid: u64, ts: f64| serde_json::json!({"ph": ph, "name": "a", "cat": "c", "pid": 0, "tid": tid, "ts": ts});
    let with = |mut event: Value, key: &str, value: Value| {
        event[key] = value;
        event
    };
    let metadata = |name: &str, tid: u64, args: Value| serde_json::json!({"ph": "M", "name": name, "pid": 0, "tid": tid, "args": args});
    let named = |tid: u64| metadata("thread_name", tid, serde_json::json!({"name": "compute"}));
    let placed = |tid: u64| metadata("thread_sort_index", tid, serde_json::json!({"sort_index": tid}));
    let counter = |ts: f64, args: Value| with(event("C", 0, ts), "args", args);
    let one = |bytes: u64| serde_json::json!({"bytes": bytes});
    let slice = |tid: u64, ts: f64, dur: f64| with(event("X", tid, ts), "dur", dur.into());
    let end = |ph: &str, tid: u64, ts: f64| with(with(event(ph, tid, ts), "id", 7.into()), "bp", "e".into());
    let rules = |events: Vec<Value>| broken_rules(&serde_json::json!({"traceEvents": events})).join("\n");
    let whole = || {
        let threads = vec![named(0), named(1), placed(0), placed(1)];
        [threads, vec![slice(0, 1.0, 4.0), slice(0, 2.0, 3.0), slice(1, 3.0, 2.0)]].concat()
    };
    let and = |added: Vec<Value>| rules([whole(), added].concat());
    assert_eq!(and(vec![end("s", 0, 2.0), end("f", 1, 5.0), counter(1.0, one(5)), counter(2.0, one(7))]), "");
    for (added, said) in [
        (vec![event("X", 0, 1.0)], "without the fields of its phase"),
        (vec![slice(0, -1.0, 1.0)], "without the fields of its phase"),
        (vec![event("Q", 0, 1.0)], "of an unknown phase"),
        (vec![with(event("M", 0, 1.0), "args", serde_json::json!({"name": 1}))], "metadata of no known form"),
        (vec![with(slice(0, 1.0, 1.0), "args", 3.into())], "args that are not an object"),
        (vec![slice(5, 1.0, 1.0), placed(5)], "a thread without name: (0, 5)"),
        (vec![slice(5, 1.0, 1.0), named(5)], "a thread without place: (0, 5)"),
        (vec![event("C", 0, 1.0)], "a counter without numbers"),
        (vec![counter(1.0, serde_json::json!({"bytes": "7"}))], "a counter without numbers"),
        (vec![counter(2.0, one(5)), counter(1.0, one(7))], "counter (0, \"a\") runs backwards"),
        (
            vec![counter(1.0, one(5)), counter(2.0, serde_json::json!({"words": 7}))],
            "counter (0, \"a\") has other series",
        ),
        (vec![slice(0, 4.0, 3.0)], "slices of (0, 0) cross at 4000 ns"),
        (vec![end("s", 0, 2.0)], "arrow 7 has 1 + 0 ends"),
        (vec![end("s", 0, 4.0), end("f", 1, 3.0)], "arrow 7 runs backwards"),
        (vec![end("s", 0, 2.0), end("f", 1, 9.0)], "arrow 7 ends on no slice"),
    ] {
        let found = and(added);
        assert!(found.starts_with(said), "{said}\n{found}");
    }
}
