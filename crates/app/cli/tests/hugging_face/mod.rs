//! Folders of the Hugging Face library, made by `tools/reference/hugging_face.py`: what the library computes from them
//! in double precision, pleach computes in single precision under every layout, and what it writes is what it read.
//!
//! Bounds, relative Frobenius distances: logits 1e-5, the loss 1e-5, each gradient 1e-4, relative to the norm of all
//! gradients where its own is less than 1e-6 of that (biases of keys that are not rotated have none). Two layers have
//! sums of at most 48 terms, of which `docs/numerics.md` expects 1e-6 and less.
//!
//! Classes differ in what they join in one tensor, so a wrong order of queries, keys and values, a transposed
//! matrix, a norm or a bias that is not read show in the logits; norms and biases in the folders are not at their
//! defaults.

mod adapters;
mod experts;
mod outside;
mod reading;
mod training;

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{pleach, stderr};
use checkpoint::TensorReader;
use config::{ParamSpec, Unit, params};
use interchange::HuggingFaceFolder;
use mesh::Region;

/// Classes of the library.
const CLASSES: [&str; 13] = [
    "gpt_neox", "bloom", "opt", "gpt2", "llama", "llama31", "smollm", "mistral", "qwen2", "qwen3", "olmo2", "gemma2",
    "gemma3",
];

/// The same classes with what their configurations may say otherwise: output matrices of their own, scaled rotations,
/// other biases, padding in the text.
const VARIANTS: [&str; 13] = [
    "gpt_neox_sequential",
    "bloom_untied",
    "opt_padding",
    "opt_untied",
    "gpt2_untied",
    "llama_linear",
    "qwen3_padding",
    "qwen3_windows",
    "qwen3_yarn",
    "olmo2_biases",
    "gemma2_plain",
    "gemma3_global",
    "gemma3_capped",
];

/// Models in the shards that they were published in (`tools/reference/published.py`), with masks and positions of their
/// own. The library has none of them.
const PUBLISHED: [&str; 2] = ["glm", "codegeex"];

/// All folders of the library.
fn of_library() -> impl Iterator<Item = &'static str> {
    CLASSES.into_iter().chain(VARIANTS).chain(experts::CLASSES).chain(experts::VARIANTS)
}

/// Degrees (tp, pp).
const LAYOUTS: [(usize, usize); 4] = [(1, 1), (2, 1), (1, 2), (2, 2)];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hugging_face")
}

fn succeeds(arguments: &[&str]) {
    let output = pleach(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
}

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pleach-hugging-face-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn whole(file: &TensorReader, name: &str) -> Vec<f32> {
    let shape = file.shape(name).unwrap_or_else(|| panic!("no {name}"));
    let mut values = vec![0.0; shape.iter().product()];
    file.get(name, &Region::whole(shape), &mut values).expect("read");
    values
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

fn norm_of(values: &[f32]) -> f64 {
    norm(values.iter().map(|value| f64::from(*value)))
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    norm(a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)))
}

/// The inputs of a class: its own, or those of all that have none.
fn tokens(class: &str) -> PathBuf {
    let own = fixtures().join(class).join("tokens.json");
    if own.exists() { own } else { fixtures().join("tokens.json") }
}

fn parameters(folder: &HuggingFaceFolder) -> Vec<ParamSpec> {
    Unit::holding(folder.model.num_layers).flat_map(|unit| params(&folder.model, unit)).collect()
}

fn all_values(folder: &HuggingFaceFolder, param: &ParamSpec) -> Vec<f32> {
    let mut values = vec![0.0; param.len()];
    folder.get(param, &Region::whole(&param.shape), &mut values).expect("read");
    values
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The library's gradients by our names: they have the names and forms of its weights.
fn gradients(class: &str, folder: &Folder) -> Vec<(String, Vec<f32>)> {
    let (from, to) = (fixtures().join(class), folder.0.join(format!("{class}-gradients")));
    fs::create_dir_all(&to).expect("a folder");
    fs::copy(from.join("config.json"), to.join("config.json")).expect("copied");
    fs::copy(from.join("gradients.safetensors"), to.join("model.safetensors")).expect("copied");
    let gradients = HuggingFaceFolder::open(&to).unwrap_or_else(|error| panic!("{error}"));
    parameters(&gradients).into_iter().map(|param| (param.name.clone(), all_values(&gradients, &param))).collect()
}

#[test]
fn what_the_library_computes_is_computed_under_every_layout() {
    let folder = Folder::new("forward");
    let of_variants = VARIANTS.map(|class| (class, &LAYOUTS[3..]));
    let classes = CLASSES.into_iter().chain(PUBLISHED).map(|class| (class, &LAYOUTS[..]));
    for (class, layouts) in classes.chain(of_variants) {
        let from = fixtures().join(class).display().to_string();
        let expected = TensorReader::open(&fixtures().join(class).join("expected.safetensors")).expect("a file");
        let gradients = gradients(class, &folder);
        let all = norm(gradients.iter().map(|(_, values)| norm_of(values)));
        for &(tp, pp) in layouts {
            let (tokens, out) = (tokens(class).display().to_string(), folder.at("out.safetensors"));
            let sets = [format!("parallelism.tp={tp}"), format!("parallelism.pp={pp}")];
            let mut arguments = vec!["forward", "--from", &from, "--tokens", &tokens, "--out", &out, "--grads"];
            sets.iter().for_each(|set| arguments.extend(["--set", set]));
            succeeds(&arguments);
            let results = TensorReader::open(Path::new(&out)).expect("a file");
            let what = format!("{class}, tp {tp}, pp {pp}");
            for name in ["logits", "loss"] {
                let (ours, theirs) = (whole(&results, name), whole(&expected, name));
                let far = distance(&ours, &theirs) / norm_of(&theirs);
                assert!(far <= 1e-5, "{what}: {name} is {far:.1e} away");
            }
            let mut farthest = (0.0, String::new());
            for (name, theirs) in &gradients {
                let size = norm_of(theirs);
                let size = if size >= 1e-6 * all { size } else { all };
                let far = distance(&whole(&results, &format!("grad.{name}")), theirs) / size;
                assert!(far <= 1e-4, "{what}: the gradient of {name} is {far:.1e} away");
                if far > farthest.0 {
                    farthest = (far, name.clone());
                }
            }
            println!("{what}: the farthest gradient is {:.1e} away ({})", farthest.0, farthest.1);
        }
    }
}

/// The folder of `class`, imported and exported with numbers in `dtype`.
fn exported(class: &str, dtype: &str, folder: &Folder) -> PathBuf {
    let (run, out) = (folder.at(&format!("{class}-{dtype}-run")), folder.at(&format!("{class}-{dtype}")));
    succeeds(&["import", &fixtures().join(class).display().to_string(), "--out", &run]);
    succeeds(&["export", &run, "--out", &out, "--dtype", dtype]);
    PathBuf::from(out)
}

/// That two folders have one model and the same bits.
fn assert_same_tensors(class: &str, before: &Path, after: &Path) {
    let [before, after] = [before, after].map(|path| HuggingFaceFolder::open(path).expect("a folder"));
    assert_eq!((before.family, &before.model), (after.family, &after.model), "{class}");
    for param in parameters(&before) {
        let [before, after] = [&before, &after].map(|folder| bits(&all_values(folder, &param)));
        assert_eq!(before, after, "{class}: {}", param.name);
    }
}

#[test]
fn what_is_imported_is_exported_to_the_last_bit() {
    let folder = Folder::new("round-trip");
    for class in of_library().chain(PUBLISHED) {
        let (from, out) = (fixtures().join(class), exported(class, "fp32", &folder));
        assert_same_tensors(class, &from, &out);
    }
}

/// The library has read what is exported, and computed the same logits from it as from what was imported. Where the
/// factor of Granite's blocks has become one of the embedding, five norms read other numbers, which the library rounds
/// to single precision: 5 x 2^-24 of logits below 1.
#[test]
fn what_is_exported_is_what_the_library_has_read() {
    let folder = Folder::new("read-back");
    let object = |path: &Path| -> serde_json::Value {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).expect("JSON")
    };
    for class in of_library() {
        let record = object(&fixtures().join(class).join("exported.json"));
        let own = object(&fixtures().join(class).join("config.json"));
        let bound = if class == "granitemoe" { 5.0 * 2f64.powi(-24) } else { 0.0 };
        assert!(record["logits_differ_by"].as_f64().is_some_and(|far| far <= bound), "{class}: {record}");
        assert_eq!(record["class"], own["architectures"][0], "{class}");
        assert_eq!(object(&exported(class, "fp32", &folder).join("config.json")), record["config"], "{class}");
    }
}

/// Bytes and shape of each tensor.
fn stored(file: &Path) -> Vec<(String, safetensors::Dtype, Vec<usize>, Vec<u8>)> {
    let bytes = fs::read(file).expect("a file");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
    let mut stored: Vec<_> = tensors
        .iter()
        .map(|(name, view)| (name.to_string(), view.dtype(), view.shape().to_vec(), view.data().to_vec()))
        .collect();
    stored.sort_by(|one, other| one.0.cmp(&other.0));
    stored
}

#[test]
fn weights_of_16_bits_are_exported_byte_by_byte() {
    let folder = Folder::new("narrow");
    for class in ["gpt2", "bloom", "qwen3"] {
        let (from, out) = (fixtures().join(class), exported(class, "bf16", &folder));
        let [before, after] = [&from, &out].map(|path| stored(&path.join("model.safetensors")));
        assert!(before.iter().all(|(_, dtype, ..)| *dtype == safetensors::Dtype::BF16), "{class}");
        assert!(before == after, "{class}");
        let config = fs::read_to_string(out.join("config.json")).expect("text");
        assert!(config.contains("\"torch_dtype\": \"bfloat16\""), "{config}");
        // Half precision has three bits more: what is so short is the same number there.
        let half = HuggingFaceFolder::open(&exported(class, "fp16", &folder)).expect("a folder");
        let before = HuggingFaceFolder::open(&from).expect("a folder");
        for param in parameters(&before) {
            assert_eq!(all_values(&before, &param), all_values(&half, &param), "{class}: {}", param.name);
        }
    }
}
