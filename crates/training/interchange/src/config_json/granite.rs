//! `GraniteMoeForCausalLM`: a Mixtral with a factor at each of four places.
//!
//! Two are keys of a model: `attention_multiplier` a is `query_scalar = 1 / a^2`, `logits_scaling` is `logit_divisor`.
//! `residual_multiplier` m scales the outputs of all blocks where they join the stream. Every reader of the stream is
//! an RMS norm, so the stream may be written in units of m: with `x = m x'`,
//!
//! ```text
//! r = x + m A(n(x))                  r' = x' + A(n'(x'))
//! x / sqrt(mean(x^2) + e)      is    x' / sqrt(mean(x'^2) + e / m^2)
//! ```
//! So the model has no such factor: its `norm_epsilon` is e / m^2, and its `embedding_scale` is
//! `embedding_multiplier` / m. The function and all its parameters are the same. A folder that is written has
//! `residual_multiplier` 1.

use config::{ModelSpec, Norm};
use serde_json::{Map, Value};

use super::llama::{self, LLAMA, OF_GRANITE_MOE};
use super::{number, object};
use crate::error::InterchangeError;
use crate::facts::Facts;
use crate::fields::Fields;
use crate::names::{
    Form::{OfExpert, Whole},
    Names, common,
};

pub(crate) const GRANITE_MOE: Facts =
    Facts { class: "GraniteMoeForCausalLM", model_type: "granitemoe", names: &NAMES, read, write, ..LLAMA };

const NAMES: Names = Names {
    layer: "layers",
    of_layer: &[
        common::ATTENTION,
        common::NORMS,
        &[
            ("router", "block_sparse_moe.router.layer", Whole),
            ("experts.gate", "block_sparse_moe.input_linear", OfExpert(0, 2)),
            ("experts.up", "block_sparse_moe.input_linear", OfExpert(1, 2)),
            ("experts.down", "block_sparse_moe.output_linear", OfExpert(0, 1)),
        ],
    ],
    others: common::OTHERS,
};

const EMBEDDING: &str = "embedding_multiplier";
const RESIDUAL: &str = "residual_multiplier";
const ATTENTION: &str = "attention_multiplier";
const LOGITS: &str = "logits_scaling";

fn read(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    let multiplier = |key| fields.positive_or(key, 1.0);
    let residual = multiplier(RESIDUAL)?;
    let model = llama::read(&OF_GRANITE_MOE, fields)?;
    let scalar = query_scalar(multiplier(ATTENTION)?);
    let other_than = |usual: f32, value: f32| (value != usual).then_some(value);
    let epsilon = (f64::from(model.norm.epsilon) / residual.powi(2)) as f32;
    Ok(ModelSpec {
        norm: Norm { epsilon, ..model.norm },
        embedding_scale: other_than(1.0, (multiplier(EMBEDDING)? / residual) as f32),
        query_scalar: other_than(model.head_dim as f32, scalar),
        logit_divisor: other_than(1.0, multiplier(LOGITS)? as f32),
        ..model
    })
}

/// The number whose square root divides scores in place of a factor.
fn query_scalar(multiplier: f64) -> f32 {
    (1.0 / multiplier.powi(2)) as f32
}

fn write(model: &ModelSpec) -> Map<String, Value> {
    let mut map = llama::write(&OF_GRANITE_MOE, model);
    let scalar = model.query_scalar.unwrap_or(model.head_dim as f32);
    let exact = 1.0 / f64::from(scalar).sqrt();
    // The shortest number that is read as the same one.
    let short = number(exact as f32);
    let is_same = short.as_f64().is_some_and(|multiplier| query_scalar(multiplier) == scalar);
    map.extend(object([
        (EMBEDDING, number(model.embedding_scale.unwrap_or(1.0))),
        (RESIDUAL, number(1.0)),
        (ATTENTION, if is_same { short } else { exact.into() }),
        (LOGITS, number(model.logit_divisor.unwrap_or(1.0))),
    ]));
    map
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn config(changes: Value) -> Map<String, Value> {
        let sizes = json!({
            "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 32,
            "vocab_size": 9, "max_position_embeddings": 16,
        });
        let both = [sizes, changes].into_iter().filter_map(|value| value.as_object().cloned());
        both.flatten().collect()
    }

    fn model(map: &Map<String, Value>) -> Result<ModelSpec, String> {
        read(&Fields { path: Path::new("config.json"), map }).map_err(|error| error.to_string())
    }

    /// The factors of Granite 3.0 1B-A400M, but for that of attention.
    #[test]
    fn factors_are_written_so_that_the_same_model_is_read() {
        for attention in [0.015625, 0.3, 0.0078125, 1.0, 0.117, 0.25] {
            let map = config(json!({
                "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": attention,
                "logits_scaling": 6.0, "rms_norm_eps": 1e-6,
            }));
            let model = model(&map).unwrap_or_else(|said| panic!("{said}"));
            assert_eq!(model.embedding_scale, Some(54.545456));
            assert_eq!(model.logit_divisor, Some(6.0));
            assert_eq!(model.norm.epsilon, 2.0661157e-5);
            assert_eq!(model.query_scalar, (attention != 0.25).then_some((1.0 / (attention * attention)) as f32));
            let written = write(&model);
            assert_eq!(written["attention_multiplier"], attention);
            assert_eq!(super::read(&Fields { path: Path::new("config.json"), map: &written }).ok(), Some(model));
        }
    }

    /// No factor in single precision has this square.
    #[test]
    fn a_scalar_between_factors_is_kept() {
        for scalar in [7.0, 7.000_000_5, 3.3, 80.0, 81.0] {
            let plain = model(&config(json!({}))).unwrap_or_else(|said| panic!("{said}"));
            let scaled = ModelSpec { query_scalar: Some(scalar), ..plain };
            let written = write(&scaled);
            assert_eq!(model(&written), Ok(scaled));
        }
    }

    #[test]
    fn factors_that_are_not_above_0_are_refused_by_name() {
        for key in [EMBEDDING, RESIDUAL, ATTENTION, LOGITS] {
            let said = model(&config(json!({ key: -0.5 }))).map(|_| ());
            assert_eq!(said, Err(format!("config.json: {key} = -0.5 is not a number above 0")));
        }
    }
}
