//! The output of `pleach plan --json`; `docs/planner.md` describes it.

use std::collections::BTreeMap;

use config::Parallelism;
use plan::known_errors::known_errors;
use plan::search::{Answer, Found, Question, Remedies, Smallest, keys};
use run::failure::Failure;
use serde::Serialize;
use serde_json::Value;
use sim::Loss;

#[derive(Serialize)]
struct JsonAnswer {
    accelerators: usize,
    memory_bytes: u64,
    margin_bytes: u64,
    best: Vec<JsonFound>,
    closer: Vec<JsonFound>,
    refused: usize,
    refused_by: BTreeMap<String, JsonRefusal>,
    excluded_by_memory: usize,
    excluded_by_time: usize,
    simulated: usize,
    did_not_fit: usize,
    /// How far predictions were from measured runs on such accelerators.
    known_errors: String,
    /// Where there is no best layout.
    remedies: Option<JsonRemedies>,
}

#[derive(Serialize)]
struct JsonFound {
    step_s: f64,
    memory_bytes: usize,
    layout: BTreeMap<String, Value>,
    losses_s: BTreeMap<String, f64>,
}

#[derive(Serialize)]
struct JsonRefusal {
    layouts: usize,
    example: String,
}

#[derive(Serialize)]
struct JsonRemedies {
    memory_bytes: Option<usize>,
    layout: Option<BTreeMap<String, Value>>,
    accelerators: Option<usize>,
    fix: BTreeMap<String, Value>,
}

/// The answer as one line.
///
/// # Errors
/// None in practice: whatever cannot be written as JSON.
pub fn document(answer: &Answer, question: &Question, remedies: Option<&Remedies>) -> Result<String, Failure> {
    let found = |found: &Found| JsonFound {
        step_s: found.step_ns as f64 * 1e-9,
        memory_bytes: found.memory_bytes,
        layout: layout(&found.parallelism),
        losses_s: Loss::ALL.iter().map(|loss| (loss.to_string(), found.spent.on(*loss) as f64 * 1e-9)).collect(),
    };
    let refused_by = answer.refusals.by_key.iter().map(|(key, (layouts, problem))| {
        (key.clone(), JsonRefusal { layouts: *layouts, example: problem.to_string() })
    });
    let json = JsonAnswer {
        accelerators: question.accelerators,
        memory_bytes: question.memory_bytes as u64,
        margin_bytes: question.margin_bytes as u64,
        best: answer.best.iter().map(found).collect(),
        closer: answer.closer.iter().map(found).collect(),
        refused: answer.refusals.number(),
        refused_by: refused_by.collect(),
        excluded_by_memory: answer.counts.over_memory,
        excluded_by_time: answer.counts.over_time,
        simulated: answer.counts.simulated,
        did_not_fit: answer.counts.did_not_fit,
        known_errors: known_errors(question.cluster, question.software),
        remedies: remedies.map(of_remedies),
    };
    let text = serde_json::to_string(&json).map_err(|error| Failure::Work(error.to_string()))?;
    Ok(format!("{text}\n"))
}

fn of_remedies(remedies: &Remedies) -> JsonRemedies {
    let Remedies { least, accelerators, values } = remedies;
    JsonRemedies {
        memory_bytes: least.as_ref().map(|least| least.memory_bytes),
        layout: least.as_ref().map(|Smallest { parallelism, .. }| layout(parallelism)),
        accelerators: *accelerators,
        fix: values.iter().map(|(key, value)| (key.clone(), value_of(value))).collect(),
    }
}

/// The keys of `--fix`, and the layers of each stage.
fn layout(parallelism: &Parallelism) -> BTreeMap<String, Value> {
    let named = keys(parallelism).into_iter().filter(|(key, _)| key != "ep" || parallelism.ep > 1);
    let mut layout: BTreeMap<String, Value> = named.map(|(key, value)| (key, value_of(&value))).collect();
    layout.insert("stage_layers".into(), Value::from(parallelism.stage_layers.clone()));
    layout
}

/// A value of a run file: a number, a truth or a word, of which the last is not JSON.
fn value_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}
