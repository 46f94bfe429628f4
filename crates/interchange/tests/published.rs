//! OPT in shards as metaseq writes them, cut by hand from whole parameters: each element is found where it was put, whatever box is read.
//!
//! Shards of GLM-130B and CodeGeeX are made by PyTorch (`crates/cli/tests/hugging_face`); only their errors are asked for here.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use checkpoint::{TensorEntry, TensorWriter};
use interchange::fields::Fields;
use interchange::{Family, HuggingFaceFolder, config};
use mesh::Region;
use spec::{ModelSpec, ParamSpec, Unit, params};

const SHARDS: usize = 2;
const CONFIG: &str = r#"{"architectures": ["metaseq"], "num_hidden_layers": 2, "hidden_size": 12, "num_attention_heads": 4,
    "intermediate_size": 28, "vocab_size": 32, "max_position_embeddings": 10}"#;

/// Shape and elements.
type Tensor = (Vec<usize>, Vec<f32>);

fn model() -> ModelSpec {
    let map = serde_json::from_str(CONFIG).unwrap();
    config::read(Family::Metaseq, &Fields { path: Path::new("config.json"), map: &map }).unwrap()
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

/// The tensors of one shard, after `multihead_attention.py`, `transformer_decoder_layer.py` and `transformer_decoder.py` of metaseq.
fn shard(model: &ModelSpec, shard: usize) -> BTreeMap<String, Tensor> {
    let units = std::iter::once(Unit::Table).chain(Unit::computing(model.num_layers));
    let all: BTreeMap<String, Tensor> =
        units.flat_map(|unit| params(model, unit)).map(|param| (param.name.clone(), whole(&param))).collect();
    let rows = |name: &str| rows_of_shard(&all[name], shard);
    let mut tensors = BTreeMap::from([
        ("decoder.version".to_string(), (vec![1], vec![3.0])),
        ("decoder.embed_tokens.weight".to_string(), rows("embedding.token.weight")),
        ("decoder.embed_positions.weight".to_string(), all["embedding.position.weight"].clone()),
    ]);
    for kind in ["weight", "bias"] {
        tensors.insert(format!("decoder.layer_norm.{kind}"), all[&format!("head.norm.{kind}")].clone());
        for layer in 0..model.num_layers {
            let (from, to) = (format!("layers.{layer}"), format!("decoder.layers.{layer}"));
            let parts = ["key", "value", "query"].map(|part| rows(&format!("{from}.attention.{part}.{kind}")));
            let mut shape = parts[0].0.clone();
            shape[0] *= 3;
            let stacked = parts.into_iter().flat_map(|(_, values)| values).collect();
            tensors.insert(format!("{to}.self_attn.qkv_proj.{kind}"), (shape, stacked));
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
    /// Both shards, changed by `change`.
    fn new(name: &str, mut change: impl FnMut(usize, &mut BTreeMap<String, Tensor>)) -> Folder {
        let path = std::env::temp_dir().join(format!("pleach-published-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("config.json"), CONFIG).unwrap();
        for number in 0..SHARDS {
            let mut tensors = shard(&model(), number);
            change(number, &mut tensors);
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

fn parameters(folder: &HuggingFaceFolder) -> Vec<ParamSpec> {
    let units = std::iter::once(Unit::Table).chain(Unit::computing(folder.model.num_layers));
    units.flat_map(|unit| params(&folder.model, unit)).collect()
}

#[test]
fn whole_parameters_come_out_of_shards() {
    let folder = Folder::new("whole", |_, _| {});
    let opened = folder.open().unwrap();
    for param in parameters(&opened) {
        let mut values = vec![0.0; param.len()];
        opened.get(&param, &Region::whole(&param.shape), &mut values).unwrap();
        assert_eq!(values, whole(&param).1, "{}", param.name);
    }
}

/// Boxes that lie in one shard and in several, with whole rows and without.
#[test]
fn any_box_comes_out_of_shards() {
    let folder = Folder::new("boxes", |_, _| {});
    let opened = folder.open().unwrap();
    for param in parameters(&opened).into_iter().filter(|param| param.shape.len() == 2) {
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
    let folder = Folder::new("bytes", |_, _| {});
    let headers = folder.open().unwrap().read_bytes();
    let opened = folder.open().unwrap();
    let mut elements = 0;
    for param in parameters(&opened) {
        let region = interchange::shards::regions(&param, SHARDS).next().unwrap();
        opened.get(&param, &region, &mut vec![0.0; region.len()]).unwrap();
        elements += region.len();
    }
    assert_eq!(opened.read_bytes() - headers, 4 * elements as u64);
}

#[test]
fn a_tensor_that_one_shard_lacks_or_has_too_many_of_is_named() {
    let said = |name: &str, change: &dyn Fn(&mut BTreeMap<String, Tensor>)| {
        let folder = Folder::new(name, |number, tensors| {
            if number == 1 {
                change(tensors);
            }
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
