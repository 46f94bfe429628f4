//! `metrics.jsonl`: one JSON object per line, which is a step, a measurement on held-out text or an event.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

/// The measurements of a run, in the order of its file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// By step.
    pub steps: Vec<StepRow>,
    /// Measurements on held-out text.
    pub held_out: Vec<HeldOut>,
    /// Measurements on other texts, by their names.
    pub validation: BTreeMap<String, Vec<HeldOut>>,
    /// Everything else that happened.
    pub events: Vec<Event>,
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
    pub values: BTreeMap<String, f64>,
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

impl Metrics {
    /// Reads the text of the file. A line that was cut off or is not an object with a step is left out.
    pub fn parse(text: &str) -> Metrics {
        let mut metrics = Metrics::default();
        for line in text.lines() {
            let Ok(Value::Object(record)) = serde_json::from_str(line) else { continue };
            let Some(step) = record.get("step").and_then(Value::as_u64) else { continue };
            if let Some(kind) = record.get("event").and_then(Value::as_str) {
                metrics.events.push(Event { step, kind: kind.into(), text: sentence(&record) });
            } else if let Some(loss) = record.get("held_out_loss") {
                metrics.held_out.push(HeldOut { step, loss: number(loss) });
            } else if let (Some(name), Some(loss)) =
                (record.get("validation").and_then(Value::as_str), record.get("validation_loss"))
            {
                metrics.validation.entry(name.into()).or_default().push(HeldOut { step, loss: number(loss) });
            } else {
                metrics.push_step(step, &record);
                metrics.add_anomaly(step, &record);
            }
        }
        metrics.add_events_of_steps();
        metrics
    }

    fn push_step(&mut self, step: u64, record: &Map<String, Value>) {
        let numbers = record.iter().filter(|(key, value)| *key != "step" && !is_text(value));
        let values: BTreeMap<String, f64> = numbers.map(|(key, value)| (key.clone(), number(value))).collect();
        let of = |key: &str| values.get(key).copied().filter(|value| value.is_finite()).unwrap_or(0.0);
        let (tokens, seconds) =
            self.steps.last().map_or((0, 0.0), |before| (before.total_tokens, before.total_seconds));
        let total_tokens = record.get("total_tokens").and_then(Value::as_u64).unwrap_or(tokens + of("tokens") as u64);
        let total_seconds = seconds + of("seconds");
        self.steps.push(StepRow { step, total_tokens, total_seconds, values });
    }

    /// Adds the spike that the line of a step names. Steps that are not finite show in their numbers.
    fn add_anomaly(&mut self, step: u64, record: &Map<String, Value>) {
        let Some(name) = record.get("anomaly").and_then(Value::as_str) else { return };
        if !record.contains_key("usual") {
            return;
        }
        let did = match record.get("skipped").and_then(Value::as_bool) {
            Some(true) => "no weight changed",
            Some(false) | None => "the run continued",
        };
        self.events.push(Event { step, kind: "spike".into(), text: format!("{name}: {did}") });
    }

    /// Skipped steps and numbers that are not finite are events, which the lines of their steps imply.
    fn add_events_of_steps(&mut self) {
        let skipped_before = |index: usize| match index {
            0 => 0.0,
            index => self.steps[index - 1].values.get("skipped_steps").copied().unwrap_or(0.0),
        };
        let mut events = vec![];
        for (index, row) in self.steps.iter().enumerate() {
            let value = |key: &str| row.values.get(key).copied();
            if value("skipped_steps").is_some_and(|skipped| skipped > skipped_before(index)) {
                let scale = value("loss_scale").unwrap_or(f64::NAN);
                let text = format!("gradients overflowed with a loss scale of {scale}: no weight changed");
                events.push(Event { step: row.step, kind: "skipped".into(), text });
            }
            if let Some(loss) = value("loss").filter(|loss| !loss.is_finite()) {
                let text = format!("the loss is {loss}");
                events.push(Event { step: row.step, kind: "not finite".into(), text });
            }
        }
        let is_listed = |event: &Event| self.events.iter().any(|own| own.step == event.step && own.kind == event.kind);
        events.retain(|event| !is_listed(event));
        self.events.extend(events);
        self.events.sort_by_key(|event| event.step);
    }
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
        assert!(metrics.steps[1].values["loss"].is_nan());
        assert_eq!(metrics.held_out, [HeldOut { step: 2, loss: 4.25 }]);
        assert_eq!(metrics.validation["books"], [HeldOut { step: 2, loss: 3.5 }]);
        let events: Vec<(&str, &str)> =
            metrics.events.iter().map(|event| (event.kind.as_str(), event.text.as_str())).collect();
        assert_eq!(events, [("spike", "z 9.5"), ("not finite", "the loss is NaN")]);
    }

    #[test]
    fn a_spike_is_an_event_with_numbers() {
        let line =
            "{\"step\":1,\"loss\":9.5,\"anomaly\":\"loss spike\",\"usual\":4.5,\"score\":12.0,\"skipped\":true}\n";
        let metrics = Metrics::parse(line);
        let columns: Vec<(&str, f64)> =
            metrics.steps[0].values.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        assert_eq!(columns, [("loss", 9.5), ("score", 12.0), ("skipped", 1.0), ("usual", 4.5)]);
        assert_eq!(
            (metrics.events[0].kind.as_str(), metrics.events[0].text.as_str()),
            ("spike", "loss spike: no weight changed")
        );
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
