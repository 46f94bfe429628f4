//! The key `data.blanks`.

use super::reader::{Reader, count};
use super::source::Value;
use crate::data_spec::{BlanksSpec, InstructionsSpec};

const WANTED: &str = "blanks such as { mask = 1024, gmask = 1025, sop = 1026, eop = 1027 }, optionally with span_share, span_mean, span_tokens, \
     samples, instruction_share, and instructions = \"tasks.jsonl\"";

/// Names of numbers that have a default: those of GLM-130B.
const DEFAULTS: [(&str, f32); 4] =
    [("span_share", 0.3), ("span_mean", 3.0), ("span_tokens", 0.15), ("instruction_share", 0.05)];

/// Short samples of a sequence: 512 of 2,048 tokens.
const SAMPLES: usize = 4;

/// Reads the key.
pub fn read(reader: &mut Reader) -> Option<BlanksSpec> {
    let others = ["mask", "gmask", "sop", "eop", "samples", "instructions"];
    let known: Vec<&str> = others.into_iter().chain(DEFAULTS.map(|(name, _)| name)).collect();
    reader.table_as("data.blanks", WANTED, &known, blanks)
}

fn blanks(entries: &[(String, Value)]) -> Option<BlanksSpec> {
    let given = |name: &str| entries.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let token = |name: &str| given(name).and_then(count);
    let [span_share, span_mean, span_tokens, share] =
        DEFAULTS.map(|(name, default)| given(name).map_or(Some(default), Value::number));
    let instructions = match (given("instructions"), given("instruction_share")) {
        (None, None) => None,
        (None, Some(_)) => Some(InstructionsSpec { path: None, share: share? }),
        (Some(path), _) => Some(InstructionsSpec { path: Some(path.text()?.into()), share: share? }),
    };
    Some(BlanksSpec {
        mask: token("mask")?,
        gmask: token("gmask")?,
        sop: token("sop")?,
        eop: token("eop")?,
        span_share: span_share?,
        span_mean: span_mean?,
        span_tokens: span_tokens?,
        samples: given("samples").map_or(Some(SAMPLES), count)?,
        instructions,
    })
}

/// The table, with nothing left to defaults.
pub fn written(blanks: &BlanksSpec) -> String {
    let BlanksSpec { mask, gmask, sop, eop, span_share, span_mean, span_tokens, samples, instructions } = blanks;
    let instructions = instructions.as_ref().map_or(String::new(), |InstructionsSpec { path, share }| {
        let file = path.as_ref().map_or(String::new(), |path| {
            format!(", instructions = {}", toml::Value::String(path.to_string_lossy().into()))
        });
        format!("{file}, instruction_share = {share:?}")
    });
    format!(
        "{{ mask = {mask}, gmask = {gmask}, sop = {sop}, eop = {eop}, span_share = {span_share:?}, span_mean = {span_mean:?}, \
         span_tokens = {span_tokens:?}, samples = {samples}{instructions} }}"
    )
}
