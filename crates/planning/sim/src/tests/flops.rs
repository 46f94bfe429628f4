//! The formula of a step's operations against the operations that the layers submit.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::path::Path;

use config::{ModelSpec, ParamSpec, RunConfig, Unit, all_params, flops_per_token};
use device::{Dtype, Family};
use model::MicrobatchShape;
use record::{RecordCase, UnitRecords};

use super::training_case::training_case;

/// The presets, and the examples that read no other file, each with its name.
fn presets() -> Vec<(String, RunConfig)> {
    let folder = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(name);
    let folders = ["crates/app/run/presets", "examples"].map(folder);
    let entries = folders.iter().flat_map(|folder| folder.read_dir().unwrap());
    let mut list: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    list.retain(|path| !path.ends_with("pp_schedule_file.toml"));
    list.sort();
    let load = |path: &Path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let config = RunConfig::load(&name, &std::fs::read_to_string(path).unwrap(), &[]).unwrap();
        (name, config)
    };
    list.iter().filter(|path| path.extension().is_some_and(|ending| ending == "toml")).map(|path| load(path)).collect()
}

/// Floating-point operations of matrix products for a token, and the passes of attention, of a training step.
fn recorded(model: &ModelSpec, sequence_length: usize) -> (f64, usize) {
    let records = UnitRecords::new(RecordCase {
        stored: Dtype::F32,
        ..training_case(model, MicrobatchShape::whole(1, sequence_length))
    })
    .unwrap();
    let (mut products, mut attention) = (0, 0);
    for pass in Unit::computing(model.num_layers).flat_map(|unit| records.units().of(unit)) {
        for op in pass.record.submitted.iter().flat_map(|op| op.unfused()) {
            match op.family() {
                Family::Product { .. } | Family::GroupedProduct { .. } => products += op.cost().multiply_adds,
                Family::Attention { .. } | Family::AttentionBackward { .. } => attention += 1,
                Family::Fused(_) | Family::Norm { .. } | Family::NormBackward { .. } | Family::Rotary { .. } => {}
                Family::Activation { .. } | Family::ActivationBackward { .. } | Family::Lookup { .. } => {}
                Family::LookupBackward { .. } | Family::Memory => {}
            }
        }
    }
    (2.0 * products as f64 / sequence_length as f64, attention)
}

/// Whether no product reads `param`: vectors, and tables of which rows are looked up alone.
fn is_no_factor(model: &ModelSpec, param: &ParamSpec) -> bool {
    let is_looked_up = match param.unit {
        Unit::Table => !model.tied_embeddings,
        Unit::Embedding | Unit::Head => param.name.ends_with("position.weight"),
        Unit::Layer(_) | Unit::Adapters(_) | Unit::Experts(_) => false,
    };
    param.shape.len() == 1 || is_looked_up
}

/// The formula counts all parameters, also those that no product reads. The rest are the products of the layers.
#[test]
fn the_formula_counts_the_products_that_layers_submit() {
    let presets = presets();
    assert!(presets.len() > 30, "{}", presets.len());
    for (name, RunConfig { model, train, .. }) in presets {
        let length = train.sequence_length;
        let (products, attention) = recorded(&model, length);
        assert_eq!(attention, 2 * model.attention_layers(), "{name}");
        let formula = flops_per_token(&model, length);
        let seen = |unit| model.window_of(unit).map_or(length, |window| window.min(length));
        let attending = (0..model.num_layers as u32).map(Unit::Layer);
        let attending = attending.chain((model.attention_layers() > model.num_layers).then_some(Unit::Head));
        let of_attention = 12.0 * model.query_width() as f64 * attending.map(seen).sum::<usize>() as f64;
        let others =
            all_params(&model).filter(|param| is_no_factor(&model, param)).map(|param| param.len()).sum::<usize>();
        let counted = products + of_attention + 6.0 * others as f64;
        let difference = (formula - counted) / formula;
        println!("{name}: {:.3} % of the formula are parameters without a product", 600.0 * others as f64 / formula);
        assert!(difference.abs() < 1e-12, "{name}: the formula is {formula}, layers submit {counted}");
    }
}
