//! Attention with products in blocks of tensor cores, of bf16 and fp16.

use device::{AttentionShape, Bf16, Dtype, Element, F16, Op, Tensor};
use proptest::prelude::*;
use softgpu::Checks;

use crate::operations::attention::{ALL_VISIBLE, Attend, CAPS, Visible, dropout, shape};
use crate::operations::bench::{Bench, Cases, Order, assert_same_in, code_for};
use crate::operations::case::{Case, Values};

const SOURCES: &[&str] =
    &["attention_blocks", "attention_blocks_queries", "attention_blocks_keys", "attention_blocks_wide", "element_wise"];

const NARROW: [Dtype; 2] = [Dtype::Bf16, Dtype::F16];

/// Factors of scores: powers of two and others, with which scores are small and large.
const SCALES: [f32; 4] = [1.0 / 256.0, 0.005, 0.125, 0.3];

/// Compares an attention of one narrow type: the seed decides which.
fn compare(bench: &Bench, attend: &Attend, seed: u64, ops: fn(&Attend, &mut Case) -> Vec<Op>) {
    let mut case = Case::new(seed).storing(NARROW[seed as usize % NARROW.len()]);
    let ops = ops(attend, &mut case);
    bench.compare_all(&case, &ops);
}

/// Heads whose rows are copied by vectors, and others.
fn head_dims() -> impl Strategy<Value = usize> {
    let eights = (1usize..36).prop_map(|eight| 8 * eight);
    prop_oneof![1usize..40, eights, Just(64), Just(128), 60usize..70, 120usize..140, 250usize..260]
}

fn attention_of_any_shape(order: Order) {
    let code = code_for(order.target, SOURCES);
    let bench = Bench::in_order(order, &code, Checks::default());
    let lengths = prop_oneof![1usize..40, 100usize..200];
    let sizes = (1usize..3, lengths, 1usize..3, 1usize..3, head_dims());
    let masks = (prop::sample::select(ALL_VISIBLE.to_vec()), prop_oneof![Just(0usize), 1usize..150]);
    let gaps = prop_oneof![Just([0usize; 3]), Just([8, 16, 24]), [0usize..4, 0..4, 0..4]];
    let caps = prop::option::of(prop::sample::select(CAPS.to_vec()));
    let scores = (caps, prop::option::of(0usize..4), prop::option::of(prop::sample::select(vec![0.0f32, 0.1, 0.7])));
    let first_keys = prop::option::of((0usize..100).prop_map(|four| 4 * four));
    let config = ProptestConfig { max_shrink_iters: 20, ..ProptestConfig::with_cases(12) };
    proptest!(config, |(
        (sequences, length, kv_heads, group, head_dim) in sizes, (visible, earlier) in masks, gaps in gaps,
        (soft_cap, alibi, probability) in scores, first_key in first_keys, narrow in prop::sample::select(NARROW.to_vec()),
        scale in prop::option::of(prop::sample::select(SCALES.to_vec())), seed in any::<u64>(),
    )| {
        // Some keys are those of one sequence.
        let sequences = if first_key.is_some() { 1 } else { sequences };
        let shape = shape(sequences, length, [kv_heads * group, kv_heads], head_dim);
        let dropout = probability.map(dropout);
        let attend = Attend { shape, earlier, visible, gaps, scale, soft_cap, alibi, dropout, first_key };
        let mut case = Case::new(seed).storing(narrow);
        let ops = attend.passes(&mut case);
        prop_assert_eq!(bench.difference(&case, &ops), None);
    });
}

#[needs::cuda]
#[test]
fn attention_of_any_shape_in_blocks_of_16_has_the_bits_of_the_cpu() {
    attention_of_any_shape(Order::BLOCKS16);
}

#[needs::cuda]
#[test]
fn attention_of_any_shape_by_warpgroups_has_the_bits_of_the_cpu() {
    attention_of_any_shape(Order::BLOCKS16_OF_90);
}

#[needs::cuda]
#[test]
fn attention_of_any_shape_in_blocks_of_8_has_the_bits_of_the_cpu() {
    attention_of_any_shape(Order::BLOCKS8);
}

/// Around rows of a warp, tiles of 64 and 128 keys, fragments of channels, and ranges of 128.
fn edges() -> impl Iterator<Item = (u64, Attend)> {
    let lengths = [1, 8, 15, 16, 17, 31, 33, 63, 65, 127, 128, 129, 160, 257];
    let head_dims = [64, 1, 128, 2, 16, 63, 129, 8, 65, 120, 127, 256, 257];
    lengths.into_iter().enumerate().flat_map(move |(index, length)| {
        (0..2).map(move |step| {
            let head_dim = head_dims[(5 * index + 7 * step) % head_dims.len()];
            let visible = ALL_VISIBLE[(index + step) % ALL_VISIBLE.len()];
            let mut attend = Attend::of(shape(1 + step, length, [2 + 2 * step, 1 + step], head_dim), visible);
            attend.gaps = if index % 2 == 0 { [8, 16, 8 * step] } else { [index % 3, step, 1] };
            attend.soft_cap = (index % 4 == step + 1).then(|| CAPS[index % 3]);
            attend.alibi = (index % 2 == 0).then_some(index % 3);
            attend.dropout = (index % 3 == step).then(|| dropout(0.2));
            (index as u64, attend)
        })
    })
}

/// Without bias and mask, whose rows are copied by vectors: by warpgroups, where a GPU has them.
fn plain() -> impl Iterator<Item = (u64, Attend)> {
    let of = |index: usize| {
        let length = [1, 15, 64, 65, 127, 129, 200][index];
        let visible = ALL_VISIBLE[(index + 4) % ALL_VISIBLE.len()];
        let shape = shape(1 + index % 2, length, [2, 1 + index / 2 % 2], [64, 128, 40, 64, 128, 72, 64][index]);
        let scale = Some(SCALES[[0, 1, 0, 2, 1, 3, 0][index]]);
        let attend = Attend { gaps: [[0; 3], [8, 16, 24]][index % 2], scale, ..Attend::of(shape, visible) };
        (index as u64, attend)
    };
    (0..7).map(of)
}

/// Keys from the middle of a sequence on, with a bias and a mask.
fn some_keys() -> impl Iterator<Item = (u64, Attend)> {
    let of = |index: usize| {
        let visible = ALL_VISIBLE[index % ALL_VISIBLE.len()];
        let attend = Attend::of(shape(1, [33, 64, 130, 129][index], [2, 1], [16, 65, 128, 129][index]), visible);
        let attend = Attend { alibi: Some(index), first_key: Some([64, 0, 100, 36][index]), ..attend };
        (index as u64, Attend { dropout: index.is_multiple_of(2).then(|| dropout(0.2)), ..attend })
    };
    (0..4).map(of)
}

/// Whole tiles of keys that no query of any head sees, so that one head after the other is looked through.
fn unseen_keys() -> impl Iterator<Item = (u64, Attend)> {
    let of = |index: usize| {
        let shape = shape(1, 40, [3, 1], [64, 128, 16, 136][index]);
        let attend = Attend { earlier: 150, ..Attend::of(shape, Visible::SlidingWindow) };
        (index as u64, Attend { alibi: (index == 2).then_some(1), ..attend })
    };
    (0..4).map(of)
}

/// One warp has queries, and all but its first see keys of the next tile.
fn last_queries_of_a_warp(head_dim: usize) -> Attend {
    Attend { earlier: 120, ..Attend::of(shape(1, 16, [2, 1], head_dim), Visible::Causal) }
}

/// All edges for which `is_meant`.
fn at_edges(bench: &Bench, ops: fn(&Attend, &mut Case) -> Vec<Op>, is_meant: fn(&Attend) -> bool) {
    let with_earlier = |(seed, attend)| [(seed, attend), (seed + 1, Attend { earlier: 30, ..attend })];
    let all = plain().chain(edges()).flat_map(with_earlier).chain(some_keys()).chain(unseen_keys());
    for (seed, attend) in all.filter(|(_, attend)| is_meant(attend)) {
        compare(bench, &attend, seed, ops);
    }
}

/// Heads of one range of channels.
fn has_narrow_heads(attend: &Attend) -> bool {
    attend.shape.head_dim <= 128
}

/// Heads of several.
fn has_wide_heads(attend: &Attend) -> bool {
    !has_narrow_heads(attend)
}

/// The cases for which GPUs of 9.0 have code of their own.
fn is_by_warpgroups(attend: &Attend) -> bool {
    has_narrow_heads(attend) && attend.soft_cap.is_none() && attend.alibi.is_none() && attend.dropout.is_none()
}

/// One key whose scores are so low that their exponentials are 0, and one such query, among usual ones.
fn deep(bench: &Bench, ops: fn(&Attend, &mut Case) -> Vec<Op>, shapes: [AttentionShape; 4]) {
    for (seed, shape) in shapes.into_iter().enumerate() {
        let attend = Attend { scale: Some(SCALES[seed % 2]), ..Attend::of(shape, Visible::Everything) };
        let mut case = Case::new(seed as u64).storing(NARROW[seed / 2]);
        let ops = ops(&attend, &mut case);
        let tensors: Vec<Tensor> = ops[0].operands().reads().take(2).collect();
        for (tensor, other, low) in [(tensors[1], tensors[0], 0), (tensors[0], tensors[1], 1)] {
            // By one channel of the first head.
            for row in 0..other.rows {
                case.put(other, row, low, &narrow_bits(16.0, other.dtype));
            }
            case.put(tensor, [0, 3, 10, 37][seed], low, &narrow_bits(-3000.0, tensor.dtype));
        }
        bench.compare_all(&case, &ops);
    }
}

/// Two tokens whose scores are the channels of the keys, times `scale`; the value of the first is 0.
fn of_scores(bench: &Bench, head_dim: usize, scale: f32, keys: [f32; 2], ops: fn(&Attend, &mut Case) -> Vec<Op>) {
    let attend = Attend { scale: Some(scale), ..Attend::of(shape(1, 2, [1, 1], head_dim), Visible::Everything) };
    let mut case = Case::new(0).storing(Dtype::Bf16);
    let ops = ops(&attend, &mut case);
    let tensors: Vec<Tensor> = ops[0].operands().reads().take(3).collect();
    let mut put = |tensor: Tensor, row, col, value| case.put(tensor, row, col, &narrow_bits(value, Dtype::Bf16));
    for col in 0..head_dim {
        for (row, key) in keys.into_iter().enumerate() {
            put(tensors[0], row, col, if col == 0 { 1.0 } else { 0.0 });
            put(tensors[1], row, col, if col == 0 { key } else { 0.0 });
        }
        put(tensors[2], 0, col, 0.0);
    }
    bench.compare_all(&case, &ops);
}

/// The lowest number whose exponential is not 0, as kernels have it.
const EXP_LOWEST: f32 = -86.643_394;

const DEEP_NARROW: [AttentionShape; 4] =
    [shape(1, 64, [1, 1], 64), shape(1, 64, [1, 1], 128), shape(1, 40, [1, 1], 64), shape(1, 128, [1, 1], 128)];
const DEEP_WIDE: [AttentionShape; 4] =
    [shape(1, 64, [1, 1], 136), shape(1, 64, [1, 1], 200), shape(1, 40, [1, 1], 136), shape(1, 72, [1, 1], 192)];

fn narrow_bits(value: f32, dtype: Dtype) -> [u8; 2] {
    let bits = if dtype == Dtype::Bf16 { Bf16::narrow(value).0 } else { F16::narrow(value).0 };
    bits.to_le_bytes()
}

pub fn forward_of_narrow_heads(bench: &Bench) {
    at_edges(bench, Attend::forward, has_narrow_heads);
    deep(bench, Attend::forward, DEEP_NARROW);
}

pub fn forward_of_wide_heads(bench: &Bench) {
    at_edges(bench, Attend::forward, has_wide_heads);
    deep(bench, Attend::forward, DEEP_WIDE);
    // Two channels after the last whole four.
    compare(bench, &Attend::of(shape(1, 17, [2, 1], 130), Visible::Causal), 0, Attend::forward);
    compare(bench, &last_queries_of_a_warp(130), 1, Attend::forward);
    of_scores(bench, 136, f32::MAX, [-1.0; 2], Attend::forward);
    of_scores(bench, 136, f32::MAX, [2.0, 0.0], Attend::forward);
}

pub fn backward_of_narrow_heads(bench: &Bench) {
    at_edges(bench, Attend::backward, has_narrow_heads);
    // More blocks of queries than are looked for at once.
    let long = Attend::of(shape(1, 1100, [2, 1], 3), Visible::SlidingWindow);
    compare(bench, &long, 0, Attend::backward);
    deep(bench, Attend::backward, DEEP_NARROW);
}

pub fn backward_of_wide_heads(bench: &Bench) {
    at_edges(bench, Attend::backward, has_wide_heads);
    deep(bench, Attend::backward, DEEP_WIDE);
    compare(bench, &Attend::of(shape(1, 17, [2, 1], 130), Visible::Causal), 0, Attend::backward);
    compare(bench, &last_queries_of_a_warp(130), 1, Attend::backward);
    of_scores(bench, 136, -EXP_LOWEST, [0.0, -1.0], Attend::passes);
}

const AT_EDGES: [Cases; 4] =
    [forward_of_narrow_heads, forward_of_wide_heads, backward_of_narrow_heads, backward_of_wide_heads];

/// GPUs of 8.0 run the same code, whose tensor cores have blocks of 8.
#[needs::cuda]
#[test]
fn attention_in_blocks_of_16_at_the_edges_has_the_bits_of_the_cpu() {
    AT_EDGES.into_iter().for_each(|cases| assert_same_in(Order::BLOCKS16, SOURCES, cases));
}

/// Zeros of either sign, infinities, NaN, subnormal, huge and tiny numbers, where every query sees every key: what is
/// not finite spreads to all that a product has in common, and that is more on the CPU where keys are hidden.
fn specials(bench: &Bench) {
    for (seed, (head_dim, narrow)) in
        [(64, NARROW[0]), (128, NARROW[1]), (24, NARROW[0]), (136, NARROW[1])].into_iter().cycle().take(12).enumerate()
    {
        let attend = Attend::of(shape(1, 40 + 11 * seed, [2, 1], head_dim), Visible::Everything);
        let mut case = Case::new(seed as u64).storing(narrow);
        let ops = attend.passes(&mut case);
        let inputs: Vec<Tensor> = ops.iter().flat_map(|op| op.operands().reads().collect::<Vec<_>>()).collect();
        // Few of them: one NaN makes NaN of all that it meets.
        for tensor in inputs.into_iter().filter(|tensor| tensor.dtype == narrow) {
            for _ in 0..2 + seed % 3 {
                let (row, col) = (case.words.below(tensor.rows), case.words.below(tensor.cols));
                let value = case.words.real(Values::Wild);
                case.put(tensor, row, col, &narrow_bits(value, narrow));
            }
        }
        bench.compare_all(&case, &ops);
    }
}

#[needs::cuda]
#[test]
fn special_numbers_have_the_results_of_the_cpu() {
    assert_same_in(Order::BLOCKS16, SOURCES, specials);
    assert_same_in(Order::BLOCKS8, SOURCES, specials);
}

#[needs::cuda]
#[test]
fn attention_by_warpgroups_at_the_edges_has_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS16_OF_90, SOURCES, |bench| at_edges(bench, Attend::forward, is_by_warpgroups));
    assert_same_in(Order::BLOCKS16_OF_90, SOURCES, |bench| at_edges(bench, Attend::backward, is_by_warpgroups));
    assert_same_in(Order::BLOCKS16_OF_90, SOURCES, |bench| deep(bench, Attend::passes, DEEP_NARROW));
    assert_same_in(Order::BLOCKS16_OF_90, SOURCES, |bench| deep(bench, Attend::backward, DEEP_NARROW));
    assert_same_in(Order::BLOCKS16_OF_90, SOURCES, specials);
}
