//! N23: ranks that share sequences learn what one rank learns. The forward pass has its bits; gradients are within the
//! bounds of other sums.

use config::{
    ChunkOrder, ContextKind, ContextParallel, IGNORED_LABEL, ModelSpec, Parallelism, SequenceParallel, TrainSpec,
};
use device::{LogitGradient, Op, Tensor};
use mesh::{Axis, Coord};
use program::PeerGroup;
use prove::Outcome;
use testkit::intercepted::{Call, alter_ops, drop_calls, intercept_calls, intercept_ops};
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::{RankEngine, SequenceBuffers, TokenSource};

use crate::checklist::rig::*;

/// Sequences of 8 tokens.
const LENGTH: usize = 8;

/// dp, cp, tp, pp.
fn shared((dp, cp, tp, pp): (usize, usize, usize, usize), context: ContextParallel) -> Parallelism {
    let plain = degrees((dp, tp, pp));
    let degrees = config::Degrees { cp, ..plain.degrees };
    Parallelism { degrees, context, ..plain }
}

/// Layouts in which ranks share sequences: of each other axis one, of sequence parallelism, and of each form of ZeRO.
/// Blocks that are passed around come in chunks of 4 tokens where probabilities are dropped.
fn layouts(model: &ModelSpec) -> Vec<Parallelism> {
    let of = |kind, chunks| move |at| shared(at, ContextParallel { kind, chunks });
    let balanced = of(ContextKind::Gather, ChunkOrder::Balanced);
    let heads = of(ContextKind::Heads, ChunkOrder::Contiguous);
    let in_both = |layout| Parallelism { sequence_parallel: SequenceParallel::On, ..layout };
    let tensor = in_both(balanced((1, 2, 2, 1)));
    let passed = match model.attention_dropout > 0.0 {
        true => vec![of(ContextKind::Ring, ChunkOrder::Contiguous)((1, 2, 1, 1))],
        false => {
            let ring = of(ContextKind::Ring, ChunkOrder::Balanced);
            vec![ring((1, 4, 1, 1)), in_both(ring((1, 2, 2, 1))), Parallelism { zero: THREE, ..ring((2, 2, 1, 2)) }]
        }
    };
    let others = vec![
        balanced((1, 2, 1, 1)),
        balanced((1, 4, 1, 1)),
        balanced((1, 2, 2, 1)),
        tensor,
        balanced((1, 2, 1, 2)),
        Parallelism { zero: TWO, ..balanced((2, 2, 1, 1)) },
        Parallelism { zero: THREE, ..balanced((1, 4, 1, 1)) },
        of(ContextKind::Gather, ChunkOrder::Contiguous)((1, 4, 1, 1)),
        heads((1, 2, 1, 1)),
        of(ContextKind::Heads, ChunkOrder::Balanced)((1, 4, 1, 1)),
        in_both(heads((1, 2, 2, 1))),
        Parallelism { zero: THREE, ..heads((2, 2, 1, 2)) },
    ];
    [others, passed].concat()
}

/// Whether ranks that share sequences learn what one rank does, from the first loss on with its bits.
fn check(model: &ModelSpec, train: &TrainSpec, tokens: &dyn TokenSource, wrap: &WrapRank<'_>) -> Verdict {
    let one = Case::new(model, degrees((1, 1, 1)), train).tokens(tokens).outcome().expect("one rank");
    verdict(layouts(model).into_iter().filter_map(|layout| {
        let name = format!("{} {:?} {:?}", layout.degrees, layout.context.kind, layout.context.chunks);
        // Outputs on blocks of keys are joined in another order than one rank's.
        let split = layout.degrees.tp > 1 || layout.context.kind == ContextKind::Ring;
        let other = Case::new(model, layout, train).tokens(tokens).wrapped(wrap).outcome();
        let compared = other.and_then(|other| {
            within_bounds(model, &one, &other)?;
            if split { Ok(()) } else { same_first_loss(&one, &other) }
        });
        compared.err().map(|error| format!("{name}: {error}"))
    }))
}

/// Where tensor parallelism does not split sums, the forward pass of the first step has the bits of one rank.
fn same_first_loss(one: &Outcome, other: &Outcome) -> Verdict {
    let [one, other] = [one, other].map(|outcome| outcome.losses.first().copied().map(f64::to_bits));
    if one == other { Ok(()) } else { Err(format!("the first loss has other bits: {one:?}, {other:?}")) }
}

/// Learned positions with dropout, rotary ones, and a linear bias, with dropout and without.
fn clean(wrap: &WrapRank<'_>) -> Verdict {
    let styles = [Style::Gpt2, Style::Llama].map(|style| small_model(style, true));
    let biased = [small_model(Style::Gpt2, false), still_model(Style::Gpt2, false)];
    let biased = biased.map(|model| ModelSpec { position: config::Position::Alibi, ..model });
    verdict(styles.into_iter().chain(biased).filter_map(|model| check(&model, &training(2), &RAGGED, wrap).err()))
}

#[test]
fn ranks_that_share_sequences_learn_what_one_rank_learns() {
    assert_holds(clean(&untouched));
}

fn position(coord: Coord) -> usize {
    coord.along(Axis::Cp)
}

/// The keys and values of the first two ranks change places; with them the queries, where heads are exchanged.
fn swapped(rank: RankEngine) -> RankEngine {
    intercept_calls(rank, PeerGroup::CONTEXT, |device, group, stream, call| {
        group.call(stream, call)?;
        let (Call::AllGather(x) | Call::AllToAll { to: x, .. }) = call else { return Ok(()) };
        // The losses are gathered, too.
        if group.size() == 1 || x.cols == 1 {
            return Ok(());
        }
        let rows = x.rows / group.size();
        let slices = [x.rows_of(0..rows), x.rows_of(rows..2 * rows)];
        device.synchronize()?;
        let values = slices.map(|slice| read(device, slice));
        let [first, second] = values;
        device.write(slices[0], &second?)?;
        device.write(slices[1], &first?)
    })
}

fn read(device: &dyn device::Device, x: Tensor) -> Result<Vec<u8>, device::DeviceError> {
    let mut bytes = vec![0u8; x.size_bytes()];
    device.read(x, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn chunks_in_a_wrong_order_are_found() {
    assert_found(clean(&|_, rank| swapped(rank)), "the gradient of");
    assert_found(clean(&|_, rank| swapped(rank)), "cp 4 x tp 1 x pp 1 Gather Contiguous");
    assert_found(clean(&|_, rank| swapped(rank)), "cp 4 x tp 1 x pp 1 Heads Balanced");
}

/// Places of tokens are counted from the start of their chunk.
fn counted_from_the_chunk(coord: Coord, rank: RankEngine) -> RankEngine {
    let cp = coord.sizes().cp;
    if cp == 1 {
        return rank;
    }
    intercept_ops(rank, move |device, stream, op| {
        if let Op::Rotary { positions, .. } = op {
            let mut places = vec![0i32; positions.len()];
            device.read(*positions, bytemuck::cast_slice_mut(&mut places))?;
            let chunk = (LENGTH / (2 * cp)).max(1) as i32;
            places.iter_mut().for_each(|place| *place %= chunk);
            device.write(*positions, bytemuck::cast_slice(&places))?;
        }
        device.submit(stream, op)
    })
}

#[test]
fn a_position_that_counts_from_the_chunk_is_found() {
    let model = small_model(Style::Llama, true);
    let check = |wrap: &WrapRank<'_>| check(&model, &training(2), &RAGGED, wrap);
    assert_holds(check(&untouched));
    assert_found(check(&counted_from_the_chunk), "the gradient of");
}

/// The labels that count among those of the rank at `position` of `cp`, in a step of 8 sequences.
fn own_labels(slices: config::SequenceSlices, position: usize) -> [usize; 2] {
    let mut counts = [0, 0];
    for sequence in 0..8 {
        let (mut tokens, mut labels, mut positions, mut visible) = ([0; 8], [0; 8], [0; 8], [0; 16]);
        let buffers = SequenceBuffers {
            tokens: &mut tokens,
            labels: &mut labels,
            positions: &mut positions,
            visible: &mut visible,
        };
        RAGGED.fill(0, sequence, buffers);
        let counted = |place: usize| labels[place] != IGNORED_LABEL;
        counts[0] += slices.chunks(LENGTH, position).flatten().filter(|place| counted(*place)).count();
        counts[1] += (0..LENGTH).filter(|place| counted(*place)).count();
    }
    counts
}

/// Each rank divides by the number of its own labels; gradients are then averaged over the ranks that share sequences.
fn divided_by_own(coord: Coord, rank: RankEngine) -> RankEngine {
    let ranks = coord.sizes().cp;
    let slices = config::SequenceSlices { ranks, order: ChunkOrder::Balanced, kind: ContextKind::Gather };
    let [own, all] = own_labels(slices, position(coord));
    let factor = all as f32 / (ranks * own.max(1)) as f32;
    alter_ops(rank, move |op| {
        if let Op::CrossEntropy { gradient: Some(LogitGradient { scale, .. }), .. } = op {
            *scale *= factor;
        }
    })
}

#[test]
fn a_loss_that_is_divided_by_local_tokens_is_found() {
    assert_found(clean(&divided_by_own), "the gradient of");
}

/// Masks of dropout are drawn by rows of the rank, not by tokens.
fn drawn_by_rows(rank: RankEngine) -> RankEngine {
    alter_ops(rank, |op| {
        if let Some((key, _)) = testkit::intercepted::dropout_key(op) {
            key.first_token %= 2;
        }
    })
}

#[test]
fn masks_that_depend_on_the_rank_are_found() {
    assert_found(clean(&|_, rank| drawn_by_rows(rank)), "the gradient of");
}

#[test]
fn tokens_that_are_not_exchanged_for_heads_are_found() {
    let dropped =
        |_, rank: RankEngine| drop_calls(rank, PeerGroup::CONTEXT, |call| matches!(call, Call::AllToAll { .. }));
    assert_found(clean(&dropped), "cp 2 x tp 1 x pp 1 Heads Contiguous");
}

/// Heads are numbered from the first of the rank, not of the model: biases and masks of dropout are those of others.
fn numbered_from_the_rank(rank: RankEngine) -> RankEngine {
    alter_ops(rank, |op| {
        if let Op::Attention { operands } | Op::AttentionBackward { operands, .. } = op {
            operands.alibi.iter_mut().for_each(|alibi| alibi.first_head = 0);
            operands.dropout.iter_mut().for_each(|key| key.first_channel = 0);
        }
    })
}

#[test]
fn heads_that_are_numbered_from_the_rank_are_found() {
    let name = "cp 2 x tp 1 x pp 1 Heads Contiguous";
    let check = |model: &ModelSpec| check(model, &training(2), &RAGGED, &|_, rank| numbered_from_the_rank(rank));
    assert_found(check(&ModelSpec { position: config::Position::Alibi, ..still_model(Style::Gpt2, false) }), name);
    assert_found(check(&small_model(Style::Gpt2, false)), name);
}

/// Outputs on blocks of keys are added as they are.
fn added_without_rescale(rank: RankEngine) -> RankEngine {
    intercept_ops(rank, |device, stream, op| {
        if let Op::JoinAttention { part, out, write: device::Write::Accumulate, .. } = *op {
            return device.submit(stream, &Op::Accumulate { x: part, into: out });
        }
        device.submit(stream, op)
    })
}

#[test]
fn blocks_that_are_not_rescaled_by_their_log_sum_exps_are_found() {
    let found = clean(&|_, rank| added_without_rescale(rank));
    assert_found(found, "cp 2 x tp 1 x pp 1 Ring Contiguous");
}

#[test]
fn blocks_that_are_not_passed_on_are_found() {
    let dropped = |_, rank: RankEngine| drop_calls(rank, PeerGroup::CONTEXT, |call| matches!(call, Call::Shift { .. }));
    assert_found(clean(&dropped), "cp 4 x tp 1 x pp 1 Ring Balanced");
}

/// The gradients of keys and values stay with the rank that added the last terms.
#[test]
fn gradients_that_do_not_come_home_are_found() {
    let model = still_model(Style::Llama, false);
    let without_last = |_, rank: RankEngine| {
        let calls = std::cell::Cell::new(0);
        intercept_calls(rank, PeerGroup::CONTEXT, move |_, group, stream, call| {
            let Call::Shift { .. } = call else { return group.call(stream, call) };
            calls.set(calls.get() + 1);
            // Of a layer: 3 in the forward pass and 3 + 4 in the backward pass, or 1 and 1 + 2 of two ranks.
            let of_layer = 3 * group.size() - 2;
            if usize::is_multiple_of(calls.get(), of_layer) { Ok(()) } else { group.call(stream, call) }
        })
    };
    assert_found(check(&model, &training(2), &RAGGED, &without_last), "Ring Balanced");
}

#[test]
fn gradients_of_keys_that_stay_on_their_rank_are_found() {
    let dropped =
        |_, rank: RankEngine| drop_calls(rank, PeerGroup::CONTEXT, |call| matches!(call, Call::ReduceScatter(..)));
    assert_found(clean(&dropped), "the gradient of");
}
