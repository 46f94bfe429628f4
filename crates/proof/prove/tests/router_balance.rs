//! Losses of routers, corrections of their choice and the counts of a step: functions of the text and the weights,
//! whatever the layout.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]
#![expect(clippy::wildcard_enum_match_arm, reason = "tests look for one operation among many")]

use std::cell::Cell;
use std::sync::Mutex;

use config::{
    Anomalies, Balance, ChunkOrder, ContextKind, ContextParallel, Degrees, ExpertGroups, ExpertsSpec, Gathering,
    GradientReduction, GradientSums, LoadSet, ModelSpec, OnNonFinite, Parallelism, Recompute, Reshard, RouterBias,
    RouterScores, RouterWeights, Routing, ScheduleKind, SequenceParallel, SharedExpert, SharedGate, TrainSpec,
    ZeroStage,
};
use device::{BalanceOp, Op, Orientation, Write};
use mesh::{Coord, Rank};
use prove::{Distance, EqualityClass, Outcome, Promise, Promised, is_noise};
use testkit::intercepted::intercept_ops;
use testkit::layout::{Layout, engine};
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use testkit::wrapped_engine::WrappedEngine;
use train::{
    Engine, Evaluation, Observer, Ports, RankEngine, RouterReport, SequenceBuffers, Setup, StepReport, StopRequest,
    TensorMap, TokenSource, run,
};

const SOFTMAX: Routing =
    Routing { scores: RouterScores::Softmax, weights: RouterWeights::Scores, scale: 1.0, groups: None };
const RATE: f32 = 0.01;

/// Labels of a random part of each sequence count.
const RAGGED: ProofText = ProofText { vocabulary: 61, seed: 1, labels: Labels::Ragged };

/// Four layers of the proof model with 8 experts of which a token uses 2.
fn model(balance: Balance, change: impl FnOnce(&mut ExpertsSpec)) -> ModelSpec {
    let mut experts = ExpertsSpec {
        number: 8,
        per_token: 2,
        hidden: 32,
        shared: None,
        first_layer: 0,
        layer_interval: 1,
        routing: SOFTMAX,
        balance,
    };
    change(&mut experts);
    ModelSpec { num_layers: 4, experts: Some(experts), ..proof_model(Style::Llama, 12, false) }
}

/// A balance loss of each kind, with the z-loss and a correction, by name. Coefficients are large, so that gradients
/// that lack a loss are far from theirs.
fn models() -> Vec<(&'static str, ModelSpec)> {
    let of_sequences = Balance { loss: Some(0.2), z_loss: Some(0.05), ..Balance::NONE };
    let bias = Some(RouterBias { rate: RATE });
    let of_steps = Balance { loss: Some(0.2), over: LoadSet::Step, bias, ..Balance::NONE };
    vec![
        (
            "a balance loss of sequences and a z-loss",
            model(of_sequences, |experts| {
                experts.shared = Some(SharedExpert { hidden: 24, gate: SharedGate::Learned });
            }),
        ),
        (
            "a balance loss of the step before and a correction, groups by sigmoid scores, a dense first layer",
            model(of_steps, |experts| {
                experts.per_token = 3;
                experts.first_layer = 1;
                experts.routing = Routing {
                    scores: RouterScores::Sigmoid,
                    weights: RouterWeights::Normalised,
                    scale: 2.5,
                    groups: Some(ExpertGroups { number: 4, kept: 2 }),
                };
            }),
        ),
    ]
}

fn training() -> TrainSpec {
    TrainSpec { steps: 3, global_batch: 8, warmup_steps: 1, ..proof_training() }
}

#[derive(Default)]
struct Log {
    reports: Mutex<Vec<StepReport>>,
    routers: Mutex<Vec<RouterReport>>,
}

impl Observer for Log {
    fn step(&self, report: &StepReport) -> StopRequest {
        self.reports.lock().unwrap().push(*report);
        StopRequest::None
    }

    fn routers(&self, report: &RouterReport) {
        self.routers.lock().unwrap().push(report.clone());
    }
}

/// A run that has ended.
#[derive(Debug)]
struct Ran {
    outcome: Outcome,
    routers: Vec<RouterReport>,
}

impl Ran {
    fn on(setup: &Setup, engine: &dyn Engine, tokens: &dyn TokenSource, evaluation: Option<Evaluation<'_>>) -> Ran {
        let (log, gradients, weights) = (Log::default(), TensorMap::default(), TensorMap::default());
        let ports = Ports {
            first_gradients: Some(&gradients),
            weights: Some(&weights),
            evaluation,
            ..Ports::new(tokens, &log)
        };
        run(setup, engine, ports).unwrap_or_else(|error| panic!("{:?}: {error}", setup.parallelism));
        let Log { reports, routers } = log;
        let reports = reports.into_inner().unwrap();
        let routers = routers.into_inner().unwrap();
        let figures = routers.iter().map(|report| Some(report.figures));
        assert!(figures.eq(reports.iter().map(|report| report.routers)), "figures of steps are those of routers");
        Ran { outcome: Outcome::new(&reports, gradients, weights).unwrap(), routers }
    }

    fn of(model: &ModelSpec, parallelism: Parallelism, train: TrainSpec, tokens: &dyn TokenSource) -> Ran {
        let setup = Layout { model: model.clone(), parallelism, train }.setup().unwrap();
        Ran::on(&setup, &*engine(&setup, 1), tokens, None)
    }

    fn same_bits(&self, other: &Ran) -> bool {
        Distance::between(&self.outcome, &other.outcome, |_| false).same_bits && self.routers == other.routers
    }

    /// The corrections of a layer after the last step.
    fn corrections(&self, layer: u32) -> &[f32] {
        &self.outcome.weights[&format!("layers.{layer}.router.correction")]
    }
}

fn three(reduce: GradientReduction) -> ZeroStage {
    ZeroStage::Three { reduce, gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse } }
}

fn shared_tokens(kind: ContextKind) -> Parallelism {
    let plain = plain_layout(1, 1, 2, 2);
    let context = ContextParallel { kind, chunks: ChunkOrder::Contiguous };
    Parallelism { degrees: Degrees { cp: 2, ..plain.degrees }, context, ..plain }
}

/// Layouts of the same order of sums, of other orders, and of other sums.
fn layouts() -> Vec<Parallelism> {
    let plain = plain_layout;
    vec![
        plain(1, 1, 2, 2),
        Parallelism { schedule: ScheduleKind::ZeroBubbleV.into(), recompute: Recompute::FULL, ..plain(1, 1, 2, 1) },
        Parallelism { schedule: ScheduleKind::Interleaved { stages_per_rank: 2 }.into(), ..plain(1, 1, 2, 2) },
        Parallelism { recompute: Recompute::FULL, ..plain(1, 1, 1, 2) },
        Parallelism { recompute: Recompute::Selective, ..plain(1, 1, 1, 2) },
        Parallelism { recompute: Recompute::FULL, zero: ZeroStage::One, ..plain(2, 1, 2, 2) },
        Parallelism { zero: three(GradientReduction::Microbatch), ..plain(2, 1, 1, 2) },
        plain(1, 2, 1, 2),
        Parallelism { sequence_parallel: SequenceParallel::On, recompute: Recompute::FULL, ..plain(2, 2, 1, 2) },
        shared_tokens(ContextKind::Gather),
        shared_tokens(ContextKind::Heads),
        shared_tokens(ContextKind::Ring),
    ]
}

/// Drops are a function of the sequence: no layout changes one, and recomputation drops the same again.
#[test]
fn a_capacity_drops_the_same_under_every_layout() {
    let balance = Balance { capacity: Some(0.75), loss: Some(0.05), ..Balance::NONE };
    let model = model(balance, |_| {});
    let train = TrainSpec { sums: GradientSums::Exact, ..training() };
    let one = Ran::of(&model, plain_layout(1, 1, 1, 1), train.clone(), &RAGGED);
    let dropped = |ran: &Ran| ran.routers.iter().map(|report| report.figures.dropped).collect::<Vec<_>>();
    assert!(dropped(&one).iter().all(|share| share.is_some_and(|share| share > 0.1 && share < 0.9)), "{one:?}");
    for parallelism in [
        plain_layout(4, 1, 1, 2),
        Parallelism { recompute: Recompute::FULL, zero: three(GradientReduction::Step), ..plain_layout(2, 1, 2, 4) },
    ] {
        let many = Ran::of(&model, parallelism.clone(), train.clone(), &RAGGED);
        assert!(one.same_bits(&many), "{parallelism:?}");
    }
    let tensor = Ran::of(&model, plain_layout(1, 2, 1, 1), train.clone(), &RAGGED);
    assert_eq!(dropped(&one)[0], dropped(&tensor)[0]);
    let without = self::model(Balance { capacity: None, ..balance }, |_| {});
    let without = Ran::of(&without, plain_layout(1, 1, 1, 1), train, &RAGGED);
    assert_ne!(one.outcome.losses, without.outcome.losses);
    assert_eq!(one.routers[0].choices, without.routers[0].choices, "counts are those of choices");
}

/// Ranks that share sequences drop what one rank drops: the first step has the same drops to the last one, and its
/// gradients are as near as without a capacity.
#[test]
fn ranks_that_share_sequences_drop_what_one_rank_drops() {
    let balance = Balance { capacity: Some(0.75), ..Balance::NONE };
    let model = model(balance, |_| {});
    let recomputed = Parallelism { recompute: Recompute::FULL, ..shared_tokens(ContextKind::Ring) };
    for parallelism in [shared_tokens(ContextKind::Gather), shared_tokens(ContextKind::Heads), recomputed] {
        let one = plain_layout(1, 1, 1, parallelism.microbatch_size);
        let class = EqualityClass::of(&one, &parallelism);
        let [one, many] = [one, parallelism.clone()].map(|own| Ran::of(&model, own, training(), &RAGGED));
        let promise = Promise::of(class, &model, &training(), training().steps);
        let distance = Distance::between(&one.outcome, &many.outcome, |name| is_noise(&model, name));
        let none: [&str; 0] = [];
        assert_eq!(promise.faults([&one.outcome, &many.outcome], &distance), none, "{parallelism:?}");
        let [one, many] = [one, many].map(|ran| (ran.routers[0].figures.dropped, ran.routers[0].choices.clone()));
        assert_eq!(one, many, "{parallelism:?}");
        assert!(one.0.is_some_and(|share| share > 0.1 && share < 0.9), "{one:?}");
    }
}

/// Choices of the first step are those of one rank under every layout: logits are far from ties. So no layout counts a
/// token twice or not at all.
#[test]
fn layouts_keep_their_promise_and_count_each_token_once() {
    for (name, model) in models() {
        let mut same = 0;
        for parallelism in layouts() {
            let one = plain_layout(1, 1, 1, parallelism.microbatch_size);
            let [one, many] = [one, parallelism.clone()].map(|own| Ran::of(&model, own, training(), &RAGGED));
            let class = EqualityClass::of(&plain_layout(1, 1, 1, parallelism.microbatch_size), &parallelism);
            let promise = Promise::of(class, &model, &training(), training().steps);
            let distance = Distance::between(&one.outcome, &many.outcome, |name| is_noise(&model, name));
            let none: [&str; 0] = [];
            assert_eq!(promise.faults([&one.outcome, &many.outcome], &distance), none, "{name}, {parallelism:?}");
            assert_eq!(one.routers[0].choices, many.routers[0].choices, "{name}, {parallelism:?}");
            if class.promises() == Promised::Bits {
                assert!(one.same_bits(&many), "{name}, {parallelism:?}: {:?}\n{:?}", one.routers, many.routers);
                same += 1;
            }
        }
        assert!(same >= 5, "{name}: {same} layouts promise bits");
    }
}

#[test]
fn exact_sums_have_the_same_bits_for_any_replicas_and_microbatches() {
    let train = TrainSpec { sums: GradientSums::Exact, ..training() };
    for (name, model) in models() {
        let one = Ran::of(&model, plain_layout(1, 1, 1, 1), train.clone(), &RAGGED);
        for parallelism in [
            plain_layout(1, 1, 1, 4),
            plain_layout(4, 1, 2, 1),
            Parallelism { zero: three(GradientReduction::Microbatch), ..plain_layout(2, 1, 1, 2) },
        ] {
            let many = Ran::of(&model, parallelism.clone(), train.clone(), &RAGGED);
            assert!(one.same_bits(&many), "{name}, {parallelism:?}");
        }
    }
}

/// First gradients are linear in a coefficient, on every layout: twice the coefficient adds twice as much to the
/// gradient of every router, and to what is before it.
#[test]
fn the_gradient_grows_with_the_coefficient_on_every_layout() {
    let train = TrainSpec { steps: 1, clip_norm: None, ..training() };
    for is_z_loss in [false, true] {
        let gradients = |parallelism: &Parallelism, coefficient: f32| {
            let coefficient = (coefficient > 0.0).then_some(coefficient);
            let own = if is_z_loss { (None, coefficient) } else { (coefficient, None) };
            let balance = Balance { loss: own.0, z_loss: own.1, ..Balance::NONE };
            Ran::of(&model(balance, |_| {}), parallelism.clone(), train.clone(), &RAGGED).outcome.gradients
        };
        let mut first: Option<Vec<f64>> = None;
        for parallelism in [plain_layout(1, 1, 1, 2), plain_layout(2, 2, 2, 1), shared_tokens(ContextKind::Gather)] {
            let [none, once, twice] = [0.0, 0.125, 0.25].map(|coefficient| gradients(&parallelism, coefficient));
            let mut norms = vec![];
            for layer in 0..4 {
                let name = format!("layers.{layer}.router.weight");
                let added = |with: &[f32]| -> Vec<f64> {
                    with.iter().zip(&none[&name]).map(|(with, none)| f64::from(*with) - f64::from(*none)).collect()
                };
                let [one, two] = [added(&once[&name]), added(&twice[&name])];
                let norm = one.iter().map(|value| value * value).sum::<f64>().sqrt();
                let error = one.iter().zip(&two).map(|(one, two)| (two - 2.0 * one).powi(2)).sum::<f64>().sqrt();
                assert!(norm > 1e-5, "{parallelism:?}, {name}: {norm:e}");
                // A few hundred roundings of gradients of the size of 1e-2.
                assert!(error <= 1e-6, "{parallelism:?}, {name}: {error:e} of {norm:e}");
                norms.push(norm);
            }
            let first = first.get_or_insert_with(|| norms.clone());
            let same = first.iter().zip(&norms).all(|(one, other)| (one / other - 1.0).abs() < 1e-3);
            assert!(same, "{parallelism:?}: {norms:?} instead of {first:?}");
        }
    }
}

/// The corrections that follow from the counts that were reported, by the definition.
fn defined_corrections(reports: &[RouterReport], layer: u32) -> Vec<f32> {
    let mut corrections = vec![0.0; 8];
    for report in reports {
        let (_, counts) = report.choices.iter().find(|(number, _)| *number == layer).unwrap();
        let sum: i64 = counts.iter().sum();
        for (correction, count) in corrections.iter_mut().zip(counts) {
            *correction += RATE * (sum - 8 * count).signum() as f32;
        }
    }
    corrections
}

#[test]
fn corrections_follow_from_the_counts_of_tokens_with_labels() {
    let (_, model) = models().swap_remove(1);
    let ran = Ran::of(&model, plain_layout(2, 2, 1, 2), training(), &RAGGED);
    for (report, valid) in ran.routers.iter().zip(&ran.outcome.valid_tokens) {
        assert_eq!(report.choices.iter().map(|(layer, _)| *layer).collect::<Vec<_>>(), [1, 2, 3]);
        for (layer, counts) in &report.choices {
            assert_eq!(counts.iter().sum::<i64>() as u64, 3 * valid, "step {}, layer {layer}", report.step);
        }
    }
    assert!(ran.outcome.valid_tokens.iter().all(|valid| *valid < 64), "some tokens have no label");
    for layer in 1..4 {
        let corrections = ran.corrections(layer);
        assert_eq!(corrections, defined_corrections(&ran.routers, layer), "layer {layer}");
        assert!(corrections.iter().any(|correction| *correction != 0.0), "layer {layer}");
    }
    let last = ran.routers.last().unwrap().figures;
    let before: Vec<f32> = (1..4).flat_map(|layer| defined_corrections(&ran.routers[..2], layer)).collect();
    let [least, most] = last.bias.unwrap();
    assert!(before.iter().all(|value| (least..=most).contains(value)) && before.contains(&least), "{last:?}");
    assert!(!ran.outcome.gradients.keys().any(|name| name.contains("correction")), "a correction has no gradient");
}

/// Text whose tokens without labels, at the ends of sequences, are others.
struct OtherPadding;

impl TokenSource for OtherPadding {
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        let SequenceBuffers { tokens, labels, positions, visible } = buffers;
        let same = SequenceBuffers { tokens: &mut *tokens, labels: &mut *labels, positions, visible };
        RAGGED.fill(step, sequence, same);
        for (place, (token, _)) in
            tokens.iter_mut().zip(labels.iter()).enumerate().filter(|(_, (_, label))| **label < 0)
        {
            *token = (*token + 1 + place as i32) % 61;
        }
    }
}

/// Tokens without labels that no other token sees change neither counts nor losses.
#[test]
fn padding_is_in_no_count_and_no_loss() {
    for (name, model) in models() {
        let of = |tokens: &dyn TokenSource| {
            let train = TrainSpec { steps: 1, ..training() };
            Ran::of(&model, plain_layout(1, 1, 1, 2), train, tokens)
        };
        let [one, other] = [of(&RAGGED), of(&OtherPadding)];
        assert_eq!(one.routers, other.routers, "{name}");
        assert_eq!(one.outcome.losses, other.outcome.losses, "{name}");
        assert_eq!(one.outcome.gradients, other.outcome.gradients, "{name}");
    }
}

/// Evaluations choose by the corrections, and neither count nor correct.
#[test]
fn evaluations_change_nothing_of_routers() {
    for (name, model) in models() {
        let held_out = ProofText { seed: 8, ..RAGGED };
        let evaluation = Evaluation { tokens: &held_out, sequences: 5, every: 1 };
        let parallelism = Parallelism { zero: ZeroStage::One, ..plain_layout(2, 1, 2, 2) };
        let setup = Setup::with_evaluation(model.clone(), parallelism.clone(), training(), 5).unwrap();
        let evaluated = Ran::on(&setup, &*engine(&setup, 1), &RAGGED, Some(evaluation));
        assert!(evaluated.same_bits(&Ran::of(&model, parallelism, training(), &RAGGED)), "{name}");
    }
}

/// A rank that forgets a loss, a replica that counts nothing, and one that counts again are found.
#[test]
fn a_rank_that_counts_or_trains_otherwise_is_found() {
    let (_, model) = models().swap_remove(0);
    let one = Ran::of(&model, plain_layout(1, 1, 1, 2), training(), &RAGGED);
    let many = |parallelism: Parallelism, fault: fn(&BalanceOp) -> Vec<BalanceOp>| {
        let setup = Layout { model: model.clone(), parallelism, train: training() }.setup().unwrap();
        let wrap = |coord: Coord, rank: RankEngine| {
            if setup.mesh.rank(coord) != Rank(1) {
                return rank;
            }
            intercept_ops(rank, move |device, stream, op| match op {
                Op::Balance(own) => fault(own).into_iter().try_for_each(|op| device.submit(stream, &op.into())),
                _ => device.submit(stream, op),
            })
        };
        Ran::on(&setup, &WrappedEngine::new(&setup, &wrap), &RAGGED, None)
    };
    let untouched = |op: &BalanceOp| vec![*op];
    let forgets = |op: &BalanceOp| match op {
        BalanceOp::RouterLossesBackward { .. } => vec![],
        _ => vec![*op],
    };
    let counts_nothing = |op: &BalanceOp| match op {
        BalanceOp::CountChoices { write: Write::Accumulate, .. } => vec![],
        _ => vec![*op],
    };
    let counts_again = |op: &BalanceOp| match op {
        BalanceOp::CountChoices { write: Write::Accumulate, .. } => vec![*op; 2],
        _ => vec![*op],
    };
    let promise = |parallelism: &Parallelism| {
        let class = EqualityClass::of(&plain_layout(1, 1, 1, 2), parallelism);
        Promise::of(class, &model, &training(), training().steps)
    };
    let faults = |parallelism: Parallelism, fault| {
        let ran = many(parallelism.clone(), fault);
        let distance = Distance::between(&one.outcome, &ran.outcome, |name| is_noise(&model, name));
        (promise(&parallelism).faults([&one.outcome, &ran.outcome], &distance), ran.routers[0].choices.clone())
    };
    let (tensor, replicas) = (plain_layout(1, 2, 1, 2), plain_layout(2, 1, 1, 2));
    for parallelism in [&tensor, &replicas] {
        let (found, choices) = faults(parallelism.clone(), untouched as fn(&BalanceOp) -> Vec<BalanceOp>);
        assert!(found.is_empty() && choices == one.routers[0].choices, "{found:?}");
    }
    assert!(!faults(tensor, forgets).0.is_empty(), "a rank of tensor parallelism without losses of routers");
    assert!(!faults(replicas.clone(), forgets).0.is_empty(), "a replica without them");
    for fault in [counts_nothing as fn(&BalanceOp) -> Vec<BalanceOp>, counts_again] {
        assert_ne!(faults(replicas.clone(), fault).1, one.routers[0].choices);
    }
}

/// A step whose gradients are not finite corrects nothing.
#[test]
fn a_step_that_changes_no_weight_changes_no_correction() {
    let (_, model) = models().swap_remove(1);
    let anomalies = Anomalies { on_nonfinite: OnNonFinite::Skip, ..Anomalies::default() };
    let layout = Layout { model, parallelism: plain_layout(2, 1, 1, 2), train: TrainSpec { anomalies, ..training() } };
    let setup = layout.setup().unwrap();
    let wrap = |coord: Coord, rank: RankEngine| {
        if setup.mesh.rank(coord) != Rank(1) {
            return rank;
        }
        let (step, is_done) = (Cell::new(1), Cell::new(false));
        intercept_ops(rank, move |device, stream, op| {
            device.submit(stream, op)?;
            match op {
                Op::ClipCoefficient { .. } => {
                    step.set(step.get() + 1);
                    Ok(())
                }
                Op::MatMul { out, orientation: Orientation::Tn, .. } if step.get() == 2 && !is_done.replace(true) => {
                    device.submit(stream, &Op::Fill { out: *out, value: f32::INFINITY })
                }
                _ => Ok(()),
            }
        })
    };
    let ran = Ran::on(&setup, &WrappedEngine::new(&setup, &wrap), &RAGGED, None);
    let updated = [ran.routers[0].clone(), ran.routers[2].clone()];
    for layer in 1..4 {
        assert_eq!(ran.corrections(layer), defined_corrections(&updated, layer), "layer {layer}");
    }
    assert_ne!(ran.corrections(1), defined_corrections(&ran.routers, 1), "the skipped step would have corrected");
}

/// The correction moves the load towards balance: without gradients of routers and with equal loads wanted, the spread
/// of loads is smaller than without it. Scores of new routers are some hundredths apart, as far as forty steps of 0.001
/// reach; steps of 0.02 overshoot. Balanced routing of some 400 tokens gives the fullest of 32 experts 1.2 of a share.
#[test]
fn corrections_spread_tokens() {
    let spread = |bias: Option<RouterBias>| {
        let balance = Balance { bias, ..Balance::NONE };
        let model = model(balance, |experts| experts.routing.scores = RouterScores::Sigmoid);
        let train =
            TrainSpec { steps: 40, global_batch: 64, learning_rate: 1e-6, min_learning_rate: 0.0, ..training() };
        let ran = Ran::of(&model, plain_layout(1, 1, 1, 4), train, &RAGGED);
        let loads = ran.routers.iter().rev().take(4).map(|report| report.figures.largest_load);
        loads.sum::<f64>() / 4.0
    };
    let [without, with] = [spread(None), spread(Some(RouterBias { rate: 1e-3 }))];
    assert!(with < 0.8 * without, "the largest load is {with} with corrections and {without} without");
}
