//! Inputs and results of PyTorch, one file per run file.

use std::collections::BTreeMap;

use config::{ModelSpec, RunConfig, TrainSpec};
use prove::{Outcome, Tensors};
use safetensors::{Dtype, SafeTensors};
use train::{SequenceBuffers, TensorMap, TokenSource};

/// One model and ten steps or twenty.
pub struct Vectors {
    pub name: &'static str,
    pub model: ModelSpec,
    pub train: TrainSpec,
    pub text: Text,
    pub initial: TensorMap,
    /// In double precision; tensors rounded.
    pub outcome: Outcome,
    /// Largest relative distance of a loss that PyTorch gives in single precision.
    pub loss_in_float: f64,
}

/// `[steps, batch, S]` each.
pub struct Text {
    batch: usize,
    tokens: Vec<i32>,
    labels: Vec<i32>,
    positions: Vec<i32>,
    first_visible: Vec<i32>,
}

impl TokenSource for Text {
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        let length = buffers.tokens.len();
        let start = (step as usize * self.batch + sequence as usize) * length;
        buffers.tokens.copy_from_slice(&self.tokens[start..start + length]);
        buffers.labels.copy_from_slice(&self.labels[start..start + length]);
        buffers.positions.copy_from_slice(&self.positions[start..start + length]);
        for (place, visible) in buffers.visible.chunks_mut(2).enumerate() {
            visible.copy_from_slice(&[self.first_visible[start + place], place as i32 + 1]);
        }
    }
}

macro_rules! open {
    ($name:literal) => {
        open($name, include_str!(concat!($name, ".toml")), include_bytes!(concat!($name, ".safetensors")))
    };
}

/// Every style.
pub fn all() -> [Vectors; 12] {
    [
        open!("gpt2_tied"),
        open!("gpt2_untied"),
        open!("llama_untied"),
        open!("llama_tied"),
        open!("neox"),
        open!("glm"),
        open!("codegeex"),
        open!("llama_z_loss"),
        open!("llama_muon"),
        open!("llama_lora"),
        open!("gpt2_lora"),
        open!("gpt_oss"),
    ]
}

fn open(name: &'static str, run_file: &str, bytes: &[u8]) -> Vectors {
    let config = RunConfig::load(name, run_file, &[]).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
    let file = SafeTensors::deserialize(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut initial = TensorMap::default();
    for (tensor, (shape, values)) in
        tensors(&file, "initial/", Dtype::BF16, |bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16))
    {
        initial.insert(&tensor, &shape, values);
    }
    let floats = |prefix| -> Tensors {
        let list = tensors(&file, prefix, Dtype::F32, f32::from_le_bytes);
        list.into_iter().map(|(name, (_, values))| (name, values)).collect()
    };
    let doubles = |name| values(&file, name, Dtype::F64, f64::from_le_bytes);
    let ints = |name| values(&file, name, Dtype::I8, |bytes| i32::from(i8::from_le_bytes(bytes)));
    let losses: Vec<f64> = doubles("losses");
    let far = losses.iter().zip(doubles("losses_in_float")).map(|(exact, float)| (float - exact).abs() / exact);
    Vectors {
        name,
        loss_in_float: far.fold(0.0, f64::max),
        outcome: Outcome {
            losses,
            norms: doubles("norms"),
            scaling: vec![],
            // Every token counts.
            valid_tokens: vec![],
            gradients: floats("gradient/"),
            weights: floats("final/"),
        },
        text: Text {
            batch: config.train.global_batch,
            tokens: ints("tokens"),
            labels: ints("labels"),
            positions: ints("positions"),
            first_visible: ints("first_visible"),
        },
        initial,
        // A run file knows the vocabularies of tokenizers only; here it is that of the table.
        model: ModelSpec { vocabulary: vocabulary(&file), ..config.model },
        train: config.train,
    }
}

fn vocabulary(file: &SafeTensors) -> usize {
    file.tensor("initial/embedding.token.weight").expect("a table").shape()[0]
}

/// The numbers of the tensor `name`.
pub fn values<const N: usize, T>(file: &SafeTensors, name: &str, dtype: Dtype, read: impl Fn([u8; N]) -> T) -> Vec<T> {
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), dtype, "{name}");
    tensor.data().as_chunks().0.iter().map(|bytes| read(*bytes)).collect()
}

/// Shapes and values of the tensors whose names begin with `prefix`, without it.
pub fn tensors<const N: usize>(
    file: &SafeTensors,
    prefix: &str,
    dtype: Dtype,
    read: impl Fn([u8; N]) -> f32,
) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let names = file.names().into_iter().filter_map(|name| Some((name.strip_prefix(prefix)?, name)));
    names
        .map(|(short, name)| {
            let shape = file.tensor(name).expect("listed").shape().to_vec();
            (short.to_string(), (shape, values(file, name, dtype, &read)))
        })
        .collect()
}
