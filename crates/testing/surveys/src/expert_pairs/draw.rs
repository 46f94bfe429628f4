//! Pairs drawn by a seed: a model with experts, its training, and two layouts of it that run files may have.

use std::fmt;

use config::{
    Activation, Balance, Biases, Blocks, ChunkOrder, ContextKind, ContextParallel, Degrees, ExpertGroups, ExpertsSpec,
    Format, GradientSums, LinearLayer, LoadSet, LoraSpec, LossScaling, ModelSpec, Muon, MuonScale, Norm, NormKind,
    Offload, Optimizer, Overlap, Pairing, Parallelism, Position, Precision, Products, QkNorm, RotaryScaling,
    RouterBias, RouterScores, RouterWeights, Routing, RunConfig, SequenceParallel, SharedExpert, SharedGate,
    Statistics, TokenizerSpec, TopQuery, TrainSpec, check,
};
use prove::EqualityClass;
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};

use crate::random_choices::RandomChoices;
use crate::space::{Form, RECOMPUTES, Schedule};

/// Tells the choices of these pairs from those of other surveys.
const PURPOSE: u32 = 0x6578_7065;
/// Gathers and heads are refused more often than rings.
const KINDS: [ContextKind; 8] = [
    ContextKind::Gather,
    ContextKind::Gather,
    ContextKind::Gather,
    ContextKind::Heads,
    ContextKind::Heads,
    ContextKind::Heads,
    ContextKind::Ring,
    ContextKind::Ring,
];
/// Ranks of a layout at most.
const MOST_RANKS: usize = 8;

/// Two layouts of one run, and its text.
#[derive(Clone, Debug)]
pub struct ExpertPair {
    /// The place in the order of drawing.
    pub number: u32,
    /// The two; models and training are the same.
    pub layouts: [Layout; 2],
    /// The text of both.
    pub text: ProofText,
}

impl ExpertPair {
    /// The class of the promise between the layouts.
    pub fn class(&self) -> EqualityClass {
        let [a, b] = &self.layouts;
        EqualityClass::of(&a.parallelism, &b.parallelism).in_sums([a.train.sums, b.train.sums])
    }
}

/// The pair of this number: the first that is drawn with two different layouts that a run file may have.
pub fn draw(seed: u32, number: u32) -> ExpertPair {
    let mut dice = RandomChoices::new(seed, number, PURPOSE);
    loop {
        let (model, train) = trainable(model(&mut dice), training(&mut dice));
        let first = parallelism(&mut dice);
        let second = comparable(&first, parallelism(&mut dice), &mut dice);
        let text = ProofText {
            vocabulary: 61,
            seed: u64::from(dice.word()),
            labels: dice.one_of(&[Labels::Every, Labels::Every, Labels::Ragged]),
        };
        let layouts =
            [first, second].map(|parallelism| Layout { model: model.clone(), parallelism, train: train.clone() });
        let pair = bounded(ExpertPair { number, layouts, text });
        let [a, b] = &pair.layouts;
        if a.parallelism != b.parallelism && pair.layouts.iter().all(|layout| is_legal(layout, MOST_RANKS)) {
            return pair;
        }
    }
}

/// The model and its training; with adapters, without what excludes them but for ZeRO-3. Few draws would be left.
fn trainable(model: ModelSpec, train: TrainSpec) -> (ModelSpec, TrainSpec) {
    let (Some(_), Some(experts)) = (&model.lora, &model.experts) else { return (model, train) };
    let balance = Balance { loss: None, z_loss: None, bias: None, ..experts.balance };
    let experts = Some(ExpertsSpec { balance, ..*experts });
    let train = TrainSpec { optimizer: Optimizer::AdamW, sums: GradientSums::Single, ..train };
    (ModelSpec { experts, top_query: TopQuery::Off, ..model }, train)
}

/// `pair` with a model and numbers for which there are bounds, if the layouts promise these. Bounds are derived for
/// choices that hardly ever differ, so for single precision where sums are split, and those of norms after blocks are
/// compared by the survey of all models.
fn bounded(mut pair: ExpertPair) -> ExpertPair {
    let class = pair.class();
    for layout in &mut pair.layouts {
        let (blocks, stored) = (layout.model.blocks, layout.train.precision.stored());
        match class {
            EqualityClass::SameOrder | EqualityClass::AnyOrder | EqualityClass::OtherDevice => {}
            EqualityClass::OtherOrder => layout.model.blocks = with_bounds(blocks),
            EqualityClass::OtherSums | EqualityClass::LibraryOrder => {
                layout.model.blocks = with_bounds(blocks);
                if stored != Format::Fp32 {
                    layout.train.precision = Precision::Fp32(Products::Chained);
                }
            }
        }
    }
    pair
}

fn with_bounds(blocks: Blocks) -> Blocks {
    match blocks {
        Blocks::Sequential | Blocks::Parallel => blocks,
        Blocks::PostNorm | Blocks::Sandwich | Blocks::DeepNorm { .. } => Blocks::Sequential,
    }
}

/// Whether a run file may have it, on `most_ranks` ranks at most.
pub(crate) fn is_legal(layout: &Layout, most_ranks: usize) -> bool {
    let Layout { model, parallelism, train } = layout.clone();
    let ranks = parallelism.degrees.world_size();
    let mut config = RunConfig { model, parallelism, train, ..RunConfig::quick_start() };
    config.data.tokenizer = TokenizerSpec::Bytes;
    config.run.ranks = ranks;
    ranks <= most_ranks && check(&config).is_ok()
}

fn experts(dice: &mut RandomChoices) -> ExpertsSpec {
    let groups = [None, None, Some(ExpertGroups { number: 4, kept: 2 }), Some(ExpertGroups { number: 2, kept: 1 })];
    let shared = |hidden, gate| Some(SharedExpert { hidden, gate });
    ExpertsSpec {
        number: dice.one_of(&[4, 8, 8, 16]),
        per_token: dice.one_of(&[1, 2, 2, 3]),
        hidden: dice.one_of(&[16, 24, 32]),
        shared: dice.one_of(&[None, shared(16, SharedGate::Open), shared(24, SharedGate::Learned)]),
        first_layer: dice.one_of(&[0, 0, 1]),
        layer_interval: dice.one_of(&[1, 1, 2]),
        routing: Routing {
            scores: dice.one_of(&[RouterScores::Softmax, RouterScores::Sigmoid]),
            weights: dice.one_of(&[RouterWeights::Normalised, RouterWeights::Scores]),
            scale: dice.one_of(&[1.0, 2.5]),
            groups: dice.one_of(&groups),
        },
        balance: balance(dice),
    }
}

/// Losses are larger than those of use, so that their gradients are seen among others.
fn balance(dice: &mut RandomChoices) -> Balance {
    Balance {
        loss: dice.one_of(&[None, None, Some(0.1)]),
        over: dice.one_of(&[LoadSet::Sequence, LoadSet::Step]),
        z_loss: dice.one_of(&[None, None, Some(0.01)]),
        bias: dice.one_of(&[None, None, Some(RouterBias { rate: 0.01 }), Some(RouterBias { rate: 0.0 })]),
        capacity: dice.one_of(&[None, None, None, Some(1.0)]),
        statistics: dice.one_of(&[Statistics::On, Statistics::On, Statistics::Off]),
    }
}

/// A model with experts.
pub(crate) fn model(dice: &mut RandomChoices) -> ModelSpec {
    let (hidden, num_layers) = (dice.one_of(&[32, 32, 48]), dice.one_of(&[2, 3, 4, 4]));
    let kind = dice.one_of(&[NormKind::Layer, NormKind::Rms, NormKind::RmsPlusOne]);
    let (pairing, scaling) = (Pairing::Half, RotaryScaling::Off);
    let rotary = Position::Rotary { base: 100.0, rotary_dims: 8, pairing, scaling };
    let deep = Blocks::DeepNorm { alpha: (2.0 * num_layers as f32).sqrt() };
    let blocks = [Blocks::Sequential, Blocks::Sequential, Blocks::Parallel, Blocks::PostNorm, Blocks::Sandwich, deep];
    let targets = vec![LinearLayer::Query, LinearLayer::Value, LinearLayer::Output];
    let lora = dice.one_of(&[false, false, false, true]).then_some(LoraSpec { rank: 4, alpha: 8.0, targets });
    ModelSpec {
        num_layers,
        hidden,
        num_heads: 4,
        num_kv_heads: dice.one_of(&[4, 4, 2]),
        head_dim: 8,
        ffn_hidden: 64,
        experts: Some(experts(dice)),
        vocabulary: 257,
        context: 16,
        norm: Norm { kind, epsilon: 1e-5 },
        position: dice.one_of(&[Position::Learned { offset: 0 }, rotary, rotary, Position::Alibi]),
        activation: dice.one_of(&Activation::ALL),
        blocks: dice.one_of(&blocks),
        biases: dice.one_of(&[Biases::Off, Biases::Attention, Biases::QueryKeyValue, Biases::All, Biases::FeedForward]),
        tied_embeddings: dice.one_of(&[true, false]),
        top_query: dice.one_of(&[TopQuery::Off, TopQuery::Off, TopQuery::Off, TopQuery::On]),
        qk_norm: dice.one_of(&[QkNorm::Off, QkNorm::Off, QkNorm::Heads, QkNorm::Whole]),
        dropout: dice.one_of(&[0.0, 0.1]),
        attention_dropout: dice.one_of(&[0.0, 0.1]),
        init_std: dice.one_of(&[0.25, 0.4, 0.6]) / (hidden as f32).sqrt(),
        lora,
        ..proof_model(Style::Llama, 4, false)
    }
}

/// Its training.
pub(crate) fn training(dice: &mut RandomChoices) -> TrainSpec {
    let scaling = LossScaling { initial: 256.0, ..LossScaling::USUAL };
    let single = Precision::Fp32(Products::Chained);
    let numbers = [
        single,
        single,
        single,
        Precision::Fp32(Products::Pairs),
        Precision::Bf16(Products::Chained),
        Precision::Bf16(Products::Blocks16),
        Precision::Fp16(Products::Chained, scaling),
    ];
    let muon = Optimizer::Muon(Muon { momentum: 0.95, scale: MuonScale::AdamW });
    let learning_rate = dice.one_of(&[3e-4, 1e-3]);
    let offloads = [Offload::None, Offload::None, Offload::Optimizer, Offload::Activations, Offload::All];
    TrainSpec {
        steps: dice.one_of(&[1, 2, 3]),
        global_batch: dice.one_of(&[8, 16]),
        sequence_length: dice.one_of(&[8, 16, 16]),
        warmup_steps: 1,
        learning_rate,
        min_learning_rate: learning_rate / 10.0,
        precision: dice.one_of(&numbers),
        optimizer: dice.one_of(&[Optimizer::AdamW, muon]),
        schedule_steps: None,
        ema_decay: dice.one_of(&[None, None, Some(0.9)]),
        offload: dice.one_of(&offloads),
        clip_norm: dice.one_of(&[Some(1.0), Some(0.1), None]),
        sums: dice.one_of(&[GradientSums::Single, GradientSums::Single, GradientSums::Exact]),
        seed: u64::from(dice.word()),
        ..proof_training()
    }
}

/// A layout without `ep`.
pub(crate) fn parallelism(dice: &mut RandomChoices) -> Parallelism {
    let [dp, tp] = [(); 2].map(|()| dice.one_of(&[1, 2, 2, 4]));
    let (cp, pp) = (dice.one_of(&[1, 2, 2]), dice.one_of(&[1, 2, 2, 4]));
    let form = dice.one_of(&Form::ALL);
    Parallelism {
        degrees: Degrees { dp, cp, tp, pp },
        context: ContextParallel {
            kind: dice.one_of(&KINDS),
            chunks: dice.one_of(&[ChunkOrder::Contiguous, ChunkOrder::Balanced]),
        },
        sequence_parallel: dice.one_of(&[SequenceParallel::Off, SequenceParallel::On]),
        zero: form.zero,
        shard_group: form.shard_group(dp),
        ep: 1,
        sum_tree: dice.one_of(&[1, 1, 2]),
        schedule: dice.one_of(&Schedule::GENERATED).into(),
        recompute: dice.one_of(&RECOMPUTES),
        overlap: dice.one_of(&[None, Some(Overlap::On), Some(Overlap::Off)]),
        ..plain_layout(dp, tp, pp, dice.one_of(&[1, 2, 4]))
    }
}

/// `second` with what a promise of `first` needs: in two of three pairs everything that splits sums is the same, and in
/// half of these also everything that groups sequences.
fn comparable(first: &Parallelism, second: Parallelism, dice: &mut RandomChoices) -> Parallelism {
    let Parallelism { degrees: Degrees { dp, cp, tp, .. }, context, sequence_parallel, .. } = *first;
    let of_sums = |second: Parallelism| Parallelism {
        degrees: Degrees { cp, tp, ..second.degrees },
        context,
        sequence_parallel,
        shard_group: None,
        ..second
    };
    match dice.one_of(&[0, 1, 2]) {
        0 => second,
        1 => of_sums(second),
        _ => {
            let second = of_sums(second);
            let reduction = first.zero.reduction();
            let zero = if second.zero.reduction() == reduction { second.zero } else { first.zero };
            Parallelism {
                degrees: Degrees { dp, ..second.degrees },
                microbatch_size: first.microbatch_size,
                shard_group: first.shard_group,
                sum_tree: first.sum_tree,
                zero,
                ..second
            }
        }
    }
}

impl fmt::Display for ExpertPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = &self.layouts;
        write!(f, "{:?} {:?} {:?} | {:?}", a.model, a.train, a.parallelism, b.parallelism)
    }
}
