//! OPT in shards as metaseq writes them, and GPT-NeoX-20B in those that it was trained in, cut by hand from whole
//! parameters: each element is found where it was put, whatever box is read. Shards of GLM-130B and CodeGeeX are made
//! by PyTorch (`crates/app/cli/tests/hugging_face`).

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use checkpoint::{TensorEntry, TensorWriter};
use config::{ModelSpec, ParamSpec, all_params};
use interchange::fields::Fields;
use interchange::{Family, HuggingFaceFolder};
use mesh::Region;

const SHARDS: usize = 2;
const HEADS: usize = 4;

/// Shape and elements.
type Tensor = (Vec<usize>, Vec<f32>);

/// The tensors of one shard, by name.
type Shard = BTreeMap<String, Tensor>;

fn config_of(family: Family) -> String {
    format!(
        r#"{{"architectures": ["{}"], "num_hidden_layers": 2, "hidden_size": 12, "num_attention_heads": {HEADS},
            "intermediate_size": 28, "vocab_size": 32, "max_position_embeddings": 10}}"#,
        family.class()
    )
}

fn model(family: Family) -> ModelSpec {
    let map = serde_json::from_str(&config_of(family)).unwrap();
    family.read(&Fields { path: Path::new("config.json"), map: &map }).unwrap()
}

/// All parameters of a model by name.
fn wholes(model: &ModelSpec) -> Shard {
    all_params(model).map(|param| (param.name.clone(), whole(&param))).collect()
}

/// Numbers that say which parameter and which element they are.
fn whole(param: &ParamSpec) -> Tensor {
    let first = (param.id() % 512) as f32;
    (param.shape.clone(), (0..param.len()).map(|index| first + index as f32 / 1024.0).collect())
}

fn rows_of_shard((shape, values): &Tensor, shard: usize) -> Tensor {
    let (rows, len) = (shape[0] / SHARDS, values.len() / SHARDS);
    let shape = std::iter::once(rows).chain(shape[1..].iter().copied()).collect();
    (shape, values[shard * len..(shard + 1) * len].to_vec())
}

fn columns_of_shard((shape, values): &Tensor, shard: usize) -> Tensor {
    let cols = shape[1] / SHARDS;
    let own = |row: &[f32]| row[shard * cols..(shard + 1) * cols].to_vec();
    (vec![shape[0], cols], values.chunks(shape[1]).flat_map(own).collect())
}

fn stacked(parts: &[Tensor]) -> Tensor {
    let rows = parts.iter().map(|(shape, _)| shape[0]).sum();
    let shape = std::iter::once(rows).chain(parts[0].0[1..].iter().copied()).collect();
    (shape, parts.iter().flat_map(|(_, values)| values.clone()).collect())
}

fn moved((shape, values): &Tensor, by: f32) -> Tensor {
    (shape.clone(), values.iter().map(|value| value + by).collect())
}

/// After `tools/ckpts/merge20b.py` of GPT-NeoX: heads with their queries, keys and values; norms that have drifted
/// apart; biases that are added once per shard.
fn neox(shard: usize) -> Shard {
    let all = wholes(&model(Family::GptNeoXShards));
    let rows = |name: &str| rows_of_shard(&all[name], shard);
    let drifted = |name: &str| moved(&all[name], if shard == 0 { 0.25 } else { -0.25 });
    let mut tensors = Shard::from([
        ("word_embeddings.weight".to_string(), rows("embedding.token.weight")),
        ("final_linear.weight".to_string(), rows("head.output.weight")),
    ]);
    for kind in ["weight", "bias"] {
        tensors.insert(format!("norm.{kind}"), drifted(&format!("head.norm.{kind}")));
        for layer in ["layers.0", "layers.1"] {
            for (ours, theirs) in [("attention_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")] {
                tensors.insert(format!("{layer}.{theirs}.{kind}"), drifted(&format!("{layer}.{ours}.{kind}")));
            }
            let parts = ["query", "key", "value"].map(|part| rows(&format!("{layer}.attention.{part}.{kind}")));
            let of_head = |(shape, values): &Tensor, head: usize| {
                let (rows, len) = (shape[0] * SHARDS / HEADS, values.len() * SHARDS / HEADS);
                let shape = std::iter::once(rows).chain(shape[1..].iter().copied()).collect();
                (shape, values[head * len..(head + 1) * len].to_vec())
            };
            let heads: Vec<Tensor> =
                (0..HEADS / SHARDS).flat_map(|head| parts.each_ref().map(|part| of_head(part, head))).collect();
            tensors.insert(format!("{layer}.attention.query_key_value.{kind}"), stacked(&heads));
            tensors.insert(format!("{layer}.mlp.dense_h_to_4h.{kind}"), rows(&format!("{layer}.ffn.up.{kind}")));
            for (ours, theirs) in [("attention.output", "attention.dense"), ("ffn.down", "mlp.dense_4h_to_h")] {
                let whole = &all[&format!("{layer}.{ours}.{kind}")];
                let part = match (kind, shard) {
                    ("weight", _) => columns_of_shard(whole, shard),
                    (_, 0) => moved(whole, -2.0),
                    _ => (whole.0.clone(), vec![2.0; whole.1.len()]),
                };
                tensors.insert(format!("{layer}.{theirs}.{kind}"), part);
            }
            tensors.insert(format!("{layer}.attention.rotary_emb.inv_freq"), (vec![1], vec![1.0]));
        }
    }
    tensors
}

/// The tensors of one shard, after `multihead_attention.py`, `transformer_decoder_layer.py` and
/// `transformer_decoder.py` of metaseq.
fn metaseq(shard: usize) -> Shard {
    let model = model(Family::Metaseq);
    let all = wholes(&model);
    let rows = |name: &str| rows_of_shard(&all[name], shard);
    let mut tensors = Shard::from([
        ("decoder.version".to_string(), (vec![1], vec![3.0])),
        ("decoder.embed_tokens.weight".to_string(), rows("embedding.token.weight")),
        ("decoder.embed_positions.weight".to_string(), all["embedding.position.weight"].clone()),
    ]);
    for kind in ["weight", "bias"] {
        tensors.insert(format!("decoder.layer_norm.{kind}"), all[&format!("head.norm.{kind}")].clone());
        for layer in 0..model.num_layers {
            let (from, to) = (format!("layers.{layer}"), format!("decoder.layers.{layer}"));
            let parts = ["key", "value", "query"].map(|part| rows(&format!("{from}.attention.{part}.{kind}")));
            tensors.insert(format!("{to}.self_attn.qkv_proj.{kind}"), stacked(&parts));
            tensors.insert(format!("{to}.fc1.{kind}"), rows(&format!("{from}.ffn.up.{kind}")));
            for (ours, theirs) in [("attention.output", "self_attn.out_proj"), ("ffn.down", "fc2")] {
                let whole = &all[&format!("{from}.{ours}.{kind}")];
                let part = if kind == "weight" { columns_of_shard(whole, shard) } else { whole.clone() };
                tensors.insert(format!("{to}.{theirs}.{kind}"), part);
            }
            for (ours, theirs) in [("attention_norm", "self_attn_layer_norm"), ("ffn_norm", "final_layer_norm")] {
                tensors.insert(format!("{to}.{theirs}.{kind}"), all[&format!("{from}.{ours}.{kind}")].clone());
            }
        }
    }
    tensors
}

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    /// With both shards.
    fn new(name: &str, family: Family, shard: impl Fn(usize) -> Shard) -> Folder {
        let path = std::env::temp_dir().join(format!("pleach-published-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("config.json"), config_of(family)).unwrap();
        for number in 0..SHARDS {
            let tensors = shard(number);
            let entry =
                |(name, (shape, _)): (&String, &Tensor)| TensorEntry { name: name.clone(), shape: shape.clone() };
            let entries: Vec<TensorEntry> = tensors.iter().map(entry).collect();
            let writer =
                TensorWriter::create(&path.join(format!("model_part-{number}.safetensors")), &entries).unwrap();
            for (name, (shape, values)) in &tensors {
                writer.put(name, &Region::whole(shape), values);
            }
            writer.finish().unwrap();
        }
        Folder(path)
    }

    fn open(&self) -> Result<HuggingFaceFolder, String> {
        let name = self.0.display().to_string();
        HuggingFaceFolder::open(&self.0).map_err(|error| error.to_string().replace(&name, "FOLDER"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn whole_parameters_come_out_of_shards() {
    for family in [Family::Metaseq, Family::GptNeoXShards] {
        let shard = if family == Family::Metaseq { metaseq } else { neox };
        let folder = Folder::new(family.class(), family, shard);
        let opened = folder.open().unwrap();
        for param in all_params(&opened.model) {
            let mut values = vec![0.0; param.len()];
            opened.get(&param, &Region::whole(&param.shape), &mut values).unwrap();
            assert_eq!(values, whole(&param).1, "{family:?}: {}", param.name);
        }
    }
}

/// Boxes that are in one shard and in several, with whole rows and without.
#[test]
fn any_box_comes_out_of_shards() {
    let folder = Folder::new("boxes", Family::Metaseq, metaseq);
    let opened = folder.open().unwrap();
    for param in all_params(&opened.model).filter(|param| param.shape.len() == 2) {
        let [rows, cols] = [param.shape[0], param.shape[1]];
        let (_, elements) = whole(&param);
        for (first, last, left, right) in
            [(0, rows / 2, 0, cols), (1, rows - 1, 0, cols), (2, 3, 1, cols - 1), (0, rows, cols / 2, cols)]
        {
            let region = Region { start: vec![first, left], extent: vec![last - first, right - left] };
            let mut values = vec![0.0; region.len()];
            opened.get(&param, &region, &mut values).unwrap();
            let expected: Vec<f32> =
                (first..last).flat_map(|row| elements[row * cols + left..row * cols + right].to_vec()).collect();
            assert_eq!(values, expected, "{} {region:?}", param.name);
        }
    }
}

/// A rank of two reads the header of both files, and of the tensors its own half and what all have.
#[test]
fn a_rank_reads_its_own_shard() {
    let folder = Folder::new("bytes", Family::Metaseq, metaseq);
    let headers = folder.open().unwrap().read_bytes();
    let opened = folder.open().unwrap();
    let mut elements = 0;
    for param in all_params(&opened.model) {
        let region = interchange::shards::regions(&param, SHARDS).next().unwrap();
        opened.get(&param, &region, &mut vec![0.0; region.len()]).unwrap();
        elements += region.len();
    }
    assert_eq!(opened.read_bytes() - headers, 4 * elements as u64);
}

#[test]
fn a_tensor_that_one_shard_lacks_or_has_too_many_of_is_named() {
    let said = |name: &str, change: &dyn Fn(&mut Shard)| {
        let folder = Folder::new(name, Family::Metaseq, |number| {
            let mut tensors = metaseq(number);
            if number == 1 {
                change(&mut tensors);
            }
            tensors
        });
        folder.open().map(|_| ()).unwrap_err()
    };
    let fc1 = "decoder.layers.1.fc1.weight";
    assert_eq!(
        said("missing", &|tensors| drop(tensors.remove(fc1))),
        "FOLDER: there is no tensor decoder.layers.1.fc1.weight, which layers.1.ffn.up.weight is read from"
    );
    assert_eq!(
        said("shape", &|tensors| drop(tensors.insert(fc1.into(), (vec![28, 12], vec![0.0; 28 * 12])))),
        "FOLDER: tensor decoder.layers.1.fc1.weight is [28, 12], and [14, 12] by config.json"
    );
    assert_eq!(
        said("extra", &|tensors| drop(tensors.insert("decoder.layers.1.fc3.weight".into(), (vec![1], vec![0.0])))),
        "FOLDER: there is a tensor decoder.layers.1.fc3.weight, which the model of config.json does not have"
    );
}
