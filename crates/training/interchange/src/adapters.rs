//! Adapters as a folder of PEFT: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::BTreeSet;
use std::path::Path;

use checkpoint::{TensorEntry, TensorWriter};
use config::{Format, LoraSpec, ModelSpec, ParamSpec, Unit, params};
use mesh::Region;
use serde_json::json;

use crate::error::InterchangeError;
use crate::export::{family_of, fits};
use crate::family::Family;
use crate::names::stored_rows;
use crate::stored_rows::Orientation;

/// The description of adapters in a folder of PEFT.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";
/// Their tensors.
pub const ADAPTER_TENSORS: &str = "adapter_model.safetensors";

/// The prefix of PEFT before the names of the library.
const PREFIX: &str = "base_model.model.";

/// Where an adapter is in the folder.
struct Placed {
    param: ParamSpec,
    tensor: String,
    /// The name of the linear layer within its block.
    module: String,
}

/// Writes the adapters of `model` into `folder`, which is there, as PEFT reads them, their numbers rounded to `stored`.
/// `base` is the path or the name of the model that they belong to, and `read` gives whole parameters.
///
/// # Errors
/// A model without adapters, or of a class that has no linear layer of its own for one of them; a number that `stored`
/// lacks, files that cannot be written, and errors of `read`.
pub fn export_adapters<E: From<InterchangeError>>(
    model: &ModelSpec,
    base: Option<&str>,
    folder: &Path,
    stored: Format,
    mut read: impl FnMut(&ParamSpec, &Region, &mut [f32]) -> Result<(), E>,
) -> Result<Family, E> {
    let nothing = || InterchangeError::NoAdapters;
    let lora = model.lora.as_ref().ok_or_else(nothing)?;
    let family = family_of(model)?;
    let placed = placed(family, model)?;
    let entry = |placed: &Placed| TensorEntry { name: placed.tensor.clone(), shape: placed.param.shape.clone() };
    let mut entries: Vec<TensorEntry> = placed.iter().map(entry).collect();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let file = folder.join(ADAPTER_TENSORS);
    let writer = TensorWriter::create_in(&file, &entries, stored).map_err(InterchangeError::from)?;
    for Placed { param, tensor, .. } in &placed {
        let region = Region::whole(&param.shape);
        let mut values = vec![0.0; region.len()];
        read(param, &region, &mut values)?;
        fits(&param.name, &values, stored)?;
        writer.put(tensor, &region, &values);
    }
    writer.finish().map_err(InterchangeError::from)?;
    let file = folder.join(ADAPTER_CONFIG);
    let text = format!("{:#}\n", description(lora, base, &placed));
    files::replace(&file, text).map_err(|reason| InterchangeError::Write { path: file, reason })?;
    Ok(family)
}

fn placed(family: Family, model: &ModelSpec) -> Result<Vec<Placed>, InterchangeError> {
    let mut list = vec![];
    for layer in 0..model.num_layers as u32 {
        let of_layer = params(model, Unit::Layer(layer));
        for param in params(model, Unit::Adapters(layer)) {
            let (linear, part) = match (param.name.strip_suffix(".lora_a"), param.name.strip_suffix(".lora_b")) {
                (Some(linear), _) => (linear.to_string(), "lora_A"),
                (None, Some(linear)) => (linear.to_string(), "lora_B"),
                (None, None) => continue,
            };
            let refused = || InterchangeError::NoFamily {
                reason: format!(
                    "{} keeps {linear} in one matrix with others, or transposed; export merged weights instead",
                    family.class()
                ),
            };
            let base = of_layer.iter().find(|base| base.name == format!("{linear}.weight")).ok_or_else(refused)?;
            let stored = stored_rows(family.facts().names, model, base, 1).ok_or_else(refused)?;
            if stored.shape != base.shape || stored.orientation != Orientation::OutputsFirst {
                return Err(refused());
            }
            let full = family.full_name(&stored.tensor);
            let module = full.trim_end_matches(".weight");
            let tensor = format!("{PREFIX}{module}.{part}.weight");
            let module = module.rsplit('.').next().unwrap_or(module).to_string();
            list.push(Placed { param, tensor, module });
        }
    }
    Ok(list)
}

fn description(lora: &LoraSpec, base: Option<&str>, placed: &[Placed]) -> serde_json::Value {
    let modules: BTreeSet<&str> = placed.iter().map(|placed| placed.module.as_str()).collect();
    json!({
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": lora.rank,
        "target_modules": modules,
        "task_type": "CAUSAL_LM",
    })
}
