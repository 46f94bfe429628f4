//! Rotary positions: one object in newer files, `rope_parameters`; in older ones separate keys next to `rope_scaling`.

use config::{ModelSpec, Pairing, Position, RotaryScaling};
use serde_json::{Map, Value};

use super::{number, object};
use crate::error::InterchangeError;
use crate::fields::Fields;

/// The share of rotated dims within the object.
const SHARE: &str = "partial_rotary_factor";

/// Tokens of the sequences that a model has learned from first: within the object, or next to it, where it goes before.
const ORIGINAL_CONTEXT: &str = "original_max_position_embeddings";

/// How many dims of a head a class rotates.
#[derive(Clone, Copy)]
pub(super) enum Rotated {
    /// A share, by default the given one; in older files under the given name.
    Share(&'static str, f32),
    /// All: it passes over what says otherwise.
    All,
}

/// Positions of heads of `head_dim`. The base is in the object or, under the name that is given with its default, next
/// to it; `context` is what a scaling counts from where it does not say.
pub(super) fn read(
    fields: &Fields,
    (base_key, base): (&str, f32),
    rotated: Rotated,
    head_dim: usize,
    context: usize,
) -> Result<Position, InterchangeError> {
    // An empty object counts as absent, as in the library.
    let rope = match fields.object("rope_scaling")?.filter(|older| !older.map.is_empty()) {
        Some(older) => Some(older),
        None => fields.object("rope_parameters")?,
    };
    // Keys that the object lacks are next to it.
    let nothing = Map::new();
    let rope = rope.unwrap_or(Fields { path: fields.path, map: &nothing });
    let base = rope.number_or("rope_theta", fields.number_or(base_key, base)?)?;
    let share = match rotated {
        Rotated::Share(key, default) => rope.number_or(SHARE, fields.number_or(key, default)?)?,
        Rotated::All => {
            all_dims(fields)?;
            all_dims(&rope)?
        }
    };
    let original_context = fields.count_or(ORIGINAL_CONTEXT, rope.count_or(ORIGINAL_CONTEXT, context)?)?;
    let scaling = scaling(&rope, context, original_context)?;
    // The library rounds down; the share is in single precision here.
    let rotary_dims = (f64::from(share) * head_dim as f64 * (1.0 + f64::from(f32::EPSILON))) as usize;
    Ok(Position::Rotary { base, rotary_dims, pairing: Pairing::Half, scaling })
}

/// The share of a class that rotates all dims.
fn all_dims(fields: &Fields) -> Result<f32, InterchangeError> {
    match fields.number_or(SHARE, 1.0)? {
        1.0 => Ok(1.0),
        _ => Err(fields.refused(SHARE, "is ignored by this class, which rotates all dims; use 1.0")),
    }
}

/// The scaling that the object describes, of a model of this `context` that has learned from sequences of
/// `original_context` tokens first.
fn scaling(rope: &Fields, context: usize, original_context: usize) -> Result<RotaryScaling, InterchangeError> {
    let key = if rope.map.contains_key("rope_type") { "rope_type" } else { "type" };
    match rope.text_or(key, "default")? {
        "default" => Ok(RotaryScaling::Off),
        "linear" => Ok(RotaryScaling::Linear { factor: rope.number("factor")? }),
        "llama3" => Ok(RotaryScaling::Llama3 {
            factor: rope.number("factor")?,
            low_turns: rope.number("low_freq_factor")?,
            high_turns: rope.number("high_freq_factor")?,
            original_context,
        }),
        "yarn" => yarn(rope, context, original_context),
        _ => {
            let rule = "is not a supported rotary scaling; use \"default\", \"linear\", \"llama3\" or \"yarn\"";
            Err(rope.refused(key, rule))
        }
    }
}

/// `_compute_yarn_parameters` of the library: without a factor it is that of the contexts, without a magnitude that of
/// the paper, or a quotient of two.
fn yarn(rope: &Fields, context: usize, original_context: usize) -> Result<RotaryScaling, InterchangeError> {
    // Numbers of pairs that are not rounded, as in GPT-OSS.
    rope.only("truncate", true)?;
    let factor = rope.number_or("factor", (context as f64 / original_context as f64) as f32)?;
    let or_usual = |found: f32, usual: f32| if found == 0.0 { usual } else { found };
    let scaled = |scale: f32| f64::from(scale) * (f64::from(RotaryScaling::fitted_magnitude(factor)) - 1.0) + 1.0;
    let fitted = match [rope.number_or("mscale", 0.0)?, rope.number_or("mscale_all_dim", 0.0)?] {
        [0.0, _] | [_, 0.0] => RotaryScaling::fitted_magnitude(factor),
        [scale, of_all_dims] => (scaled(scale) / scaled(of_all_dims)) as f32,
    };
    Ok(RotaryScaling::Yarn {
        factor,
        low_turns: or_usual(rope.number_or("beta_slow", 1.0)?, 1.0),
        high_turns: or_usual(rope.number_or("beta_fast", 32.0)?, 32.0),
        original_context,
        magnitude: rope.number_or("attention_factor", fitted)?,
    })
}

/// Base, share of rotated dims and scaling, as far as the class has them; the base and the share under the names that
/// are given.
pub(super) fn write(base_key: &str, rotated: Rotated, model: &ModelSpec) -> Map<String, Value> {
    let Position::Rotary { base, rotary_dims, scaling, .. } = model.position else { return Map::new() };
    let mut map = object([(base_key, number(base))]);
    match rotated {
        Rotated::Share(key, _) => {
            map.insert(key.into(), number((rotary_dims as f64 / model.head_dim as f64) as f32));
        }
        Rotated::All => {}
    }
    let scaling = match scaling {
        RotaryScaling::Off => return map,
        RotaryScaling::Linear { factor } => object([("rope_type", "linear".into()), ("factor", number(factor))]),
        RotaryScaling::Llama3 { factor, low_turns, high_turns, original_context } => object([
            ("rope_type", "llama3".into()),
            ("factor", number(factor)),
            ("low_freq_factor", number(low_turns)),
            ("high_freq_factor", number(high_turns)),
            (ORIGINAL_CONTEXT, original_context.into()),
        ]),
        RotaryScaling::Yarn { factor, low_turns, high_turns, original_context, magnitude } => object([
            ("rope_type", "yarn".into()),
            ("factor", number(factor)),
            ("beta_slow", number(low_turns)),
            ("beta_fast", number(high_turns)),
            ("attention_factor", number(magnitude)),
            (ORIGINAL_CONTEXT, original_context.into()),
        ]),
    };
    map.insert("rope_scaling".into(), scaling.into());
    map
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn position(config: Value) -> Position {
        let fields = Fields { path: Path::new("config.json"), map: config.as_object().unwrap() };
        read(&fields, ("rope_theta", 10_000.0), Rotated::All, 8, 64).unwrap()
    }

    fn scaled(rope: Value) -> Value {
        let mut all = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0 });
        all.as_object_mut().unwrap().extend(rope.as_object().unwrap().clone());
        all
    }

    fn original_context(config: Value) -> usize {
        let Position::Rotary { scaling: RotaryScaling::Llama3 { original_context, .. }, .. } = position(config) else {
            panic!("another position");
        };
        original_context
    }

    /// `standardize_rope_params` of the library: what is next to the object goes before what is in it.
    #[test]
    fn the_first_context_stands_in_the_object_or_beside_it() {
        const KEY: &str = ORIGINAL_CONTEXT;
        assert_eq!(original_context(json!({ "rope_parameters": scaled(json!({ KEY: 32 })) })), 32);
        assert_eq!(original_context(json!({ KEY: 16, "rope_parameters": scaled(json!({})) })), 16);
        assert_eq!(original_context(json!({ KEY: 16, "rope_parameters": scaled(json!({ KEY: 32 })) })), 16);
        assert_eq!(original_context(json!({ "rope_parameters": scaled(json!({})) })), 64);
    }

    #[test]
    fn an_empty_object_hides_no_other() {
        let newer = json!({ "rope_type": "linear", "factor": 2.0, "rope_theta": 500.0 });
        let both = json!({ "rope_scaling": {}, "rope_parameters": newer });
        assert_eq!(position(both), position(json!({ "rope_parameters": newer })));
        assert!(matches!(position(json!({ "rope_parameters": newer })), Position::Rotary { base: 500.0, .. }));
    }
}
