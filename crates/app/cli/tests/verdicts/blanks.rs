//! The oracle for `data.blanks`.

use toml::Value;

use crate::verdicts::oracle::{self, Values};

/// Whether it is a table with the four tokens and nothing unknown.
pub fn is_of_its_kind(value: &Value) -> bool {
    value.as_table().is_some_and(|blanks| {
        let count = |key: &str| blanks.get(key).and_then(Value::as_integer).is_some_and(|token| token >= 0);
        let tokens = ["mask", "gmask", "sop", "eop"];
        let others = ["span_share", "span_mean", "span_tokens", "samples", "instructions", "instruction_share"];
        let is_known = |key: &String| tokens.into_iter().chain(others).any(|known| known == key);
        blanks.keys().all(is_known) && tokens.into_iter().all(count)
    })
}

/// Four tokens that no text has, shares that are some, and samples of 16 tokens that each see their own.
pub fn are_legal(values: &Values) -> bool {
    let Some(table) = values.get("data.blanks") else { return true };
    let number = |key: &str, default: f64| {
        table.get(key).map_or(default, |value| {
            value.as_float().or(value.as_integer().map(|number| number as f64)).unwrap_or(f64::NAN)
        })
    };
    let mut tokens = ["mask", "gmask", "sop", "eop"].map(|key| number(key, -1.0));
    tokens.sort_by(f64::total_cmp);
    let (context, samples) = (oracle::int(values, "model.context", 128), number("samples", 4.0) as i128);
    let length = oracle::int(values, "train.sequence_length", context);
    let of_text = oracle::tokens(values);
    tokens.windows(2).all(|pair| pair[0] < pair[1])
        && tokens[0] >= of_text as f64
        && tokens[3] < oracle::int(values, "model.vocabulary", of_text) as f64
        && (0.0..=1.0).contains(&number("span_share", 0.3))
        && (0.0..=1.0).contains(&number("instruction_share", 0.05))
        && (number("span_mean", 3.0) > 0.0 && number("span_mean", 3.0) <= 64.0)
        && (number("span_tokens", 0.15) > 0.0 && number("span_tokens", 0.15) <= 0.3)
        && samples > 0
        && oracle::divides(samples, length)
        && length / samples >= 16
        && oracle::text(values, "data.visible", "past") == "past"
        && oracle::text(values, "data.positions", "sequence") == "sequence"
}
