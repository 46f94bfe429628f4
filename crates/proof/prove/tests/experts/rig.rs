//! Models with experts, layouts of them, and the comparison with one rank.

use config::{
    Activation, Balance, Biases, ChunkOrder, ContextKind, ContextParallel, Degrees, ExpertGroups, ExpertsSpec,
    Gathering, GradientReduction, ModelSpec, Parallelism, Reshard, RouterScores, RouterWeights, Routing, SharedExpert,
    SharedGate, TrainSpec, ZeroStage,
};
use prove::{Distance, EqualityClass, Outcome, Promise, is_noise};
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};

pub const NORMALISED: Routing =
    Routing { scores: RouterScores::Softmax, weights: RouterWeights::Normalised, scale: 1.0, groups: None };

/// Four layers of the proof model with 8 experts of which a token uses 2. Routers begin with logits of the size of 1,
/// so that choices are far from ties.
pub fn model(change: impl FnOnce(&mut ExpertsSpec)) -> ModelSpec {
    let mut experts = ExpertsSpec {
        number: 8,
        per_token: 2,
        hidden: 32,
        shared: None,
        first_layer: 0,
        layer_interval: 1,
        routing: NORMALISED,
        balance: Balance::NONE,
    };
    change(&mut experts);
    ModelSpec { num_layers: 4, experts: Some(experts), ..proof_model(Style::Llama, 12, false) }
}

/// The models, by name.
pub fn models() -> Vec<(&'static str, ModelSpec)> {
    let shared = |gate| Some(SharedExpert { hidden: 24, gate });
    vec![
        ("experts in all layers", model(|_| {})),
        (
            "a gated shared expert and weights that are scores, in every second layer",
            model(|experts| {
                experts.routing.weights = RouterWeights::Scores;
                experts.shared = shared(SharedGate::Learned);
                experts.layer_interval = 2;
            }),
        ),
        (
            "groups by sigmoid scores, a shared expert, a dense first layer",
            model(|experts| {
                experts.per_token = 3;
                experts.first_layer = 1;
                experts.shared = shared(SharedGate::Open);
                experts.routing = Routing {
                    scores: RouterScores::Sigmoid,
                    scale: 2.5,
                    groups: Some(ExpertGroups { number: 4, kept: 2 }),
                    ..NORMALISED
                };
            }),
        ),
        (
            "biases of routers and experts, clamped gates",
            ModelSpec { activation: Activation::SwiGluClamped, biases: Biases::All, ..model(|_| {}) },
        ),
    ]
}

pub fn training() -> TrainSpec {
    TrainSpec { steps: 3, global_batch: 8, warmup_steps: 1, ..proof_training() }
}

pub fn layout(model: &ModelSpec, parallelism: Parallelism, train: TrainSpec) -> Layout {
    Layout { model: model.clone(), parallelism, train }
}

pub fn outcome(layout: &Layout) -> Outcome {
    layout.outcome(&proof_text()).unwrap_or_else(|error| panic!("{:?}: {error}", layout.parallelism))
}

pub fn three(reduce: GradientReduction) -> ZeroStage {
    ZeroStage::Three { reduce, gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse } }
}

pub fn shared_tokens(kind: ContextKind) -> Parallelism {
    let plain = plain_layout(1, 1, 2, 2);
    let context = ContextParallel { kind, chunks: ChunkOrder::Contiguous };
    Parallelism { degrees: Degrees { cp: 2, ..plain.degrees }, context, ..plain }
}

/// The class of two layouts, and how their outcomes break its promise.
pub fn broken([one, many]: [&Layout; 2], outcomes: [&Outcome; 2]) -> (EqualityClass, Vec<String>) {
    let class = EqualityClass::of(&one.parallelism, &many.parallelism).in_sums([one.train.sums, many.train.sums]);
    let promise = Promise::of(class, &many.model, &many.train, many.train.steps);
    let distance = Distance::between(outcomes[0], outcomes[1], |name| is_noise(&many.model, name));
    (class, promise.faults(outcomes, &distance))
}

/// How `many` breaks its promise to one rank; whether it promises bits.
pub fn faults(model: &ModelSpec, parallelism: Parallelism, train: &TrainSpec) -> (EqualityClass, Vec<String>) {
    let one = layout(model, plain_layout(1, 1, 1, parallelism.microbatch_size), train.clone());
    let many = layout(model, parallelism, train.clone());
    broken([&one, &many], [&outcome(&one), &outcome(&many)])
}
