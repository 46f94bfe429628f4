//! Experts that several ranks divide: with exact sums every layout has the bits of one rank, without it keeps the
//! promise of another order.

use config::{
    Blocks, ChunkOrder, ContextKind, ContextParallel, Degrees, ExpertsSpec, GradientReduction, GradientSums,
    LinearLayer, LoraSpec, ModelSpec, Overlap, Parallelism, Precision, Products, Recompute, ScheduleKind,
    SequenceParallel, TrainSpec, Unit, ZeroStage,
};
use device::{Device, DeviceError, ExpertOp, ExpertRows, Op, Stream, Tensor};
use prove::{Distance, EqualityClass, outcome_from};
use testkit::intercepted::intercept_ops;
use testkit::models::{plain_layout, proof_text};
use testkit::wrapped_engine::WrappedEngine;

use crate::experts::rig::{faults, layout, models, outcome, three, training};
use crate::resume::rig::in_two;

/// The models, and the second one with blocks side by side, whose sums are one where nothing is dropped.
fn with_parallel_blocks() -> Vec<(&'static str, ModelSpec)> {
    let mut all = models();
    let beside = ModelSpec { blocks: Blocks::Parallel, ..all[1].1.clone() };
    all.push(("experts next to attention without dropout", ModelSpec { dropout: 0.0, ..beside.clone() }));
    all.push(("experts next to attention", beside));
    all
}

/// The same, with matrices of experts of whole blocks of the norm: 48 x 256 elements are three.
fn blocked() -> Vec<(&'static str, ModelSpec)> {
    let wide = |experts: ExpertsSpec| ExpertsSpec { hidden: 256, ..experts };
    let models = with_parallel_blocks().into_iter();
    models.map(|(name, model)| (name, ModelSpec { experts: model.experts.map(wide), ..model })).collect()
}

fn spread(dp: usize, ep: usize, pp: usize, microbatch_size: usize) -> Parallelism {
    Parallelism { ep, ..plain_layout(dp, 1, pp, microbatch_size) }
}

/// The same, where ranks share matrices and sequences, too.
fn shared(parallelism: Parallelism, tp: usize, cp: usize, kind: ContextKind) -> Parallelism {
    // Of a ring, masks of dropout are drawn for four tokens at once.
    let chunks = match kind {
        ContextKind::Gather => ChunkOrder::Balanced,
        ContextKind::Heads | ContextKind::Ring => ChunkOrder::Contiguous,
    };
    let (degrees, context) = (Degrees { tp, cp, ..parallelism.degrees }, ContextParallel { kind, chunks });
    Parallelism { degrees, context, ..parallelism }
}

/// The ranks of one replica that share matrices and sequences as those of `parallelism` do: they have its sums over
/// hidden dims and over tokens of a sequence.
fn one_replica(parallelism: &Parallelism) -> Parallelism {
    let plain = plain_layout(1, 1, 1, 1);
    let Parallelism { degrees, context, sequence_parallel, .. } = parallelism.clone();
    Parallelism { degrees: Degrees { dp: 1, pp: 1, ..degrees }, context, sequence_parallel, ..plain }
}

fn exact() -> TrainSpec {
    TrainSpec { sums: GradientSums::Exact, ..training() }
}

/// Every degree, with replicas of experts and without, one round and several, each stage of ZeRO, schedules,
/// recomputation and overlap.
fn layouts() -> Vec<Parallelism> {
    let (step, microbatch) = (GradientReduction::Step, GradientReduction::Microbatch);
    vec![
        spread(2, 2, 1, 1),
        spread(2, 2, 1, 4),
        spread(4, 2, 2, 2),
        spread(4, 4, 1, 2),
        spread(8, 8, 1, 1),
        Parallelism { recompute: Recompute::FULL, ..spread(4, 2, 1, 2) },
        Parallelism { recompute: Recompute::Selective, zero: ZeroStage::One, ..spread(4, 2, 1, 1) },
        Parallelism { zero: ZeroStage::Two { reduce: microbatch }, ..spread(4, 2, 2, 1) },
        Parallelism { zero: three(step), ..spread(8, 4, 1, 1) },
        Parallelism { zero: three(microbatch), recompute: Recompute::FULL, ..spread(2, 2, 2, 2) },
        Parallelism { zero: ZeroStage::One, shard_group: Some(4), ..spread(8, 2, 1, 1) },
        Parallelism { zero: three(step), shard_group: Some(2), ..spread(4, 2, 1, 2) },
        Parallelism { schedule: ScheduleKind::ZeroBubbleH1.into(), ..spread(2, 2, 2, 1) },
        Parallelism { schedule: ScheduleKind::ZeroBubbleV.into(), recompute: Recompute::FULL, ..spread(2, 2, 2, 1) },
        Parallelism { schedule: ScheduleKind::Interleaved { stages_per_rank: 2 }.into(), ..spread(2, 2, 2, 1) },
        Parallelism { overlap: Some(Overlap::On), zero: three(step), ..spread(4, 4, 2, 1) },
        Parallelism { sum_tree: 4, zero: three(microbatch), ..spread(8, 2, 1, 1) },
    ]
}

#[test]
fn exact_sums_have_the_bits_of_one_rank_however_experts_are_divided() {
    for (name, model) in blocked() {
        let one = outcome(&layout(&model, plain_layout(1, 1, 1, 1), exact()));
        for parallelism in layouts() {
            let many = outcome(&layout(&model, parallelism.clone(), exact()));
            assert!(Distance::between(&one, &many, |_| false).same_bits, "{name}, {parallelism:?}");
        }
    }
}

/// With tensor parallelism, which divides experts first, with sequence parallelism, and with each way to share
/// sequences.
fn shared_layouts() -> Vec<Parallelism> {
    let (gather, heads, ring) = (ContextKind::Gather, ContextKind::Heads, ContextKind::Ring);
    let tokens = SequenceParallel::On;
    let three = three(GradientReduction::Step);
    vec![
        shared(spread(2, 2, 1, 2), 2, 1, gather),
        Parallelism {
            sequence_parallel: tokens,
            recompute: Recompute::FULL,
            ..shared(spread(4, 2, 1, 1), 2, 1, gather)
        },
        Parallelism { sequence_parallel: tokens, zero: three, ..shared(spread(2, 2, 2, 4), 4, 1, gather) },
        Parallelism { zero: ZeroStage::One, ..shared(spread(4, 2, 1, 1), 1, 2, gather) },
        shared(spread(2, 2, 2, 2), 1, 2, heads),
        Parallelism { recompute: Recompute::Selective, ..shared(spread(4, 4, 1, 2), 1, 2, ring) },
        Parallelism { sequence_parallel: tokens, overlap: Some(Overlap::On), ..shared(spread(2, 2, 1, 2), 2, 2, ring) },
    ]
}

#[test]
fn exact_sums_have_the_bits_of_one_replica_whatever_else_ranks_share() {
    for (name, model) in blocked() {
        for parallelism in shared_layouts() {
            let of = |parallelism| outcome(&layout(&model, parallelism, exact()));
            let (one, many) = (of(one_replica(&parallelism)), of(parallelism.clone()));
            assert!(Distance::between(&one, &many, |_| false).same_bits, "{name}, {parallelism:?}");
        }
    }
}

/// Rows are stored and sent as the run stores activations; sums of a token are rounded once, where it is.
#[test]
fn narrow_rows_have_the_bits_of_one_rank() {
    let (_, model) = blocked().swap_remove(0);
    let train = TrainSpec { precision: Precision::Bf16(Products::Blocks16), ..exact() };
    let one = outcome(&layout(&model, plain_layout(1, 1, 1, 1), train.clone()));
    for parallelism in [spread(2, 2, 1, 2), Parallelism { zero: ZeroStage::One, ..spread(8, 8, 1, 1) }] {
        let many = outcome(&layout(&model, parallelism.clone(), train.clone()));
        assert!(Distance::between(&one, &many, |_| false).same_bits, "{parallelism:?}");
    }
}

#[test]
fn single_sums_keep_the_promise_of_another_order() {
    let (order, sums) = (EqualityClass::OtherOrder, EqualityClass::OtherSums);
    let targets = vec![LinearLayer::Query, LinearLayer::Value];
    let lora = Some(LoraSpec { rank: 4, alpha: 8.0, targets });
    let mut all = with_parallel_blocks();
    all.push(("adapters of attention", ModelSpec { lora, ..all[0].1.clone() }));
    for (name, model) in all {
        for (expected, parallelism) in [
            (order, spread(2, 2, 1, 2)),
            (order, Parallelism { recompute: Recompute::FULL, ..spread(4, 2, 2, 2) }),
            (order, Parallelism { zero: three(GradientReduction::Step), ..spread(4, 4, 1, 2) }),
            (order, Parallelism { sum_tree: 4, ..spread(8, 2, 1, 1) }),
            (sums, shared(spread(2, 2, 1, 2), 2, 1, ContextKind::Gather)),
            (sums, shared(spread(2, 2, 1, 2), 1, 2, ContextKind::Gather)),
        ] {
            let (class, faults) = faults(&model, parallelism.clone(), &training());
            let none: [&str; 0] = [];
            assert_eq!((class, faults.as_slice()), (expected, &none.map(String::from)[..]), "{name}");
        }
    }
}

/// Each rank has whole experts: its share of the parameters, and of the optimizer's state of its replicas.
#[test]
fn a_rank_keeps_its_share_of_the_experts() {
    let (_, model) = blocked().swap_remove(0);
    let length = |parallelism: Parallelism| {
        let setup = layout(&model, parallelism, training()).setup().unwrap();
        let experts = &setup.layouts[&Unit::Experts(0)];
        (experts.len, experts.num_shards)
    };
    let (all, _) = length(plain_layout(4, 1, 1, 1));
    assert_eq!(length(plain_layout(4, 1, 1, 1)), (all, 4));
    assert_eq!(length(spread(4, 2, 1, 1)), (all / 2, 2));
    assert_eq!(length(spread(4, 4, 1, 1)), (all / 4, 1));
    assert_eq!(length(shared(spread(4, 2, 1, 1), 2, 2, ContextKind::Gather)), (all / 4, 4));
}

#[test]
fn a_run_resumes_with_experts_on_other_ranks() {
    let one = Parallelism { zero: ZeroStage::One, ..plain_layout(2, 1, 1, 2) };
    let pairs = [
        (spread(4, 4, 1, 2), Parallelism { zero: three(GradientReduction::Step), ..spread(4, 2, 1, 1) }),
        (Parallelism { zero: ZeroStage::One, ..spread(2, 2, 2, 1) }, one.clone()),
        (one, Parallelism { zero: ZeroStage::One, ..spread(8, 8, 1, 1) }),
        (shared(spread(2, 1, 1, 2), 2, 1, ContextKind::Gather), shared(spread(4, 4, 1, 1), 2, 1, ContextKind::Gather)),
    ];
    for (number, (before, after)) in pairs.into_iter().enumerate() {
        let (name, model) = blocked().swap_remove(number % 3);
        let train = TrainSpec { ema_decay: Some(0.9), ..exact() };
        let [before, after] = [before, after].map(|parallelism| layout(&model, parallelism, train.clone()));
        let (undisturbed, resumed) = (outcome(&before), in_two(&before, &after, 2));
        assert!(
            Distance::between(&undisturbed, &resumed, |_| false).same_bits,
            "{name}: {:?}, then {:?}",
            before.parallelism,
            after.parallelism
        );
    }
}

/// A fault in the order of a sum, made by rewriting what an operation has written.
#[derive(Clone, Copy, Debug)]
enum Reversed {
    /// Experts of a token, and its weights: outputs are added in descending order.
    Experts,
    /// Rows of an expert, on the ranks that send them and on those that compute them: weight gradients add tokens in
    /// descending order.
    Rows,
}

impl Reversed {
    fn after(self, device: &dyn Device, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        match (self, op) {
            (Reversed::Experts, Op::Experts(ExpertOp::Route { choice, weights, .. })) => {
                [*choice, *weights].into_iter().try_for_each(|tensor| {
                    rewrite(device, stream, tensor, |words| words.chunks_mut(tensor.cols).for_each(<[_]>::reverse))
                })
            }
            (Reversed::Rows, Op::Experts(ExpertOp::GroupRows { rows, .. })) => reverse_rows(device, stream, *rows),
            _ => Ok(()),
        }
    }
}

/// Changes the words of a tensor, each of four bytes.
fn rewrite(
    device: &dyn Device,
    stream: Stream,
    tensor: Tensor,
    change: impl FnOnce(&mut [[u8; 4]]),
) -> Result<(), DeviceError> {
    let mut bytes = vec![0; tensor.size_bytes()];
    device.read(tensor, &mut bytes)?;
    change(bytes.as_chunks_mut().0);
    device.upload(stream, tensor, &bytes)
}

/// The rows of each expert of each rank in descending order of tokens.
fn reverse_rows(device: &dyn Device, stream: Stream, rows: ExpertRows) -> Result<(), DeviceError> {
    let ints = |tensor: Tensor| -> Result<Vec<i32>, DeviceError> {
        let mut bytes = vec![0; tensor.size_bytes()];
        device.read(tensor, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect())
    };
    let (offsets, room) = (ints(rows.offsets)?, rows.slots.len() / rows.offsets.rows);
    let ranges = offsets.chunks(rows.offsets.cols).enumerate().flat_map(|(rank, offsets)| {
        offsets.windows(2).map(move |pair| [pair[0], pair[1]].map(|row| rank * room + row as usize))
    });
    let mut slots = vec![];
    rewrite(device, stream, rows.slots, |words| {
        ranges.for_each(|[first, last]| words[first..last].reverse());
        slots = words.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
    })?;
    rewrite(device, stream, rows.places, |places| {
        for (row, slot) in slots.iter().enumerate().filter(|(_, slot)| **slot >= 0) {
            places[*slot as usize] = (row as i32).to_le_bytes();
        }
    })
}

#[test]
fn another_order_of_each_sum_is_found() {
    let (_, model) = blocked().swap_remove(0);
    let many = layout(&model, spread(4, 2, 1, 2), exact());
    let (setup, whole) = (many.setup().unwrap(), outcome(&many));
    for reversed in [Reversed::Experts, Reversed::Rows] {
        let wrap = move |_, rank| {
            intercept_ops(rank, move |device, stream, op| {
                device.submit(stream, op)?;
                reversed.after(device, stream, op)
            })
        };
        let engine = WrappedEngine::new(&setup, &wrap);
        let faulty = outcome_from(&setup, &engine, &proof_text(), None).unwrap();
        let distance = Distance::between(&whole, &faulty, |_| false);
        assert!(!distance.same_bits, "{reversed:?}");
    }
}
