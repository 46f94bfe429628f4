//! Sliding windows: which layers see the nearest tokens only, and how many.

use config::{LocalAttention, ModelSpec, Reach, Unit};
use serde_json::{Map, Value};

use super::object;
use crate::error::InterchangeError;
use crate::fields::Fields;

/// Tokens of a window that a file with windows leaves out, in Mistral and Qwen.
const WINDOW: usize = 4096;

/// The first layer with a window where a file leaves it out, in Qwen 2 and 3.
const FIRST_LAYER_WITH_WINDOW: usize = 28;

/// The library's names of layers.
const TYPES: [(&str, Reach); 2] = [("full_attention", Reach::Global), ("sliding_attention", Reach::Local)];

const KEY: &str = "sliding_window";

/// Which layers of a class have windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windows {
    /// None.
    Off,
    /// All, as in Mistral.
    All,
    /// All where the file gives a window, as in Mixtral.
    Given,
    /// None: a file that wants some is refused, as in the classes of Qwen with experts.
    Refused,
    /// Those that `layer_types` names, or else the last ones, as in Qwen.
    Last,
    /// Those that `layer_types` names, or else all but each last one of a period, as in Gemma: its length, or the key
    /// that has it and the usual one.
    Periods(Period),
}

/// See [`Windows::Periods`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Period {
    Of(usize),
    InFile(&'static str, usize),
}

/// The windows of a class.
pub(super) fn read(
    windows: Windows,
    fields: &Fields,
    num_layers: usize,
) -> Result<Option<LocalAttention>, InterchangeError> {
    let of = |pattern: &[Reach], window| {
        let pattern = LocalAttention::shortest(pattern, num_layers);
        let local = LocalAttention { window, pattern, rotary_base: None };
        local.pattern.contains(&Reach::Local).then_some(local)
    };
    match windows {
        // Null means that there is not a window, and a missing key the usual one.
        Windows::All if fields.map.get(KEY).is_some_and(Value::is_null) => Ok(None),
        Windows::All => Ok(of(&[Reach::Local], window(fields)?)),
        Windows::Given => match fields.count_or(KEY, 0)? {
            0 => Ok(None),
            window => Ok(of(&[Reach::Local], window)),
        },
        Windows::Refused => fields.only("use_sliding_window", false).map(|()| None),
        Windows::Last => match fields.truth_or("use_sliding_window", false)? {
            true => Ok(of(&layers(fields, num_layers)?, window(fields)?)),
            false => Ok(None),
        },
        Windows::Periods(period) => {
            let period = match period {
                Period::Of(layers) => layers,
                Period::InFile(key, usual) => fields.count_or(key, usual)?,
            };
            Ok(of(&layers_of_gemma(fields, num_layers, period)?, window(fields)?))
        }
        Windows::Off => Ok(None),
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
pub(super) fn write(windows: Windows, model: &ModelSpec) -> Map<String, Value> {
    let window = model.local_attention.as_ref().map(|local| local.window);
    let reach = |layer: usize| model.reach_of(Unit::Layer(layer as u32));
    let name = |reach: Reach| TYPES.iter().find(|(_, known)| *known == reach).map_or("", |(name, _)| name);
    let types = || (0..model.num_layers).map(|layer| name(reach(layer))).collect::<Vec<&str>>();
    match (windows, &model.local_attention) {
        (Windows::All | Windows::Given, _) => object([(KEY, window.into())]),
        (Windows::Periods(_), _) => {
            let mut map = object([("layer_types", types().into())]);
            map.extend(window.map(|window| (KEY.to_string(), window.into())));
            map
        }
        (Windows::Last, Some(_)) => {
            // The first layer with a window, for programs that do not read the types.
            let first = (0..model.num_layers).find(|layer| reach(*layer) == Reach::Local).unwrap_or(model.num_layers);
            object([
                ("use_sliding_window", true.into()),
                (KEY, window.into()),
                ("layer_types", types().into()),
                ("max_window_layers", first.into()),
            ])
        }
        (Windows::Last, None) | (Windows::Off | Windows::Refused, _) => Map::new(),
    }
}
