//! Models with experts: layouts that keep the order of sums change no bit, others stay within their bounds, and each
//! expert is on one rank of tensor parallelism.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use config::{
    Balance, ChunkOrder, ContextKind, ContextParallel, Degrees, ExpertGroups, ExpertsSpec, Gathering,
    GradientReduction, GradientSums, ModelSpec, MuonScale, Offload, Optimizer, Parallelism, Recompute, Reshard,
    RouterScores, RouterWeights, Routing, ScheduleKind, SequenceParallel, SharedExpert, SharedGate, TrainSpec, Unit,
    ZeroStage,
};
use prove::{Distance, EqualityClass, Outcome, Promise, Promised, is_noise};
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};

const NORMALISED: Routing =
    Routing { scores: RouterScores::Softmax, weights: RouterWeights::Normalised, scale: 1.0, groups: None };

/// Four layers of the proof model with 8 experts of which a token uses 2. Routers begin with logits of the size of 1,
/// so that choices are far from ties.
fn model(change: impl FnOnce(&mut ExpertsSpec)) -> ModelSpec {
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
fn models() -> Vec<(&'static str, ModelSpec)> {
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
    ]
}

fn training() -> TrainSpec {
    TrainSpec { steps: 3, global_batch: 8, warmup_steps: 1, ..proof_training() }
}

fn layout(model: &ModelSpec, parallelism: Parallelism, train: TrainSpec) -> Layout {
    Layout { model: model.clone(), parallelism, train }
}

fn outcome(layout: &Layout) -> Outcome {
    layout.outcome(&proof_text()).unwrap_or_else(|error| panic!("{:?}: {error}", layout.parallelism))
}

fn three(reduce: GradientReduction) -> ZeroStage {
    ZeroStage::Three { reduce, gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse } }
}

fn shared_tokens(kind: ContextKind) -> Parallelism {
    let plain = plain_layout(1, 1, 2, 2);
    let context = ContextParallel { kind, chunks: ChunkOrder::Contiguous };
    Parallelism { degrees: Degrees { cp: 2, ..plain.degrees }, context, ..plain }
}

const STEP: GradientReduction = GradientReduction::Step;

/// Layouts of the same order of sums, of other orders, and of other sums.
fn layouts() -> Vec<Parallelism> {
    let plain = plain_layout;
    vec![
        plain(1, 1, 2, 2),
        Parallelism { schedule: ScheduleKind::ZeroBubbleH1.into(), ..plain(1, 1, 2, 1) },
        Parallelism { schedule: ScheduleKind::ZeroBubbleV.into(), recompute: Recompute::FULL, ..plain(1, 1, 2, 1) },
        Parallelism { schedule: ScheduleKind::Interleaved { stages_per_rank: 2 }.into(), ..plain(1, 1, 2, 2) },
        Parallelism { recompute: Recompute::FULL, ..plain(1, 1, 1, 2) },
        Parallelism { recompute: Recompute::Selective, ..plain(1, 1, 1, 2) },
        Parallelism { recompute: Recompute::FULL, zero: ZeroStage::One, ..plain(2, 1, 2, 2) },
        Parallelism { zero: ZeroStage::Two { reduce: GradientReduction::Microbatch }, ..plain(2, 1, 1, 2) },
        Parallelism { recompute: Recompute::Selective, zero: three(STEP), ..plain(2, 1, 1, 2) },
        plain(1, 2, 1, 2),
        Parallelism { recompute: Recompute::FULL, ..plain(1, 4, 2, 2) },
        Parallelism { recompute: Recompute::Selective, sequence_parallel: SequenceParallel::On, ..plain(1, 2, 2, 2) },
        Parallelism { sequence_parallel: SequenceParallel::On, zero: three(STEP), ..plain(2, 2, 1, 2) },
        shared_tokens(ContextKind::Gather),
        shared_tokens(ContextKind::Heads),
    ]
}

/// How `many` breaks its promise to one rank; whether it promises bits.
fn faults(model: &ModelSpec, parallelism: Parallelism, train: &TrainSpec) -> (Vec<String>, bool) {
    let one = layout(model, plain_layout(1, 1, 1, parallelism.microbatch_size), train.clone());
    let many = layout(model, parallelism, train.clone());
    let class = EqualityClass::of(&one.parallelism, &many.parallelism);
    let promise = Promise::of(class, &many.model, &many.train, many.train.steps);
    let outcomes = [outcome(&one), outcome(&many)];
    let distance = Distance::between(&outcomes[0], &outcomes[1], |name| is_noise(&many.model, name));
    (promise.faults([&outcomes[0], &outcomes[1]], &distance), class.promises() == Promised::Bits)
}

#[test]
fn layouts_keep_their_promise_to_one_rank() {
    for (name, model) in models() {
        let mut same = 0;
        for parallelism in layouts() {
            let (faults, promises_bits) = faults(&model, parallelism.clone(), &training());
            let none: [&str; 0] = [];
            assert_eq!(faults, none, "{name}, {parallelism:?}");
            same += usize::from(promises_bits);
        }
        assert!(same >= 6, "{name}: {same} layouts promise bits");
    }
}

/// Exact sums have one term of each sequence and expert, however sequences are spread.
#[test]
fn exact_sums_have_the_same_bits_for_any_replicas_and_microbatches() {
    let train = TrainSpec { sums: GradientSums::Exact, ..training() };
    for (name, model) in models() {
        let one = outcome(&layout(&model, plain_layout(1, 1, 1, 1), train.clone()));
        for parallelism in [
            plain_layout(1, 1, 1, 4),
            plain_layout(4, 1, 2, 1),
            Parallelism { zero: three(GradientReduction::Microbatch), ..plain_layout(2, 1, 1, 2) },
        ] {
            let many = outcome(&layout(&model, parallelism.clone(), train.clone()));
            assert!(Distance::between(&one, &many, |_| false).same_bits, "{name}, {parallelism:?}");
        }
    }
}

/// Muon orthogonalises each matrix of each expert, on the rank that has it.
#[test]
fn muon_sees_the_matrices_of_experts_and_offloaded_state_has_the_same_bits() {
    let muon = Optimizer::Muon(config::Muon { momentum: 0.95, scale: MuonScale::AdamW });
    let (_, model) = models().swap_remove(1);
    let train = TrainSpec { optimizer: muon, ..training() };
    let setup = layout(&model, plain_layout(1, 2, 1, 2), train.clone()).setup().unwrap();
    let matrices = muon.muon_matrices(&setup.layouts[&Unit::Experts(0)]);
    let shapes: Vec<[usize; 2]> = matrices.iter().map(|(matrix, _)| [matrix.rows, matrix.cols]).collect();
    // Four experts on each of two ranks, with gate and up, and down.
    assert_eq!(shapes, [vec![[32, 48]; 8], vec![[48, 32]; 4]].concat());
    let zero = Parallelism { zero: ZeroStage::One, ..plain_layout(2, 1, 1, 2) };
    for parallelism in [plain_layout(1, 2, 1, 2), zero] {
        let none: [&str; 0] = [];
        assert_eq!(faults(&model, parallelism.clone(), &train).0, none, "{parallelism:?}");
    }
    let [arena, host] = [Offload::None, Offload::All].map(|offload| {
        let train = TrainSpec { offload, ema_decay: Some(0.9), ..training() };
        outcome(&layout(&model, plain_layout(1, 2, 2, 2), train))
    });
    assert!(Distance::between(&arena, &host, |_| false).same_bits);
}
