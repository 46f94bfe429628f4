//! A rank reads its own bytes of a folder, and headers, and no others: counted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread::ThreadId;

use checkpoint::{TensorEntry, TensorReader, TensorWriter};
use config::{
    Degrees, ModelSpec, NormKind, Pairing, Parallelism, ParamSpec, Position, RotaryScaling, RunConfig, TrainSpec, Unit,
    UnitLayout, params,
};
use interchange::{HuggingFaceFolder, InterchangeError, export};
use mesh::Region;
use testkit::layout::engine;
use testkit::text::ProofText;
use train::{LogitsSink, Setup, SourceError, TensorSource, run_forward};

use crate::hugging_face::{Folder, all_values};

/// A Qwen 3 whose matrices are narrow on one side and wide on the other: what another rank has of a row is 1,056
/// elements, more than are read for nothing in place of a read of their own.
pub fn model() -> ModelSpec {
    let quick_start = RunConfig::quick_start().model;
    ModelSpec {
        num_layers: 2,
        hidden: 8,
        num_heads: 8,
        num_kv_heads: 8,
        head_dim: 264,
        ffn_hidden: 2112,
        ffn_hidden_of_layers: None,
        experts: None,
        vocabulary: 64,
        context: 8,
        norm: config::Norm { kind: NormKind::Rms, epsilon: 1e-6 },
        position: Position::Rotary { base: 1e6, rotary_dims: 264, pairing: Pairing::Half, scaling: RotaryScaling::Off },
        activation: config::Activation::SwiGlu,
        biases: config::Biases::Off,
        tied_embeddings: false,
        qk_norm: config::QkNorm::Heads,
        ..quick_start
    }
}

/// A folder of [`model`], in one file.
fn single(path: &Path) {
    fs::create_dir_all(path).expect("a folder");
    let value = |element: usize| (element % 97) as f32 * 0.01;
    let family = export(
        &model(),
        serde_json::Map::new(),
        path,
        config::Format::Fp32,
        |_, region, values| -> Result<(), InterchangeError> {
            values.iter_mut().enumerate().for_each(|(index, out)| *out = value(index + region.start[0]));
            Ok(())
        },
    );
    assert_eq!(family.expect("a class").class(), "Qwen3ForCausalLM");
}

/// The folder `from` with its tensors in three files and an index.
fn in_three(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    fs::copy(from.join("config.json"), to.join("config.json")).expect("copied");
    let whole = TensorReader::open(&from.join("model.safetensors")).expect("a file");
    let names: Vec<String> = whole.names().map(str::to_string).collect();
    let mut files = serde_json::Map::new();
    for part in 0..3 {
        let file = format!("model-0000{}-of-00003.safetensors", part + 1);
        let own: Vec<&String> = names.iter().skip(part).step_by(3).collect();
        let shape = |name: &str| whole.shape(name).expect("it is there").to_vec();
        let entries: Vec<TensorEntry> =
            own.iter().map(|name| TensorEntry { name: name.to_string(), shape: shape(name) }).collect();
        let writer = TensorWriter::create(&to.join(&file), &entries).expect("a file");
        for name in own {
            let region = Region::whole(&shape(name));
            let mut values = vec![0.0; region.len()];
            whole.get(name, &region, &mut values).expect("read");
            writer.put(name, &region, &values);
            files.insert(name.clone(), file.clone().into());
        }
        writer.finish().expect("written");
    }
    let index = serde_json::json!({ "metadata": {}, "weight_map": files });
    fs::write(to.join("model.safetensors.index.json"), index.to_string()).expect("written");
}

/// Counts the elements that each rank, which is a thread, asks for.
struct Counted<'a> {
    folder: &'a HuggingFaceFolder,
    elements: Mutex<BTreeMap<String, usize>>,
}

impl TensorSource for Counted<'_> {
    fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), SourceError> {
        let thread: ThreadId = std::thread::current().id();
        *self.elements.lock().expect("no rank panics").entry(format!("{thread:?}")).or_default() += region.len();
        let read = self.folder.get(param, region, values);
        read.map_err(|error| SourceError::Read { name: param.name.clone(), cause: error.to_string() })
    }
}

struct Nowhere;

impl LogitsSink for Nowhere {
    fn put(&self, _: u64, _: usize, _: &[f32]) {}
}

#[test]
fn a_rank_reads_its_own_bytes_and_headers() {
    let folder = Folder::new("reading");
    let (one, three) = (folder.0.join("one"), folder.0.join("three"));
    single(&one);
    in_three(&one, &three);
    let RunConfig { parallelism, train, .. } = RunConfig::quick_start();
    let train = TrainSpec { global_batch: 1, sequence_length: 8, ..train };
    for (path, (tp, pp)) in [(&one, (2, 2)), (&three, (2, 2)), (&three, (1, 3))] {
        let source = HuggingFaceFolder::open(path).expect("a folder");
        let headers = source.read_bytes();
        let parallelism =
            Parallelism { degrees: Degrees { dp: 1, cp: 1, tp, pp }, microbatch_size: 1, ..parallelism.clone() };
        let setup = Setup::forward(source.model.clone(), parallelism, train.clone()).expect("a legal run");
        let counted = Counted { folder: &source, elements: Mutex::default() };
        let tokens = ProofText { vocabulary: 61, seed: 1, labels: testkit::text::Labels::Every };
        run_forward(&setup, &*engine(&setup, 1), &tokens, Some(&counted), &Nowhere).expect("it runs");

        let mut expected: Vec<usize> = vec![];
        for stage in 0..pp {
            let embedding = setup.program(stage).view.computing_units().any(|unit| unit == Unit::Embedding);
            let table = embedding.then_some(Unit::Table);
            let units = setup.program(stage).view.computing_units().chain(table);
            let len: usize = units
                .map(|unit| UnitLayout::new(params(&source.model, unit), setup.parallelism.axis_sizes(), 1).len)
                .sum();
            expected.extend(vec![len; tp]);
        }
        expected.sort_unstable();
        let mut elements: Vec<usize> = counted.elements.into_inner().expect("no rank panics").into_values().collect();
        elements.sort_unstable();
        assert_eq!(elements, expected, "tp {tp}, pp {pp}");
        let asked_bytes = 4 * elements.iter().sum::<usize>() as u64;
        assert_eq!(source.read_bytes(), headers + asked_bytes, "tp {tp}, pp {pp}");
    }
}

/// Tensors in several files are the same tensors.
#[test]
fn a_folder_of_several_files_holds_the_same() {
    let folder = Folder::new("several");
    let (one, three) = (folder.0.join("one"), folder.0.join("three"));
    single(&one);
    in_three(&one, &three);
    let [one, in_three] = [&one, &three].map(|path| HuggingFaceFolder::open(path).expect("a folder"));
    for param in crate::hugging_face::parameters(&one) {
        assert_eq!(all_values(&one, &param), all_values(&in_three, &param), "{}", param.name);
    }
    fs::remove_file(three.join("model-00002-of-00003.safetensors")).expect("removed");
    let said = HuggingFaceFolder::open(&three).expect_err("a file is missing").to_string();
    assert!(said.contains("model-00002-of-00003.safetensors cannot be read"), "{said}");
}
