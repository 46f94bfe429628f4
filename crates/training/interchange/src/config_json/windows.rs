//! Sliding windows: which layers see the nearest tokens only, and how many.

use config::{LocalAttention, ModelSpec, Reach, Unit};
use serde_json::{Map, Value};

use super::object;
use crate::error::InterchangeError;
use crate::family::Family;
use crate::fields::Fields;

/// Tokens of a window that a file with windows leaves out, in Mistral and Qwen.
const WINDOW: usize = 4096;

/// The first layer with a window where a file leaves it out, in Qwen 2 and 3.
const FIRST_LAYER_WITH_WINDOW: usize = 28;

/// The library's names of layers.
const TYPES: [(&str, Reach); 2] = [("full_attention", Reach::Global), ("sliding_attention", Reach::Local)];

const KEY: &str = "sliding_window";

/// The windows of a class that has them: in Mistral of all layers, in others of those that `layer_types` names, or else
/// of the last ones in Qwen and of all but each last one of a period in Gemma.
pub(super) fn read(
    family: Family,
    fields: &Fields,
    num_layers: usize,
) -> Result<Option<LocalAttention>, InterchangeError> {
    let of = |pattern: &[Reach], window| {
        let pattern = LocalAttention::shortest(pattern, num_layers);
        let local = LocalAttention { window, pattern, rotary_base: None };
        local.pattern.contains(&Reach::Local).then_some(local)
    };
    match family {
        // Null means that there is not a window, and a missing key the usual one.
        Family::Mistral if fields.map.get(KEY).is_some_and(Value::is_null) => Ok(None),
        Family::Mistral => Ok(of(&[Reach::Local], window(fields)?)),
        Family::Qwen2 | Family::Qwen3 => match fields.truth_or("use_sliding_window", false)? {
            true => Ok(of(&layers(fields, num_layers)?, window(fields)?)),
            false => Ok(None),
        },
        Family::Gemma2 => Ok(of(&layers_of_gemma(fields, num_layers, 2)?, window(fields)?)),
        Family::Gemma3 => {
            let period = fields.count_or("sliding_window_pattern", 6)?;
            Ok(of(&layers_of_gemma(fields, num_layers, period)?, window(fields)?))
        }
        Family::Llama
        | Family::Olmo2
        | Family::GptNeoX
        | Family::Bloom
        | Family::Opt
        | Family::Gpt2
        | Family::Glm
        | Family::CodeGeeX
        | Family::Metaseq
        | Family::GptNeoXShards => Ok(None),
    }
}

fn window(fields: &Fields) -> Result<usize, InterchangeError> {
    match fields.count_or(KEY, WINDOW)? {
        0 => Err(fields.refused(KEY, "must let a token see itself; use at least 1")),
        window => Ok(window),
    }
}

/// The reach of each layer of Qwen.
fn layers(fields: &Fields, num_layers: usize) -> Result<Vec<Reach>, InterchangeError> {
    let first = fields.count_or("max_window_layers", FIRST_LAYER_WITH_WINDOW)?;
    let usual = |layer| if layer < first { Reach::Global } else { Reach::Local };
    types_of_layers(fields, num_layers, usual)
}

/// The reach of each layer of Gemma, of which the last of each `period` is global.
fn layers_of_gemma(fields: &Fields, num_layers: usize, period: usize) -> Result<Vec<Reach>, InterchangeError> {
    let usual = |layer: usize| if (layer + 1).is_multiple_of(period.max(1)) { Reach::Global } else { Reach::Local };
    types_of_layers(fields, num_layers, usual)
}

/// The reach of each layer that `layer_types` names, or the `usual` one.
fn types_of_layers(
    fields: &Fields,
    num_layers: usize,
    usual: impl Fn(usize) -> Reach,
) -> Result<Vec<Reach>, InterchangeError> {
    const KEY: &str = "layer_types";
    let Some(types) = fields.map.get(KEY).and_then(Value::as_array) else {
        return Ok((0..num_layers).map(usual).collect());
    };
    if types.len() != num_layers {
        return Err(fields.refused(KEY, format!("must have num_hidden_layers = {num_layers} entries")));
    }
    let reach = |name: &Value| TYPES.iter().find(|(known, _)| name == known).map(|(_, reach)| *reach);
    let names = TYPES.map(|(name, _)| name).join(" and ");
    types
        .iter()
        .map(reach)
        .collect::<Option<_>>()
        .ok_or_else(|| fields.refused(KEY, format!("must name {names} alone")))
}

/// The keys that [`read`] reads.
pub(super) fn write(family: Family, model: &ModelSpec) -> Map<String, Value> {
    let window = model.local_attention.as_ref().map(|local| local.window);
    let reach = |layer: usize| model.reach_of(Unit::Layer(layer as u32));
    let name = |reach: Reach| TYPES.iter().find(|(_, known)| *known == reach).map_or("", |(name, _)| name);
    let types = || (0..model.num_layers).map(|layer| name(reach(layer))).collect::<Vec<&str>>();
    match (family, &model.local_attention) {
        (Family::Mistral, _) => object([(KEY, window.into())]),
        (Family::Gemma2 | Family::Gemma3, _) => {
            let mut map = object([("layer_types", types().into())]);
            map.extend(window.map(|window| (KEY.to_string(), window.into())));
            map
        }
        (Family::Qwen2 | Family::Qwen3, Some(_)) => {
            // The first layer with a window, for programs that do not read the types.
            let first = (0..model.num_layers).find(|layer| reach(*layer) == Reach::Local).unwrap_or(model.num_layers);
            object([
                ("use_sliding_window", true.into()),
                (KEY, window.into()),
                ("layer_types", types().into()),
                ("max_window_layers", first.into()),
            ])
        }
        (Family::Qwen2 | Family::Qwen3, None) => Map::new(),
        (
            Family::Llama
            | Family::Olmo2
            | Family::GptNeoX
            | Family::Bloom
            | Family::Opt
            | Family::Gpt2
            | Family::Glm
            | Family::CodeGeeX
            | Family::Metaseq
            | Family::GptNeoXShards,
            _,
        ) => Map::new(),
    }
}
