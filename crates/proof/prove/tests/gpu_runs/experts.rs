//! Models with experts: the choices of tokens, their rows and the weights after some steps are those of CPUs.

use config::{
    Activation, Balance, Biases, ChunkOrder, ContextKind, Degrees, ExpertGroups, ExpertsSpec, Format, GradientSums,
    LoadSet, ModelSpec, Overlap, Parallelism, Precision, Products, Recompute, RouterBias, RouterScores, RouterWeights,
    Routing, SharedExpert, SharedGate, Tied, ZeroStage,
};
use testkit::layout::Layout;

use crate::gpu_runs::rig::{ZERO_THREE, compare, stored_layout, with_more_sequences};
use crate::gpu_runs::shared_sequences::shared;

const STEPS: u32 = 3;

const SOFTMAX: Routing =
    Routing { scores: RouterScores::Softmax, weights: RouterWeights::Normalised, scale: 1.0, groups: None };

/// Eight experts of which a token uses two, in all layers but the first, and a gated expert of all tokens.
fn with_experts(model: ModelSpec) -> ModelSpec {
    let experts = ExpertsSpec {
        number: 8,
        per_token: 2,
        hidden: 24,
        shared: Some(SharedExpert { hidden: 16, gate: SharedGate::Learned }),
        first_layer: 1,
        layer_interval: 1,
        routing: SOFTMAX,
        balance: Balance::NONE,
    };
    ModelSpec { num_layers: 4, experts: Some(experts), ..model }
}

/// Groups of experts by sums of sigmoids, as DeepSeek routes.
fn with_groups(model: ModelSpec) -> ModelSpec {
    let routing = Routing {
        scores: RouterScores::Sigmoid,
        weights: RouterWeights::Scores,
        scale: 2.5,
        groups: Some(ExpertGroups { number: 4, kept: 2 }),
    };
    let model = with_experts(model);
    let experts =
        model.experts.map(|experts| ExpertsSpec { per_token: 3, shared: None, first_layer: 0, routing, ..experts });
    ModelSpec { experts, ..model }
}

fn layout(format: Format, degrees: [usize; 3], zero: ZeroStage) -> Layout {
    let layout = stored_layout(format, Tied::No, degrees, zero, Overlap::On, STEPS);
    with_more_sequences(Layout { model: with_experts(layout.model), ..layout })
}

#[needs::cuda]
#[test]
fn experts_with_sharded_optimizer_state_on_two_gpus() {
    compare(&layout(Format::Fp32, [2, 2, 2], ZeroStage::One), 2);
}

/// Products by tensor cores, with rows that are gathered again.
#[needs::cuda]
#[test]
fn experts_in_bf16_and_blocks_with_sharded_parameters_on_one_gpu() {
    let mut layout = layout(Format::Bf16, [2, 2, 1], ZERO_THREE);
    layout.train.precision = Precision::Bf16(Products::Blocks16);
    layout.parallelism.recompute = Recompute::FULL;
    compare(&layout, 1);
}

/// A term of each sequence of which an expert has rows.
#[needs::cuda]
#[test]
fn groups_of_experts_with_exact_sums_on_two_gpus() {
    let mut layout = layout(Format::Bf16, [2, 1, 1], ZeroStage::One);
    layout.model = with_groups(layout.model);
    layout.train.sums = GradientSums::Exact;
    layout.train.precision = Precision::Bf16(Products::Blocks16);
    layout.parallelism.recompute = Recompute::Selective;
    compare(&layout, 2);
}

/// Losses of routers, corrections of their choice and a capacity, whose counts all ranks add.
#[needs::cuda]
#[test]
fn balanced_experts_with_a_capacity_on_two_gpus() {
    let mut layout = layout(Format::Fp32, [2, 2, 1], ZeroStage::One);
    let (loss, z_loss, capacity) = (Some(0.1), Some(0.01), Some(1.0));
    let balance = Balance { loss, z_loss, bias: Some(RouterBias { rate: 0.01 }), capacity, ..Balance::NONE };
    layout.model = with_groups(layout.model);
    layout.model.experts = layout.model.experts.map(|experts| ExpertsSpec { balance, ..experts });
    compare(&layout, 2);
}

/// Routers and experts with biases, in layers whose gates are clamped.
#[needs::cuda]
#[test]
fn experts_with_biases_and_clamped_gates_on_two_gpus() {
    let mut layout = layout(Format::Bf16, [2, 2, 1], ZERO_THREE);
    let experts = layout.model.experts.map(|experts| ExpertsSpec { shared: None, ..experts });
    layout.model = ModelSpec { experts, biases: Biases::All, activation: Activation::SwiGluClamped, ..layout.model };
    layout.train.precision = Precision::Bf16(Products::Blocks16);
    layout.parallelism.recompute = Recompute::Selective;
    compare(&layout, 2);
}

#[needs::cuda]
#[test]
fn experts_of_ranks_that_share_sequences_on_one_gpu() {
    let degrees = Degrees { dp: 1, cp: 2, tp: 2, pp: 1 };
    let layout = shared(Tied::No, degrees, ContextKind::Gather, ChunkOrder::Balanced, ZeroStage::One);
    let balance = Balance { loss: Some(0.1), over: LoadSet::Step, capacity: Some(1.0), ..Balance::NONE };
    let parallelism = Parallelism { recompute: Recompute::Selective, ..layout.parallelism };
    let model = with_groups(layout.model);
    let experts = model.experts.map(|experts| ExpertsSpec { balance, ..experts });
    compare(&Layout { model: ModelSpec { experts, ..model }, parallelism, ..layout }, 1);
}

/// Rows go to the replicas that have their experts, and come back.
pub fn divided() -> Layout {
    let mut layout = layout(Format::Fp32, [2, 2, 1], ZeroStage::One);
    layout.parallelism.ep = 2;
    layout
}

#[needs::cuda]
#[test]
fn experts_that_are_divided_over_replicas_on_two_gpus() {
    compare(&divided(), 2);
}

#[needs::cuda]
#[test]
fn experts_that_are_divided_over_replicas_and_stages_with_exact_sums_on_one_gpu() {
    let mut layout = layout(Format::Bf16, [4, 1, 2], ZERO_THREE);
    layout.parallelism.ep = 4;
    layout.parallelism.recompute = Recompute::Selective;
    layout.train.sums = GradientSums::Exact;
    layout.train.precision = Precision::Bf16(Products::Blocks16);
    compare(&layout, 1);
}
