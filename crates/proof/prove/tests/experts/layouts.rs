//! Every layout against one rank.

use config::{
    ContextKind, GradientReduction, GradientSums, LinearLayer, LoraSpec, ModelSpec, MuonScale, Offload, Optimizer,
    Overlap, Parallelism, Recompute, ScheduleKind, SequenceParallel, TrainSpec, Unit, ZeroStage,
};
use prove::{Distance, Promised};
use testkit::models::plain_layout;

use crate::experts::rig::{faults, layout, models, outcome, shared_tokens, three, training};

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
        shared_tokens(ContextKind::Ring),
        Parallelism { overlap: Some(Overlap::On), zero: three(STEP), ..plain(2, 2, 2, 1) },
        Parallelism { overlap: Some(Overlap::On), zero: ZeroStage::One, shard_group: Some(2), ..plain(4, 1, 2, 1) },
    ]
}

#[test]
fn layouts_keep_their_promise_to_one_rank() {
    for (name, model) in models() {
        let mut same = 0;
        for parallelism in layouts() {
            let (class, faults) = faults(&model, parallelism.clone(), &training());
            let none: [&str; 0] = [];
            assert_eq!(faults, none, "{name}, {parallelism:?}");
            same += usize::from(class.promises() == Promised::Bits);
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
        assert_eq!(faults(&model, parallelism.clone(), &train).1, none, "{parallelism:?}");
    }
    let [arena, host] = [Offload::None, Offload::All].map(|offload| {
        let train = TrainSpec { offload, ema_decay: Some(0.9), ..training() };
        outcome(&layout(&model, plain_layout(1, 2, 2, 2), train))
    });
    assert!(Distance::between(&arena, &host, |_| false).same_bits);
}

/// Adapters of attention are trained next to experts, which stay as they are and pass gradients on.
#[test]
fn adapters_of_attention_learn_beside_experts() {
    for (name, model) in models() {
        let targets = vec![LinearLayer::Query, LinearLayer::Value, LinearLayer::Output];
        let model = ModelSpec { lora: Some(LoraSpec { rank: 4, alpha: 8.0, targets }), ..model };
        let whole = outcome(&layout(&model, plain_layout(1, 1, 1, 2), training()));
        assert!(whole.gradients.keys().all(|name| name.contains("lora")) && !whole.gradients.is_empty(), "{name}");
        for parallelism in [
            Parallelism { schedule: ScheduleKind::ZeroBubbleH1.into(), ..plain_layout(1, 1, 2, 2) },
            Parallelism { recompute: Recompute::FULL, zero: ZeroStage::One, ..plain_layout(2, 1, 2, 2) },
            Parallelism { sequence_parallel: SequenceParallel::On, ..plain_layout(1, 2, 2, 2) },
        ] {
            let none: [&str; 0] = [];
            assert_eq!(faults(&model, parallelism.clone(), &training()).1, none, "{name}, {parallelism:?}");
        }
    }
}
