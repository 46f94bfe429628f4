//! One sequence of 4,096 tokens with three documents, shared by four ranks in each way: logits and gradients of PyTorch
//! in double precision (`tools/reference/long_sequence.py`).
//!
//! **Logits: 1e-5** relative. Sums over keys are the only ones that grow with the sequence. Their weights are positive
//! and add up to 1, and of K keys of similar weight errors of the chain are sqrt(K / 3) u of its result, 1.4e-6 for the
//! 1,559 of the longest document; the others are those of the short sequences. Two layers: within 5e-6.
//!
//! **Gradients: 1e-4** relative Frobenius distance per tensor. A gradient sums over all tokens: sqrt(4,096 / 6) u =
//! 1.6e-6 of its result if terms are of random sign. Softmax takes the mean of its gradient away over as many keys as a
//! query sees, so that in those of queries and keys less is left of larger terms than in short sequences: ten times
//! what the other vectors have, which is 1e-5.

use std::sync::Mutex;

use config::{
    ChunkOrder, ContextKind, ContextParallel, Degrees, IGNORED_LABEL, ModelSpec, Parallelism, RunConfig, TrainSpec,
};
use prove::{Outcome, Tensors, outcome_from};
use safetensors::{Dtype, SafeTensors};
use testkit::layout::{Layout, engine};
use testkit::models::plain_layout;
use train::{LogitsSink, SequenceBuffers, Setup, TensorMap, TokenSource, run_forward};

use crate::pytorch::vectors::{tensors, values};

const LOGITS: f64 = 1e-5;
const GRADIENTS: f64 = 1e-4;
/// Tokens from one with logits to the next.
const EVERY: usize = 61;

/// The tokens, one more than the sequence has, and the first of each document.
struct Documents {
    tokens: Vec<i32>,
    starts: Vec<i32>,
}

impl TokenSource for Documents {
    fn fill(&self, _step: u32, _sequence: u64, buffers: SequenceBuffers<'_>) {
        let length = buffers.tokens.len();
        buffers.tokens.copy_from_slice(&self.tokens[..length]);
        for place in 0..length {
            let first = self.starts.iter().copied().filter(|start| *start <= place as i32).max().expect("a document");
            let ends = place + 1 == length || self.starts.contains(&(place as i32 + 1));
            buffers.labels[place] = if ends { IGNORED_LABEL } else { self.tokens[place + 1] };
            buffers.positions[place] = place as i32 - first;
            buffers.visible[2 * place..2 * place + 2].copy_from_slice(&[first, place as i32 + 1]);
        }
    }
}

/// The input of PyTorch, and its results.
struct Long {
    model: ModelSpec,
    train: TrainSpec,
    text: Documents,
    initial: TensorMap,
    loss: f64,
    logits: Vec<f32>,
    gradients: Tensors,
}

fn open() -> Long {
    let config = RunConfig::load("three_documents", include_str!("long/three_documents.toml"), &[]).expect("legal");
    let file = SafeTensors::deserialize(include_bytes!("long/three_documents.safetensors")).expect("a file");
    let mut initial = TensorMap::default();
    let wide = |bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16);
    for (name, (shape, values)) in tensors(&file, "initial/", Dtype::BF16, wide) {
        initial.insert(&name, &shape, values);
    }
    let gradients = tensors(&file, "gradient/", Dtype::F32, f32::from_le_bytes);
    let vocabulary = file.tensor("initial/embedding.token.weight").expect("a table").shape()[0];
    Long {
        model: ModelSpec { vocabulary, ..config.model },
        train: config.train,
        text: Documents {
            tokens: values(&file, "tokens", Dtype::I8, |bytes| i32::from(i8::from_le_bytes(bytes))),
            starts: values(&file, "starts", Dtype::I32, i32::from_le_bytes),
        },
        initial,
        loss: values(&file, "loss", Dtype::F64, f64::from_le_bytes)[0],
        logits: values(&file, "logits", Dtype::F32, f32::from_le_bytes),
        gradients: gradients.into_iter().map(|(name, (_, values))| (name, values)).collect(),
    }
}

/// The logits of one token in [`EVERY`], by place.
struct Sampled {
    vocabulary: usize,
    rows: Mutex<Vec<(usize, Vec<f32>)>>,
}

impl LogitsSink for Sampled {
    fn put(&self, _sequence: u64, first_token: usize, logits: &[f32]) {
        for (row, logits) in logits.chunks(self.vocabulary).enumerate() {
            if (first_token + row).is_multiple_of(EVERY) {
                self.rows.lock().expect("no panic").push((first_token + row, logits.to_vec()));
            }
        }
    }
}

fn relative(ours: &[f32], exact: &[f32]) -> f64 {
    assert_eq!(ours.len(), exact.len());
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let apart = square(&mut ours.iter().zip(exact).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    (apart / square(&mut exact.iter().map(|value| f64::from(*value)))).sqrt()
}

/// Distances of the loss and the logits, and of the gradient that is farthest.
fn distances(long: &Long, parallelism: &Parallelism) -> ([f64; 2], (f64, String)) {
    let (model, train) = (long.model.clone(), long.train.clone());
    let setup = Setup::forward(model.clone(), parallelism.clone(), train.clone()).expect("a legal run");
    let sampled = Sampled { vocabulary: model.vocabulary, rows: Mutex::default() };
    run_forward(&setup, &*engine(&setup, 1), &long.text, Some(&long.initial), &sampled).expect("a forward pass");
    let mut rows = sampled.rows.into_inner().expect("no panic");
    rows.sort_by_key(|(place, _)| *place);
    let logits: Vec<f32> = rows.into_iter().flat_map(|(_, row)| row).collect();

    let setup = Layout { model, parallelism: parallelism.clone(), train }.setup().expect("a legal run");
    let Outcome { losses, gradients, .. } =
        outcome_from(&setup, &*engine(&setup, 1), &long.text, Some(&long.initial)).expect("a run");
    let far = long.gradients.iter().map(|(name, exact)| (relative(&gradients[name], exact), name.clone()));
    let farthest = far.max_by(|one, other| one.0.total_cmp(&other.0)).expect("parameters");
    ([(losses[0] - long.loss).abs() / long.loss, relative(&logits, &long.logits)], farthest)
}

#[test]
fn documents_of_a_long_sequence_on_four_ranks_have_the_logits_and_gradients_of_pytorch() {
    let long = open();
    let shared = |kind, chunks| {
        let plain = plain_layout(1, 1, 1, 1);
        let degrees = Degrees { cp: 4, ..plain.degrees };
        Parallelism { degrees, context: ContextParallel { kind, chunks }, ..plain }
    };
    let (balanced, contiguous) = (ChunkOrder::Balanced, ChunkOrder::Contiguous);
    let layouts = [
        plain_layout(1, 1, 1, 1),
        shared(ContextKind::Gather, balanced),
        shared(ContextKind::Gather, contiguous),
        shared(ContextKind::Heads, contiguous),
        shared(ContextKind::Ring, balanced),
        shared(ContextKind::Ring, contiguous),
    ];
    for parallelism in layouts {
        let ([loss, logits], (gradient, name)) = distances(&long, &parallelism);
        println!(
            "{} {:?}: loss {loss:.1e}, logits {logits:.1e}, gradient {gradient:.1e} ({name})",
            parallelism.degrees, parallelism.context
        );
        assert!(loss <= LOGITS && logits <= LOGITS && gradient <= GRADIENTS, "{parallelism:?}: {gradient:.1e} {name}");
    }
}
