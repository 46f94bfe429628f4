//! Layouts whose ranks divide experts, drawn by a seed, each with a layout of one rank: with exact sums both have the
//! same bits.

use config::{
    Activation, Balance, Blocks, Degrees, ExpertGroups, ExpertsSpec, Format, GradientSums, LoadSet, ModelSpec, Muon,
    MuonScale, Optimizer, Overlap, Parallelism, Precision, Products, Recompute, RouterBias, RouterScores,
    RouterWeights, Routing, RunConfig, ScheduleKind, SharedExpert, SharedGate, Statistics, TokenizerSpec, TrainSpec,
    ZeroStage, check,
};
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_training};

use crate::random_choices::RandomChoices;
use crate::space::{Form, Schedule};

/// Tells the choices of these layouts from those of other surveys.
const PURPOSE: u32 = 0x6570_7368;

/// One rank, and many that divide experts, with one model and training.
#[derive(Clone, Debug)]
pub struct SpreadLayout {
    /// One rank, with microbatches of one sequence.
    pub one: Layout,
    /// The layout with `ep` above 1.
    pub many: Layout,
}

/// The layout of this number: the first that is drawn and that a run file may have.
pub fn draw(seed: u32, number: u32) -> SpreadLayout {
    let mut dice = RandomChoices::new(seed, number, PURPOSE);
    loop {
        let (model, train, parallelism) = (model(&mut dice), training(&mut dice), parallelism(&mut dice));
        let of = |parallelism| Layout { model: model.clone(), parallelism, train: train.clone() };
        let drawn = SpreadLayout { one: of(plain_layout(1, 1, 1, 1)), many: of(parallelism) };
        if [&drawn.one, &drawn.many].into_iter().all(is_legal) {
            return drawn;
        }
    }
}

fn is_legal(layout: &Layout) -> bool {
    let Layout { model, parallelism, train } = layout.clone();
    let mut config = RunConfig { model, parallelism, train, ..RunConfig::quick_start() };
    config.data.tokenizer = TokenizerSpec::Bytes;
    config.run.ranks = config.parallelism.world_size();
    check(&config).is_ok()
}

/// Matrices of experts of 4,096 elements, a block of the norm.
fn model(dice: &mut RandomChoices) -> ModelSpec {
    let shared = |hidden, gate| Some(SharedExpert { hidden, gate });
    let num_layers = dice.one_of(&[2, 3, 4]);
    let deep = Blocks::DeepNorm { alpha: (2.0 * num_layers as f32).sqrt() };
    let experts = ExpertsSpec {
        number: dice.one_of(&[8, 8, 16]),
        per_token: dice.one_of(&[1, 2, 2, 3]),
        hidden: 128,
        shared: dice.one_of(&[None, shared(16, SharedGate::Open), shared(24, SharedGate::Learned)]),
        first_layer: dice.one_of(&[0, 0, 1]),
        layer_interval: dice.one_of(&[1, 1, 2]),
        routing: Routing {
            scores: dice.one_of(&[RouterScores::Softmax, RouterScores::Sigmoid]),
            weights: dice.one_of(&[RouterWeights::Normalised, RouterWeights::Scores]),
            scale: dice.one_of(&[1.0, 2.5]),
            groups: dice.one_of(&[None, None, Some(ExpertGroups { number: 4, kept: 2 })]),
        },
        balance: Balance {
            loss: dice.one_of(&[None, None, Some(0.1)]),
            over: dice.one_of(&[LoadSet::Sequence, LoadSet::Step]),
            z_loss: dice.one_of(&[None, None, Some(0.01)]),
            bias: dice.one_of(&[None, None, Some(RouterBias { rate: 0.01 })]),
            capacity: dice.one_of(&[None, None, Some(1.0)]),
            statistics: dice.one_of(&[Statistics::On, Statistics::Off]),
        },
    };
    ModelSpec {
        num_layers,
        hidden: 32,
        num_heads: 4,
        num_kv_heads: dice.one_of(&[4, 2]),
        head_dim: 8,
        ffn_hidden: 64,
        experts: Some(experts),
        vocabulary: 257,
        context: 16,
        activation: dice.one_of(&Activation::ALL),
        blocks: dice.one_of(&[Blocks::Sequential, Blocks::Sequential, Blocks::PostNorm, Blocks::Sandwich, deep]),
        tied_embeddings: dice.one_of(&[true, false]),
        dropout: dice.one_of(&[0.0, 0.1]),
        init_std: dice.one_of(&[0.25, 0.4, 0.6]) / 32f32.sqrt(),
        ..proof_model(Style::Llama, 4, false)
    }
}

fn training(dice: &mut RandomChoices) -> TrainSpec {
    let single = Precision::Fp32(Products::Chained);
    let narrow = [Precision::Fp32(Products::Pairs), Precision::Bf16(Products::Chained)];
    let muon = Optimizer::Muon(Muon { momentum: 0.95, scale: MuonScale::AdamW });
    TrainSpec {
        steps: 3,
        global_batch: 16,
        sequence_length: dice.one_of(&[8, 16]),
        warmup_steps: 1,
        precision: dice.one_of(&[single, single, narrow[0], narrow[1]]),
        optimizer: dice.one_of(&[Optimizer::AdamW, Optimizer::AdamW, muon]),
        ema_decay: dice.one_of(&[None, Some(0.9)]),
        clip_norm: dice.one_of(&[Some(1.0), Some(0.1), None]),
        sums: GradientSums::Exact,
        seed: u64::from(dice.word()),
        ..proof_training()
    }
}

fn parallelism(dice: &mut RandomChoices) -> Parallelism {
    let [ep, replicas] = [dice.one_of(&[2, 2, 4, 8]), dice.one_of(&[1, 1, 2, 4])];
    let (dp, pp, form) = (ep * replicas, dice.one_of(&[1, 1, 2]), dice.one_of(&Form::ALL));
    Parallelism {
        degrees: Degrees { dp, cp: 1, tp: 1, pp },
        ep,
        zero: form.zero,
        shard_group: form.shard_group(dp),
        schedule: dice.one_of(&Schedule::GENERATED).into(),
        recompute: dice.one_of(&[Recompute::None, Recompute::Selective, Recompute::FULL]),
        overlap: dice.one_of(&[None, Some(Overlap::On)]),
        ..plain_layout(dp, 1, pp, dice.one_of(&[1, 2, 4]))
    }
}

/// The values of factors that a layout has, by name.
pub fn factors(SpreadLayout { many, .. }: &SpreadLayout) -> Vec<&'static str> {
    let Layout { model, parallelism, train } = many;
    let Parallelism { degrees: Degrees { dp, pp, .. }, ep, microbatch_size, .. } = *parallelism;
    let of_ep = match ep {
        2 => "ep 2",
        4 => "ep 4",
        _ => "ep 8",
    };
    let zero = match parallelism.zero {
        ZeroStage::Off => "ZeRO-0",
        ZeroStage::One => "ZeRO-1",
        ZeroStage::Two { .. } => "ZeRO-2",
        ZeroStage::Three { .. } => "ZeRO-3",
    };
    let recompute = match parallelism.recompute {
        Recompute::None => "nothing recomputed",
        Recompute::Selective => "core recomputed",
        Recompute::Full(_) => "layers recomputed",
    };
    let one_forward_one_backward = ScheduleKind::OneForwardOneBackward.into();
    let named = [
        (dp > ep, "replicas of experts"),
        (pp > 1, "pp"),
        (pp > 1 && parallelism.schedule != one_forward_one_backward, "other schedules"),
        (microbatch_size > 1, "several rounds"),
        (parallelism.shard_group.is_some_and(|group| group < dp), "sharding groups"),
        (parallelism.overlap == Some(Overlap::On), "overlap"),
        (train.precision.stored() != Format::Fp32, "bf16"),
        (matches!(train.optimizer, Optimizer::Muon(_)), "Muon"),
        (model.experts.is_some_and(|experts| experts.balance.capacity.is_some()), "capacity"),
        (model.experts.is_some_and(|experts| experts.balance.bias.is_some()), "correction"),
        (model.experts.is_some_and(|experts| experts.shared.is_some()), "shared expert"),
    ];
    let acting = named.into_iter().filter_map(|(acts, name)| acts.then_some(name));
    [of_ep, zero, recompute].into_iter().chain(acting).collect()
}
