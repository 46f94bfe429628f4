//! Weights as a folder of the Hugging Face library.

use std::collections::BTreeMap;
use std::path::Path;

use checkpoint::{TensorEntry, TensorWriter};
use config::{Balance, ExpertsSpec, Format, ModelSpec, ParamSpec, Unit, params};
use mesh::Region;
use serde_json::{Map, Value};

use crate::config_json;
use crate::error::InterchangeError;
use crate::family::Family;
use crate::fields::Fields;
use crate::file_names::{CONFIG, TENSORS};
use crate::names::stored_rows;
use crate::stacks::{Matrix, matrices};
use crate::stored_rows::{Orientation, StoredRows, row_chunks, transposed};

/// Elements that are held at once, or one row where that is wider.
const CHUNK_LEN: usize = 1 << 22;

/// The largest number of half precision.
const MAX_FP16: f32 = 65504.0;

/// The family that has `model`.
///
/// # Errors
/// None has.
pub fn family_of(model: &ModelSpec) -> Result<Family, InterchangeError> {
    if let Some(widths) = &model.ffn_hidden_of_layers {
        let reason = format!("model.ffn_hidden_of_layers = {widths:?}; a class has one width for all layers");
        return Err(InterchangeError::NoFamily { reason });
    }
    // Neither initial values nor a loss of training are part of a trained model, nor is a width that no layer has.
    let ffn_hidden = match &model.experts {
        Some(experts) if !model.has_dense_blocks() => experts.hidden,
        Some(_) | None => model.ffn_hidden,
    };
    if model.experts.is_some_and(|experts| experts.balance.bias.is_some()) {
        let reason = "model.router_bias = true; no class that is written here has a correction of choices".into();
        return Err(InterchangeError::NoFamily { reason });
    }
    if model.experts.is_some() && model.biases.are_in_feed_forward() {
        let biases = model.biases.name();
        let reason =
            format!("model.biases = \"{biases}\"; no class that is written here has biases of routers and experts");
        return Err(InterchangeError::NoFamily { reason });
    }
    // Losses of routers train them and do not belong to the function that they compute.
    let experts = model.experts.map(|experts| ExpertsSpec { balance: Balance::NONE, ..experts });
    let trained = ModelSpec { output_init_std: None, xavier_gain: None, z_loss: None, lora: None, ..model.clone() };
    let model = ModelSpec { ffn_hidden, experts, ..trained };
    let reads_back = |family: &Family| {
        let map = family.write(&model);
        let fields = Fields { path: Path::new(CONFIG), map: &map };
        family.read(&fields).is_ok_and(|read| read == model)
    };
    Family::ALL.iter().copied().find(reads_back).ok_or_else(|| {
        let classes: Vec<&str> = Family::ALL.iter().map(|family| family.class()).collect();
        let reason = format!(
            "its norms, positions, activation, blocks, biases, padding and dropouts together are those of none of {}",
            classes.join(", ")
        );
        InterchangeError::NoFamily { reason }
    })
}

/// Writes `config.json`, with `special_tokens` in it ([`crate::special_tokens::read`]), and `model.safetensors`, its
/// numbers rounded to `stored`, into `folder`, which is there. `read` gives boxes of parameters.
///
/// # Errors
/// A model that no class has, files that cannot be written, and what `read` says.
pub fn export<E: From<InterchangeError>>(
    model: &ModelSpec,
    special_tokens: Map<String, Value>,
    folder: &Path,
    stored: Format,
    mut read: impl FnMut(&ParamSpec, &Region, &mut [f32]) -> Result<(), E>,
) -> Result<Family, E> {
    let family = family_of(model)?;
    let units = Unit::holding(model.num_layers);
    let declared: Vec<ParamSpec> = units.flat_map(|unit| params(model, unit)).collect();
    let mut placed: Vec<(&ParamSpec, Matrix, StoredRows)> = vec![];
    for (param, matrix) in declared.iter().flat_map(|param| matrices(param).into_iter().map(move |own| (param, own))) {
        let name = &matrix.param.name;
        let nameless = || InterchangeError::NoFamily { reason: format!("{} has no {name}", family.class()) };
        let stored_rows = stored_rows(family.facts().names, model, &matrix.param, 1).ok_or_else(nameless)?;
        placed.push((param, matrix, stored_rows));
    }
    let shapes: BTreeMap<String, Vec<usize>> = placed
        .iter()
        .map(|(_, _, stored_rows)| (family.full_name(&stored_rows.tensor), stored_rows.shape.clone()))
        .collect();
    let entries: Vec<TensorEntry> = shapes.into_iter().map(|(name, shape)| TensorEntry { name, shape }).collect();
    let writer = TensorWriter::create_in(&folder.join(TENSORS), &entries, stored).map_err(InterchangeError::from)?;
    let mut values = vec![];
    for (param, matrix, stored_rows) in &placed {
        for region in row_chunks(&matrix.param.shape, CHUNK_LEN) {
            values.resize(region.len(), 0.0);
            read(param, &matrix.in_stack(&region), &mut values)?;
            fits(&param.name, &values, stored)?;
            put(&writer, &family.full_name(&stored_rows.tensor), stored_rows, &region, &values);
        }
    }
    writer.finish().map_err(InterchangeError::from)?;
    let file = folder.join(CONFIG);
    let mut map = special_tokens;
    map.extend(family.write(model));
    map.insert("torch_dtype".into(), config_json::dtype(stored).into());
    let text = format!("{:#}\n", Value::Object(map));
    files::replace(&file, text).map_err(|reason| InterchangeError::Write { path: file, reason })?;
    Ok(family)
}

/// Whether all of `values` have a number of `stored` near them: half precision ends at 65504.
pub(crate) fn fits(parameter: &str, values: &[f32], stored: Format) -> Result<(), InterchangeError> {
    match stored {
        Format::Fp32 | Format::Bf16 => Ok(()),
        Format::Fp16 => match values.iter().find(|value| value.is_finite() && value.abs() > MAX_FP16) {
            Some(value) => Err(InterchangeError::TooLarge { parameter: parameter.into(), value: *value }),
            None => Ok(()),
        },
    }
}

fn put(writer: &TensorWriter, tensor: &str, stored_rows: &StoredRows, region: &Region, values: &[f32]) {
    let cols: usize = region.extent[1..].iter().product();
    for run in stored_rows.runs(region) {
        let values = &values[run.offset * cols..(run.offset + run.len) * cols];
        match (stored_rows.orientation, region.ndim()) {
            (Orientation::InputsFirst, 2) => writer.put(tensor, &run.stored, &transposed(values, run.len, cols)),
            (Orientation::InputsFirst | Orientation::OutputsFirst, _) => writer.put(tensor, &run.stored, values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::RunConfig;

    fn message(sets: &[&str]) -> Result<Family, String> {
        let of_mixtral = ["model.experts=8", "model.biases=false", "model.norm=rms", "model.position=rotary"];
        let more = ["model.activation=swiglu", "model.tied_embeddings=false", "model.expert_hidden=64"];
        let sets: Vec<String> = [&of_mixtral[..], &more, sets].concat().iter().map(ToString::to_string).collect();
        family_of(&RunConfig::load("", "", &sets).expect("legal").model).map_err(|error| error.to_string())
    }

    #[test]
    fn losses_of_routers_are_left_out_and_a_correction_is_refused_by_name() {
        let losses = ["model.router_balance_loss=0.01", "model.router_z_loss=0.001", "model.router_statistics=false"];
        assert_eq!(message(&losses), message(&[]));
        assert!(message(&losses).is_ok());
        let expected = "no Hugging Face class has this model: model.router_bias = true; no class that is written here \
                        has a correction of choices";
        assert_eq!(message(&["model.router_bias=true"]), Err(expected.to_string()));
    }

    #[test]
    fn biases_of_experts_and_clamped_gates_are_refused_by_name() {
        let of_biases = message(&["model.biases=ffn"]).expect_err("refused");
        let said = "model.biases = \"ffn\"; no class that is written here has biases of routers and experts";
        assert!(of_biases.ends_with(said), "{of_biases}");
        let of_gates = message(&["model.activation=swiglu_clamped"]).expect_err("refused");
        assert!(of_gates.contains("its norms, positions, activation"), "{of_gates}");
    }

    #[test]
    fn layers_of_different_widths_are_refused_by_name() {
        let model = RunConfig::quick_start().model;
        let model = ModelSpec { num_layers: 2, ffn_hidden_of_layers: Some(vec![512, 256]), ..model };
        let message = family_of(&model).map_err(|error| error.to_string());
        let expected = "no Hugging Face class has this model: model.ffn_hidden_of_layers = [512, 256]; a class has one \
                        width for all layers";
        assert_eq!(message, Err(expected.to_string()));
    }
}
