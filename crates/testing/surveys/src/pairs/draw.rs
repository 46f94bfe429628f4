//! Pairs drawn by a seed: a model with any of the features that run, its training, and two layouts that do not promise
//! bits.

use std::fmt;

use config::{
    Activation, Biases, Blocks, Degrees, Gathering, GradientReduction, GradientSums, LossScaling, ModelSpec, Norm,
    NormKind, Pairing, Parallelism, Position, Precision, Products, QkNorm, Reshard, RotaryScaling, SequenceParallel,
    TopQuery, TrainSpec, ZeroStage,
};
use prove::{EqualityClass, LEAST_NORMED_HEAD_DIM, Promised, without_bounds};
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};

use crate::random_choices::RandomChoices;

/// Tells the choices of pairs from those of other surveys.
const PURPOSE: u32 = 0x7061_6972;

/// Two layouts of one run, and its text.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The first one's place in the order of drawing.
    pub number: u32,
    /// The two.
    pub layouts: [Layout; 2],
    /// The text of both.
    pub text: ProofText,
}

impl Pair {
    /// The class of the promise between the layouts.
    pub fn class(&self) -> EqualityClass {
        let [a, b] = &self.layouts;
        EqualityClass::of(&a.parallelism, &b.parallelism).in_sums([a.train.sums, b.train.sums])
    }
}

/// The pair of this number: the first that is drawn with two legal layouts which do not promise the same bits.
pub fn draw(seed: u32, number: u32) -> Pair {
    let mut dice = RandomChoices::new(seed, number, PURPOSE);
    loop {
        let (model, train) = (model(&mut dice), training(&mut dice));
        let text_seed = u64::from(dice.word());
        let labels = dice.one_of(&[Labels::Every, Labels::Every, Labels::Ragged]);
        let words = dice.one_of(&[40, 61, 257]).min(model.vocabulary);
        let train = TrainSpec { sequence_length: model.context, ..train };
        let first = parallelism(&mut dice);
        let second = parallelism(&mut dice);
        let second = match dice.one_of(&[0, 1]) {
            0 => second,
            _ => Parallelism {
                degrees: Degrees { tp: first.degrees.tp, ..second.degrees },
                sequence_parallel: first.sequence_parallel,
                ..second
            },
        };
        let layouts =
            [first, second].map(|parallelism| Layout { model: model.clone(), parallelism, train: train.clone() });
        let text = ProofText { vocabulary: words, seed: text_seed, labels };
        let pair = Pair { number, layouts, text };
        if pair.class().promises() == Promised::Bounds && pair.layouts.iter().all(is_legal) {
            return pair;
        }
    }
}

/// Whether everything that is split can be divided.
fn is_legal(layout: &Layout) -> bool {
    let Layout { model, parallelism, train } = layout;
    let Degrees { dp, cp: _, tp, pp } = parallelism.degrees;
    let tokens_divide = match parallelism.sequence_parallel {
        SequenceParallel::Off => true,
        SequenceParallel::On => (parallelism.microbatch_size * train.sequence_length).is_multiple_of(tp),
    };
    let divided = [model.num_heads, model.num_kv_heads, model.ffn_hidden].iter().all(|count| count.is_multiple_of(tp));
    divided
        && tokens_divide
        && parallelism.degrees.world_size() <= 8
        && pp <= model.num_layers
        && train.global_batch.is_multiple_of(dp * parallelism.microbatch_size)
}

fn model(dice: &mut RandomChoices) -> ModelSpec {
    let (hidden, head_dim) = (dice.one_of(&[32, 32, 48, 48, 64, 96]), dice.one_of(&[4, 8, 16]));
    let num_heads = dice.one_of(&[4, 4, 8]);
    let num_kv_heads = num_heads / dice.one_of(&[1, 2, 4]);
    let num_layers = dice.one_of(&[1, 1, 2, 2, 3, 4, 6]);
    let context = dice.one_of(&[4, 4, 8, 8, 16, 32]);
    let kind = dice.one_of(&[NormKind::Layer, NormKind::Rms, NormKind::RmsPlusOne]);
    let rotary = Position::Rotary {
        base: dice.one_of(&[100.0, 10_000.0]),
        rotary_dims: head_dim / dice.one_of(&[1, 2]),
        pairing: dice.one_of(&[Pairing::Half, Pairing::Interleaved]),
        scaling: RotaryScaling::Off,
    };
    let positions = [Position::Learned { offset: 0 }, Position::Learned { offset: 2 }, rotary, rotary, Position::Alibi];
    let deep = Blocks::DeepNorm { alpha: (2.0 * num_layers as f32).sqrt() };
    let all_blocks =
        [Blocks::Sequential, Blocks::Sequential, Blocks::Parallel, Blocks::PostNorm, Blocks::Sandwich, deep];
    let blocks = dice.one_of(&all_blocks);
    let small_gain = (2.0 * num_layers as f32).powf(-0.5);
    let xavier_gain = match blocks {
        Blocks::DeepNorm { .. } => dice.one_of(&[None, Some(small_gain)]),
        Blocks::Sequential | Blocks::Parallel | Blocks::PostNorm | Blocks::Sandwich => None,
    };
    let all_biases = [Biases::All, Biases::All, Biases::Attention, Biases::QueryKeyValue, Biases::FeedForward];
    let all_norms = [QkNorm::Heads, QkNorm::Whole, QkNorm::Off, QkNorm::Off];
    let drawn = dice.one_of(&all_norms);
    let is_short = drawn == QkNorm::Heads && head_dim < LEAST_NORMED_HEAD_DIM;
    let qk_norm = if is_short { QkNorm::Off } else { drawn };
    let proof = proof_model(Style::Gpt2, num_heads, true);
    within_limits(ModelSpec {
        num_layers,
        hidden,
        num_heads,
        num_kv_heads,
        head_dim,
        ffn_hidden: hidden * dice.one_of(&[1, 1, 2, 4]),
        vocabulary: dice.one_of(&[61, 97, 257]),
        context,
        norm: Norm { kind, epsilon: 1e-5 },
        position: dice.one_of(&positions),
        activation: dice.one_of(&Activation::ALL),
        blocks,
        biases: if dice.one_of(&[true, true, false]) { dice.one_of(&all_biases) } else { Biases::Off },
        embedding_norm: dice.one_of(&[true, false, false, false]),
        tied_embeddings: dice.one_of(&[true, false]),
        padding_token: dice.one_of(&[None, None, None, Some(5)]),
        top_query: dice.one_of(&[TopQuery::On, TopQuery::Off, TopQuery::Off, TopQuery::Off, TopQuery::Off]),
        qk_norm,
        dropout: dice.one_of(&[0.0, 0.1]),
        attention_dropout: dice.one_of(&[0.0, 0.1]),
        init_std: dice.one_of(&[0.15, 0.25, 0.4, 0.6, 1.0]) / (hidden as f32).sqrt(),
        xavier_gain,
        lora: None,
        ..proof
    })
}

/// `model` with initial weights so small that no input reaches the limit of its activation: nothing is promised where
/// the slope jumps.
fn within_limits(model: ModelSpec) -> ModelSpec {
    if without_bounds(&model).is_none() {
        return model;
    }
    within_limits(ModelSpec { init_std: model.init_std / 2.0, ..model })
}

fn training(dice: &mut RandomChoices) -> TrainSpec {
    let scaling = LossScaling { initial: 4096.0, ..LossScaling::USUAL };
    let numbers = [
        Precision::Fp32(Products::Chained),
        Precision::Fp32(Products::Chained),
        Precision::Fp32(Products::Chained),
        Precision::Fp32(Products::Pairs),
        Precision::Bf16(Products::Chained),
        Precision::Bf16(Products::Pairs),
        Precision::Bf16(Products::Blocks16),
        Precision::Fp16(Products::Chained, scaling),
        Precision::Fp16(Products::Chained, scaling),
        Precision::Fp16(Products::Blocks8, scaling),
    ];
    let learning_rate = dice.one_of(&[3e-4, 1e-3, 3e-3]);
    TrainSpec {
        steps: dice.one_of(&[1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 5, 8, 20]),
        global_batch: dice.one_of(&[4, 8, 8]),
        warmup_steps: 1,
        learning_rate,
        min_learning_rate: learning_rate / 10.0,
        precision: dice.one_of(&numbers),
        epsilon: dice.one_of(&[1e-8, 1e-8, 1e-5]),
        clip_norm: dice.one_of(&[Some(1.0), Some(1.0), Some(0.1), None]),
        sums: dice.one_of(&[GradientSums::Single, GradientSums::Single, GradientSums::Single, GradientSums::Exact]),
        seed: u64::from(dice.word()),
        ..proof_training()
    }
}

fn parallelism(dice: &mut RandomChoices) -> Parallelism {
    let three = ZeroStage::Three {
        reduce: GradientReduction::Step,
        gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse },
    };
    let two = ZeroStage::Two { reduce: GradientReduction::Microbatch };
    let (dp, tp, pp) = (dice.one_of(&[1, 2, 4]), dice.one_of(&[1, 2, 4]), dice.one_of(&[1, 1, 1, 2]));
    Parallelism {
        sequence_parallel: dice.one_of(&[SequenceParallel::Off, SequenceParallel::Off, SequenceParallel::On]),
        zero: dice.one_of(&[ZeroStage::Off, ZeroStage::Off, ZeroStage::One, two, three]),
        ep: 1,
        sum_tree: dice.one_of(&[1, 1, 2]),
        ..plain_layout(dp, tp, pp, dice.one_of(&[1, 2, 4]))
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = &self.layouts;
        write!(f, "{:?} {:?} {:?} | {:?}", a.model, a.train, a.parallelism, b.parallelism)
    }
}
