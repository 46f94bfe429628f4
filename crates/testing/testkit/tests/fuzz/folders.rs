//! Readers of folders of the Hugging Face library: the configuration, and the index of several files of weights.

use std::path::Path;

use config::ModelSpec;
use interchange::{HuggingFaceFolder, InterchangeError, export};
use mesh::Region;
use testkit::models::{Style, proof_model};

use crate::corrupted::Corrupted;
use crate::no_seal;
use crate::watched::{INPUTS, Read, Scratch, Target};

/// A folder with one layer of a style.
fn exported(scratch: &Scratch, style: Style) {
    let model = ModelSpec {
        num_layers: 1,
        hidden: 16,
        num_heads: 2,
        num_kv_heads: 2,
        head_dim: 8,
        ffn_hidden: 64,
        ..proof_model(style, 2, style == Style::Gpt2)
    };
    let model = match model.position {
        config::Position::Rotary { base, pairing, scaling, .. } => ModelSpec {
            position: config::Position::Rotary { base, rotary_dims: 8, pairing, scaling },
            dropout: 0.0,
            attention_dropout: 0.0,
            ..model
        },
        config::Position::Learned { .. } | config::Position::Alibi => model,
    };
    let zeros = |_: &config::ParamSpec, _: &Region, values: &mut [f32]| -> Result<(), InterchangeError> {
        values.fill(0.25);
        Ok(())
    };
    export(&model, serde_json::Map::new(), scratch.path(), config::Format::Fp32, zeros).unwrap();
}

/// Opens the folder, and reads every tensor that the model has.
fn read_folder(path: &Path) -> Read {
    let opened = HuggingFaceFolder::open(path);
    if let Ok(folder) = &opened {
        for param in config::all_params(&folder.model) {
            let whole = Region::whole(&param.shape);
            let mut values = vec![0.0; whole.len()];
            folder.get(&param, &whole, &mut values).expect("a tensor of an opened folder is there");
        }
    }
    Read::from(&opened)
}

#[test]
fn hugging_face_configurations() {
    let scratches = [Style::Gpt2, Style::Llama].map(|style| {
        let scratch = Scratch::new(&format!("config-{style}"));
        exported(&scratch, style);
        scratch
    });
    let config = |scratch: &Scratch| std::fs::read(scratch.path().join("config.json")).unwrap();
    let seeds: Vec<Vec<u8>> = scratches.iter().map(config).collect();
    let read = |bytes: &[u8]| {
        let read = scratches.each_ref().map(|scratch| {
            scratch.file("config.json", bytes);
            read_folder(scratch.path())
        });
        if read.contains(&Read::Accepted) { Read::Accepted } else { Read::Refused }
    };
    let target = Target { name: "hugging_face_configurations", seeds, seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

#[test]
fn hugging_face_indices() {
    let scratch = Scratch::new("index");
    exported(&scratch, Style::Llama);
    let whole = scratch.path().join("model.safetensors");
    let reader = checkpoint::TensorReader::open(&whole).unwrap();
    let map: serde_json::Map<String, serde_json::Value> =
        reader.names().map(|name| (name.to_string(), "part-1.safetensors".into())).collect();
    drop(reader);
    std::fs::rename(&whole, scratch.path().join("part-1.safetensors")).unwrap();
    let index = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map }).to_string();
    let read = |bytes: &[u8]| {
        scratch.file("model.safetensors.index.json", bytes);
        read_folder(scratch.path())
    };
    let target = Target { name: "hugging_face_indices", seeds: vec![index.into_bytes()], seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}
