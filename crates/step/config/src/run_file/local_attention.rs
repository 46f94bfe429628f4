//! The keys of sliding windows: `model.window`, `model.layer_pattern` and `model.local_rotary_base`.

use super::reader::{Choices, Reader, name_of};
use super::source::Value;
use super::writer::Writer;
use crate::local_attention::{LocalAttention, Reach};
use crate::problem::Problem;

const WINDOW: &str = "model.window";
const PATTERN: &str = "model.layer_pattern";
const ROTARY_BASE: &str = "model.local_rotary_base";

const REACHES: &Choices<Reach> = &[("global", Reach::Global), ("local", Reach::Local)];

/// Reads the keys; without a window all layers are global, with one and without a pattern all are local.
pub fn read(reader: &mut Reader, num_layers: usize) -> Option<LocalAttention> {
    let window = reader.optional_count(WINDOW);
    let pattern = reader.list_of(PATTERN, "a list such as [\"local\", \"global\"]", reach);
    let rotary_base = reader.optional_number(ROTARY_BASE);
    let Some(window) = window else {
        for key in [PATTERN, ROTARY_BASE].into_iter().filter(|key| reader.is_set(key)).collect::<Vec<_>>() {
            let rule = format!("has no effect without {WINDOW}");
            reader.report(Problem::of_key(key, rule, "give both, or leave it out"));
        }
        return None;
    };
    let pattern = match pattern {
        None => vec![Reach::Local],
        Some(pattern) if pattern.is_empty() => {
            let remedy = "leave it out for local layers alone";
            reader.report(Problem::of_value(PATTERN, "[]", "must name a layer", remedy));
            vec![Reach::Local]
        }
        Some(pattern) => LocalAttention::shortest(&pattern, num_layers),
    };
    Some(LocalAttention { window, pattern, rotary_base })
}

fn reach(value: &Value) -> Option<Reach> {
    let name = value.text()?;
    REACHES.iter().find(|(known, _)| *known == name).map(|(_, reach)| *reach)
}

/// Writes the keys, where a model has windows.
pub fn write(local: Option<&LocalAttention>, writer: &mut Writer) {
    let Some(LocalAttention { window, pattern, rotary_base }) = local else { return };
    writer.count("window", window);
    let names: Vec<&str> = pattern.iter().map(|reach| name_of(REACHES, *reach)).collect();
    writer.bare("layer_pattern", &format!("{names:?}"));
    if let Some(base) = rotary_base {
        writer.number("local_rotary_base", *base);
    }
}
