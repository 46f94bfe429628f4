//! `metrics.jsonl`: one JSON object per line, which is a step, a measurement on held-out text or an event.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::values::{MOST_NAMES, Reader, Values};

/// The measurements of a run, in the order of its file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    pub steps: Vec<StepRow>,
    /// Measurements on held-out text.
    pub held_out: Vec<HeldOut>,
    /// Measurements on other texts, by their names.
    pub validation: BTreeMap<String, Vec<HeldOut>>,
    /// Everything else that happened.
    pub events: Vec<Event>,
    /// Lines without a record.
    pub left_out: LeftOut,
}

/// Lines of the file that are not records. A last line without its end is not counted: its run may have been killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub lines: u64,
    /// The first of them, counted from 1; 0 without any.
    pub first: u64,
}

/// One step. A value that the file does not have is NaN, as one that is not a number.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// Counted from 1.
    pub step: u64,
    /// Tokens until the end of the step.
    pub total_tokens: u64,
    /// Seconds that steps have taken until its end.
    pub total_seconds: f64,
    /// All numbers of the line by key.
    pub values: Values,
}

/// The loss on held-out text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HeldOut {
    /// After this step.
    pub step: u64,
    /// Nats per token.
    pub loss: f64,
}

/// Something that happened to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// After or in this step.
    pub step: u64,
    /// One word: `resumed`, `skipped`, `spike`.
    pub kind: String,
    /// A sentence.
    pub text: String,
}

/// The most bytes of a line; a longer one has no record. JSON may take ten times its bytes in memory.
const LINE_BYTES: usize = 16 << 20;

/// The record in a line of a file of records.
pub fn record_of<T: DeserializeOwned>(line: &str) -> Option<T> {
    if line.len() > LINE_BYTES { None } else { serde_json::from_str(line).ok() }
}

impl Metrics {
    /// Reads the text of the file. A line that was cut off or is not an object with a step is left out; of two lines
    /// for one step the last one counts. Numbers and texts beyond [`MOST_NAMES`] names are left out.
    pub fn parse(text: &str) -> Metrics {
        let (mut metrics, mut reader) = (Metrics::default(), Reader::default());
        for (place, line) in (1..).zip(text.split_inclusive('\n')) {
            let record: Option<Map<String, Value>> = record_of(line);
            let step = record.as_ref().and_then(|record| record.get("step")?.as_u64());
            let (Some(record), Some(step)) = (record, step) else {
                metrics.leave_out(place, line);
                continue;
            };
            if let Some(kind) = record.get("event").and_then(Value::as_str) {
                metrics.events.push(Event { step, kind: kind.into(), text: sentence(&record) });
            } else if let Some(loss) = record.get("held_out_loss") {
                metrics.held_out.push(HeldOut { step, loss: number(loss) });
            } else if let (Some(name), Some(loss)) =
                (record.get("validation").and_then(Value::as_str), record.get("validation_loss"))
            {
                if metrics.validation.len() < MOST_NAMES || metrics.validation.contains_key(name) {
                    metrics.validation.entry(name.into()).or_default().push(HeldOut { step, loss: number(loss) });
                }
            } else {
                metrics.push_step(step, &record, &mut reader);
                metrics.events.extend(anomaly(step, &record));
            }
        }
        metrics.put_in_order();
        metrics.events.extend(events_of_steps(&metrics.steps));
        metrics.events.sort_by_key(|event| event.step);
        metrics
    }

    /// Whether the file has no record at all.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.held_out.is_empty() && self.validation.is_empty() && self.events.is_empty()
    }

    fn leave_out(&mut self, place: u64, line: &str) {
        if line.ends_with('\n') && !line.trim().is_empty() {
            let LeftOut { lines, first } = self.left_out;
            self.left_out = LeftOut { lines: lines + 1, first: if lines == 0 { place } else { first } };
        }
    }

    fn push_step(&mut self, step: u64, record: &Map<String, Value>, reader: &mut Reader) {
        // A value that is null is not known, which is not the same as NaN.
        let is_number = |key: &str, value: &Value| key != "step" && !value.is_null() && !is_text(value);
        let values = reader.read(record, |key, value| is_number(key, value).then(|| number(value)));
        let total_tokens = record.get("total_tokens").and_then(Value::as_u64).unwrap_or(0);
        self.steps.push(StepRow { step, total_tokens, total_seconds: 0.0, values });
    }

    /// Steps and measurements by step, each once, with totals that never fall.
    fn put_in_order(&mut self) {
        last_of_each(&mut self.steps, |row| row.step);
        last_of_each(&mut self.held_out, |measured| measured.step);
        self.validation.values_mut().for_each(|losses| last_of_each(losses, |measured| measured.step));
        let (mut tokens, mut seconds) = (0u64, 0.0);
        for row in &mut self.steps {
            let of = |key: &str| row.values.get(key).filter(|value| value.is_finite()).unwrap_or(0.0).max(0.0);
            let next =
                if row.total_tokens == 0 { tokens.saturating_add(of("tokens") as u64) } else { row.total_tokens };
            (tokens, seconds) = (next.max(tokens), f64::min(seconds + of("seconds"), f64::MAX));
            (row.total_tokens, row.total_seconds) = (tokens, seconds);
        }
    }
}

/// Sorts by step, and keeps the last of each.
fn last_of_each<T>(rows: &mut Vec<T>, step: impl Fn(&T) -> u64) {
    rows.reverse();
    rows.sort_by_key(&step);
    rows.dedup_by_key(|row| step(row));
}

/// The spike that the line of a step names. Steps that are not finite show in their numbers.
fn anomaly(step: u64, record: &Map<String, Value>) -> Option<Event> {
    let name = record.get("anomaly").and_then(Value::as_str)?;
    if !record.contains_key("usual") {
        return None;
    }
    let did = match record.get("skipped").and_then(Value::as_bool) {
        Some(true) => "no weight changed",
        Some(false) | None => "the run continued",
    };
    Some(Event { step, kind: "spike".into(), text: format!("{name}: {did}") })
}

/// Skipped steps and numbers that are not finite are events, which the lines of their steps imply.
fn events_of_steps(steps: &[StepRow]) -> Vec<Event> {
    let mut events = vec![];
    let mut skipped_before = 0.0;
    // The first step of a series whose numbers are not finite, its text, and the last one.
    let mut series: Option<(u64, String, u64)> = None;
    for row in steps {
        let value = |key: &str| row.values.get(key);
        let (scale, skipped) = (value("loss_scale"), value("skipped_steps").unwrap_or(skipped_before));
        let overflow = scale.filter(|_| skipped > skipped_before);
        skipped_before = f64::max(skipped, skipped_before);
        if let Some(scale) = overflow {
            let text = format!("gradients overflowed with a loss scale of {scale}: no weight changed");
            events.push(Event { step: row.step, kind: "skipped".into(), text });
        }
        let broken = |(key, name): (&'static str, &'static str)| {
            let value = value(key).filter(|value| !value.is_finite())?;
            // The norm of gradients that overflowed is infinite, which the skipped step tells.
            (key == "loss" || overflow.is_none()).then(|| format!("the {name} is {value}"))
        };
        match ([("loss", "loss"), ("grad_norm", "gradient norm")].into_iter().find_map(broken), &mut series) {
            (Some(_), Some((_, _, last))) => *last = row.step,
            (Some(text), None) => series = Some((row.step, text, row.step)),
            (None, _) => events.extend(series.take().map(not_finite)),
        }
    }
    events.extend(series.map(not_finite));
    events
}

/// One event of a series of steps: a run that has become NaN stays so.
fn not_finite((first, text, last): (u64, String, u64)) -> Event {
    let text = if first == last { text } else { format!("{text}; no step is finite until step {last}") };
    Event { step: first, kind: "not finite".into(), text }
}

/// A number; the strings `NaN`, `Infinity` and `-Infinity` are numbers, yes is 1 and no 0, and everything else is NaN.
fn number(value: &Value) -> f64 {
    match value {
        Value::Number(number) => number.as_f64().unwrap_or(f64::NAN),
        Value::String(text) => text.parse().unwrap_or(f64::NAN),
        Value::Bool(is_so) => f64::from(u8::from(*is_so)),
        Value::Null | Value::Array(_) | Value::Object(_) => f64::NAN,
    }
}

/// Whether a value is words, which no column of numbers has.
fn is_text(value: &Value) -> bool {
    matches!(value, Value::String(text) if text.parse::<f64>().is_err())
}

/// The sentence of an event; where it has none, its other keys with their values.
fn sentence(record: &Map<String, Value>) -> String {
    if let Some(text) = record.get("text").and_then(Value::as_str) {
        return text.into();
    }
    let others = record.iter().filter(|(key, _)| !["event", "step", "time"].contains(&key.as_str()));
    let pairs: Vec<String> = others.map(|(key, value)| format!("{key} {value}")).collect();
    pairs.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_measurements_and_events_are_read_and_cut_lines_are_not() {
        let text = "{\"step\":1,\"loss\":4.5,\"tokens\":64,\"seconds\":0.5}\n\
                    {\"step\":2,\"loss\":\"NaN\",\"tokens\":64,\"seconds\":0.25}\n\
                    {\"step\":2,\"held_out_loss\":4.25,\"held_out_tokens\":10,\"seconds\":1.0}\n\
                    {\"step\":2,\"validation\":\"books\",\"validation_loss\":3.5,\"validation_tokens\":10}\n\
                    {\"event\":\"spike\",\"step\":2,\"time\":1.0,\"z\":9.5}\n\
                    {\"step\":3,\"lo";
        let metrics = Metrics::parse(text);
        let totals: Vec<(u64, u64, f64)> =
            metrics.steps.iter().map(|row| (row.step, row.total_tokens, row.total_seconds)).collect();
        assert_eq!(totals, [(1, 64, 0.5), (2, 128, 0.75)]);
        assert!(metrics.steps[1].values.get("loss").is_some_and(f64::is_nan));
        assert_eq!(metrics.held_out, [HeldOut { step: 2, loss: 4.25 }]);
        assert_eq!(metrics.validation["books"], [HeldOut { step: 2, loss: 3.5 }]);
        let events: Vec<(&str, &str)> =
            metrics.events.iter().map(|event| (event.kind.as_str(), event.text.as_str())).collect();
        assert_eq!(events, [("spike", "z 9.5"), ("not finite", "the loss is NaN")]);
        assert_eq!(metrics.left_out, LeftOut::default());
    }

    #[test]
    fn lines_without_a_record_are_counted() {
        let metrics = Metrics::parse("{\"step\":1,\"loss\":2}\n\nwords\n{\"loss\":1}\n[1]\n{\"step\":2,\"loss\":1");
        assert_eq!((metrics.left_out, metrics.is_empty()), (LeftOut { lines: 3, first: 3 }, false));
        let garbage = Metrics::parse("\u{fffd}\nwords");
        assert_eq!((garbage.left_out, garbage.is_empty()), (LeftOut { lines: 1, first: 1 }, true));
    }

    #[test]
    fn a_spike_is_an_event_with_numbers() {
        let line =
            "{\"step\":1,\"loss\":9.5,\"anomaly\":\"loss spike\",\"usual\":4.5,\"score\":12.0,\"skipped\":true}\n";
        let metrics = Metrics::parse(line);
        let columns: Vec<(&str, f64)> = metrics.steps[0].values.iter().collect();
        assert_eq!(columns, [("loss", 9.5), ("score", 12.0), ("skipped", 1.0), ("usual", 4.5)]);
        assert_eq!(
            (metrics.events[0].kind.as_str(), metrics.events[0].text.as_str()),
            ("spike", "loss spike: no weight changed")
        );
    }

    #[test]
    fn lines_in_any_order_are_steps_in_order_and_the_last_one_counts() {
        let line = |step: u32, loss: u32| format!("{{\"step\":{step},\"loss\":{loss},\"tokens\":8,\"seconds\":1.0}}\n");
        let held_out = |step: u32, loss: u32| format!("{{\"step\":{step},\"held_out_loss\":{loss}}}\n");
        let text =
            line(1, 9) + &line(3, 7) + &held_out(3, 6) + &line(2, 8) + &line(3, 5) + &held_out(1, 4) + &held_out(3, 3);
        let metrics = Metrics::parse(&text);
        let rows: Vec<(u64, Option<f64>, u64, f64)> = metrics
            .steps
            .iter()
            .map(|row| (row.step, row.values.get("loss"), row.total_tokens, row.total_seconds))
            .collect();
        assert_eq!(rows, [(1, Some(9.0), 8, 1.0), (2, Some(8.0), 16, 2.0), (3, Some(5.0), 24, 3.0)]);
        assert_eq!(metrics.held_out, [HeldOut { step: 1, loss: 4.0 }, HeldOut { step: 3, loss: 3.0 }]);
    }

    #[test]
    fn numbers_beyond_all_bounds_are_bounded() {
        let line = "\"tokens\":1e30,\"seconds\":1e308,\"total_tokens\":-5}\n";
        let metrics =
            Metrics::parse(&format!("{{\"step\":1,{line}{{\"step\":2,{line}{{\"step\":3,\"seconds\":-1.0}}\n"));
        assert_eq!(metrics.steps[2].total_tokens, u64::MAX);
        assert_eq!(metrics.steps[2].total_seconds, f64::MAX);
    }

    /// The share of the peak is null on devices whose peak is not known.
    #[test]
    fn a_value_that_is_not_known_is_no_column() {
        let metrics = Metrics::parse("{\"step\":1,\"loss\":\"NaN\",\"peak_share\":null}\n");
        let values = &metrics.steps[0].values;
        assert!(values.get("loss").is_some() && values.get("peak_share").is_none());
    }

    #[test]
    fn a_series_that_is_not_finite_is_one_event() {
        let line =
            |step: u32, loss: &str, norm: &str| format!("{{\"step\":{step},\"loss\":{loss},\"grad_norm\":{norm}}}\n");
        let text = line(1, "4", "1")
            + &line(2, "\"NaN\"", "\"NaN\"")
            + &line(3, "\"NaN\"", "1")
            + &line(4, "4", "1")
            + &line(5, "4", "\"Infinity\"");
        let events = Metrics::parse(&text).events;
        let events: Vec<(u64, &str)> = events.iter().map(|event| (event.step, event.text.as_str())).collect();
        assert_eq!(events, [(2, "the loss is NaN; no step is finite until step 3"), (5, "the gradient norm is inf")]);
    }

    /// Steps that a spike skips are counted, too, and no loss scale is there.
    #[test]
    fn a_step_that_a_spike_skips_did_not_overflow() {
        let spike = |step: u32, skipped: bool, count: u32| {
            format!(
                "{{\"step\":{step},\"loss\":9,\"anomaly\":\"loss spike\",\"usual\":4.5,\"skipped\":{skipped},\"skipped_steps\":{count}}}\n"
            )
        };
        let metrics = Metrics::parse(&(spike(1, true, 1) + "{\"step\":2,\"loss\":4}\n" + &spike(3, false, 1)));
        let events: Vec<(&str, &str)> =
            metrics.events.iter().map(|event| (event.kind.as_str(), event.text.as_str())).collect();
        assert_eq!(events, [("spike", "loss spike: no weight changed"), ("spike", "loss spike: the run continued")]);
    }

    #[test]
    fn a_skipped_step_is_an_event_once() {
        let line = |step: u32, skipped: u32| {
            format!("{{\"step\":{step},\"loss\":1,\"loss_scale\":1024.0,\"skipped_steps\":{skipped}}}\n")
        };
        let metrics = Metrics::parse(&(line(1, 0) + &line(2, 1) + &line(3, 1)));
        assert_eq!(metrics.events.len(), 1);
        assert_eq!((metrics.events[0].step, metrics.events[0].kind.as_str()), (2, "skipped"));
    }
}
