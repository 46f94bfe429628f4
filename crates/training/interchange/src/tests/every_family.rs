//! Every class, whether it has vectors of another program or not: the model that its `config.json` describes is
//! described again, and each parameter is found in the folder that is written.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use config::{
    Balance, ExpertsSpec, Format, ModelSpec, ParamSpec, RouterScores, RouterWeights, Routing, RunConfig, all_params,
};
use interchange::fields::Fields;
use interchange::{Family, HuggingFaceFolder, InterchangeError, export};
use mesh::Region;
use serde_json::{Map, Value};

/// Folders of the library, and the tests that compare with its numbers.
const FOLDERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../app/cli/tests/hugging_face");

/// Shards that [`crate::tests::published`] cuts by hand.
const CUT_BY_HAND: [&str; 2] = ["metaseq", "GPT-NeoX-20B"];

/// A small model, with experts or without.
fn small(experts: Option<ExpertsSpec>) -> ModelSpec {
    let quick_start = RunConfig::quick_start().model;
    ModelSpec {
        num_layers: 2,
        hidden: 16,
        num_heads: 4,
        num_kv_heads: 4,
        head_dim: 4,
        ffn_hidden: 20,
        vocabulary: 31,
        context: 12,
        dropout: 0.0,
        attention_dropout: 0.0,
        experts,
        ..quick_start
    }
}

const EXPERTS: ExpertsSpec = ExpertsSpec {
    number: 4,
    per_token: 2,
    hidden: 20,
    shared: None,
    first_layer: 0,
    layer_interval: 1,
    routing: Routing { scores: RouterScores::Softmax, weights: RouterWeights::Normalised, scale: 1.0, groups: None },
    balance: Balance::NONE,
};

fn read(family: Family, map: &Map<String, Value>) -> Result<ModelSpec, InterchangeError> {
    family.read(&Fields { path: Path::new("config.json"), map })
}

/// The model of `family` that is nearest to a small one.
fn model_of(family: Family) -> ModelSpec {
    let models = [small(None), small(Some(EXPERTS))];
    let has_experts = |model: &ModelSpec| model.experts.is_some();
    let nearest = |model: ModelSpec| Some((has_experts(&model), read(family, &family.write(&model)).ok()?));
    // A class with experts has some where a file leaves their number out, too many for this test.
    let with = models.into_iter().filter_map(nearest).find(|(had, read)| has_experts(read) == *had);
    with.unwrap_or_else(|| panic!("{} describes no small model", family.class())).1
}

/// A number of its own for each element.
fn value(param: &ParamSpec, element: usize) -> f32 {
    (param.id() % 512) as f32 + element as f32 / 1024.0
}

fn put(param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), InterchangeError> {
    let strides: Vec<usize> = (0..param.shape.len()).map(|dim| param.shape[dim + 1..].iter().product()).collect();
    for (index, out) in values.iter_mut().enumerate() {
        let mut rest = index;
        let element = region.extent.iter().enumerate().map(|(dim, _)| {
            let inner: usize = region.extent[dim + 1..].iter().product();
            let place = region.start[dim] + rest / inner;
            rest %= inner;
            place * strides[dim]
        });
        *out = value(param, element.sum());
    }
    Ok(())
}

#[test]
fn every_class_is_compared_or_cut_by_hand() {
    let lists = ["mod.rs", "experts.rs"].map(|name| fs::read_to_string(Path::new(FOLDERS).join(name)).unwrap());
    let mut known: BTreeSet<String> = CUT_BY_HAND.map(str::to_string).into();
    let folders = fs::read_dir(FOLDERS).unwrap().map(|entry| entry.unwrap().path());
    for folder in folders.filter(|path| path.join("config.json").is_file()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let named = format!("\"{name}\"");
        assert!(lists.iter().any(|list| list.contains(&named)), "{name} is in no list of tests");
        let opened = HuggingFaceFolder::open(&folder).unwrap_or_else(|error| panic!("{error}"));
        known.insert(opened.family.class().into());
    }
    assert_eq!(known, Family::ALL.iter().map(|family| family.class().to_string()).collect());
}

#[test]
fn what_is_written_is_read_again() {
    for family in Family::ALL.iter().copied() {
        let (class, model) = (family.class(), model_of(family));
        assert_eq!(read(family, &family.write(&model)).unwrap(), model, "{class}");

        let folder = std::env::temp_dir().join(format!("pleach-{class}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // Where two classes have a model, the first is written.
        let written = export(&model, Map::new(), &folder, Format::Fp32, put).unwrap();
        let opened = HuggingFaceFolder::open(&folder).unwrap();
        assert_eq!((opened.family, &opened.model), (written, &model), "{class}");
        for param in all_params(&model) {
            let mut values = vec![0.0; param.len()];
            opened.get(&param, &Region::whole(&param.shape), &mut values).unwrap();
            let expected: Vec<f32> = (0..param.len()).map(|element| value(&param, element)).collect();
            assert_eq!(values, expected, "{class}: {}", param.name);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
