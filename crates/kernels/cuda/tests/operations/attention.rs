use cpu::math::exp_f64;
use device::{Alibi, AttentionGradients, AttentionOperands, AttentionShape, DropoutKey, Dtype, Op, Places, Tensor};
use proptest::prelude::*;

use crate::operations::any_shape::any_stored;
use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, Values};

/// Which keys queries see.
#[derive(Clone, Copy, Debug)]
pub enum Visible {
    Causal,
    Documents,
    Prefix,
    SlidingWindow,
    SomeNothing,
    Everything,
    /// Any two numbers, some outside of the sequence or in the wrong order.
    Anything,
}

pub const ALL_VISIBLE: [Visible; 7] = [
    Visible::Causal,
    Visible::Documents,
    Visible::Prefix,
    Visible::SlidingWindow,
    Visible::SomeNothing,
    Visible::Everything,
    Visible::Anything,
];

/// An attention with its tensors still to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Attend {
    pub shape: AttentionShape,
    /// Keys per sequence before the first query.
    pub earlier: usize,
    pub visible: Visible,
    /// Between rows of queries, keys and the other tensors.
    pub gaps: [usize; 3],
    /// In place of one with which scores are of size 1. Log-sum-exps then are from 8 to 40.
    pub scale: Option<f32>,
    pub soft_cap: Option<f32>,
    /// Heads of the model after the operation's, where scores are biased.
    pub alibi: Option<usize>,
    pub dropout: Option<DropoutKey>,
    /// Place in the sequence of the first key, where these are some keys of it.
    pub first_key: Option<usize>,
}

impl Attend {
    pub const fn of(shape: AttentionShape, visible: Visible) -> Attend {
        let (scale, soft_cap, alibi, dropout, first_key) = (None, None, None, None, None);
        Attend { shape, earlier: 0, visible, gaps: [0, 0, 0], scale, soft_cap, alibi, dropout, first_key }
    }

    /// The interval of a query. Where keys are some of a sequence, it begins before them, in them or after them.
    fn interval(&self, case: &mut Case, query: usize) -> [i32; 2] {
        let interval = self.interval_of_all(case, query);
        let Some(first_key) = self.first_key else { return interval };
        let moved = first_key as i32 + [0, -17, 23, -200, 5][query % 5];
        interval.map(|place| place + moved)
    }

    fn interval_of_all(&self, case: &mut Case, query: usize) -> [i32; 2] {
        let keys = (self.shape.sequence_length + self.earlier) as i32;
        let position = (query + self.earlier) as i32;
        match self.visible {
            Visible::Causal => [0, position + 1],
            Visible::Documents => [position / 23 * 23, position + 1],
            Visible::Prefix => [0, (position + 1).max(keys / 3)],
            Visible::SlidingWindow => [(position - 9).max(0), position + 1],
            Visible::SomeNothing if query.is_multiple_of(3) || query > 40 => [position, position],
            Visible::SomeNothing => [position / 2, position + 1],
            Visible::Everything => [0, keys],
            Visible::Anything => [(); 2].map(|()| case.words.below(keys as usize + 8) as i32 - 4),
        }
    }

    /// The tensors and their values: scores are of size 1.
    fn operands(&self, case: &mut Case) -> AttentionOperands {
        let AttentionShape { sequences, sequence_length: length, heads, kv_heads, head_dim } = self.shape;
        let (tokens, keys) = (sequences * length, sequences * (length + self.earlier));
        let [q, k] = [(tokens, heads, self.gaps[0]), (keys, kv_heads, self.gaps[1])]
            .map(|(rows, heads, gap)| case.stored(rows, heads * head_dim, gap, Values::Plain));
        let v = case.stored(keys, kv_heads * head_dim, self.gaps[1], Values::Plain);
        let intervals: Vec<[i32; 2]> = (0..tokens).map(|token| self.interval(case, token % length)).collect();
        let visible = case.ints(intervals.as_flattened()).reshaped(tokens, 2);
        let out = case.stored(tokens, heads * head_dim, self.gaps[2], Values::Plain);
        let log_sum_exp = case.reals(tokens, heads, self.gaps[2], Values::Plain);
        if self.scale.is_some() {
            for index in 0..tokens * heads {
                let value = 8.0 + case.words.below(1 << 16) as f32 / 2048.0;
                case.put(log_sum_exp, index / heads, index % heads, &value.to_le_bytes());
            }
        }
        AttentionOperands {
            places: self.first_key.map(|first_key| Places { first_query: first_key, first_key }),
            shape: self.shape,
            q,
            k,
            v,
            visible,
            window: None,
            scale: self.scale.unwrap_or(0.05 / (head_dim as f32).sqrt()),
            soft_cap: self.soft_cap,
            alibi: self.alibi.map(|others| Alibi { first_head: 3, num_heads: 3 + heads + others }),
            dropout: self.dropout,
            out,
            log_sum_exp,
        }
    }

    /// The forward pass.
    pub fn forward(&self, case: &mut Case) -> Vec<Op> {
        vec![Op::Attention { operands: self.operands(case) }]
    }

    /// The backward pass on any outputs and log-sum-exps.
    pub fn backward(&self, case: &mut Case) -> Vec<Op> {
        let operands = self.operands(case);
        self.backward_of(operands, case)
    }

    /// The forward pass, and the backward pass on what it leaves.
    pub fn passes(&self, case: &mut Case) -> Vec<Op> {
        let operands = self.operands(case);
        let mut ops = vec![Op::Attention { operands }];
        ops.extend(self.backward_of(operands, case));
        ops
    }

    fn backward_of(&self, operands: AttentionOperands, case: &mut Case) -> Vec<Op> {
        let gradients = self.gradients(case);
        let mut ops = vec![Op::AttentionBackward { operands, gradients }];
        if self.shape.sequence_length + self.earlier > 512 || operands.q.dtype != Dtype::F32 {
            // The CPU sums there what the GPU sums in registers: no result.
            ops.push(Op::Fill { out: gradients.key_sums, value: 0.0 });
        }
        ops
    }

    fn gradients(&self, case: &mut Case) -> AttentionGradients {
        let AttentionShape { sequences, sequence_length, heads, kv_heads, head_dim } = self.shape;
        let (tokens, keys) = (sequences * sequence_length, sequences * (sequence_length + self.earlier));
        let mut gradient =
            |(rows, heads): (usize, usize)| case.stored(rows, heads * head_dim, self.gaps[2], Values::Plain);
        let [dout, dq, dk, dv] =
            [(tokens, heads), (tokens, heads), (keys, kv_heads), (keys, kv_heads)].map(&mut gradient);
        let key_sums = case.reals(2 * keys * kv_heads, head_dim, 0, Values::Plain);
        AttentionGradients { dout, dq, dk, dv, key_sums }
    }

    fn compare(&self, bench: &Bench, seed: u64, ops: fn(&Attend, &mut Case) -> Vec<Op>) {
        for stored in bench.types_of(seed) {
            let mut case = Case::new(seed).storing(stored);
            let ops = ops(self, &mut case);
            bench.compare_all(&case, &ops);
        }
    }
}

pub fn dropout(probability: f32) -> DropoutKey {
    let first_token = (1 << 32) - 20;
    DropoutKey { seed: 0x0123_4567_89ab_cdef, step: 7, site: 3, first_token, first_channel: 5, probability }
}

pub const fn shape(sequences: usize, sequence_length: usize, heads: [usize; 2], head_dim: usize) -> AttentionShape {
    AttentionShape { sequences, sequence_length, heads: heads[0], kv_heads: heads[1], head_dim }
}

/// Most scores are below the last one, and some above all others.
pub const CAPS: [f32; 3] = [0.03, 0.5, 50.0];

const SOURCES: [&str; 3] = ["attention", "attention_backward", "element_wise"];

#[needs::cuda]
#[test]
fn attention_of_any_shape_has_the_bits_of_the_cpu() {
    let bench = Bench::of(&SOURCES);
    let sizes = (1usize..3, 1usize..140, 1usize..3, 1usize..3, prop_oneof![1usize..40, 60usize..70, 126usize..140]);
    let masks = (prop::sample::select(ALL_VISIBLE.to_vec()), prop_oneof![Just(0usize), 1usize..70]);
    let gaps = [0usize..4, 0..4, 0..4];
    let caps = prop::option::of(prop::sample::select(CAPS.to_vec()));
    let scores = (caps, prop::option::of(0usize..4), prop::option::of(prop::sample::select(vec![0.0f32, 0.1, 0.7])));
    let first_keys = prop::option::of((0usize..100).prop_map(|four| 4 * four));
    let config = ProptestConfig { max_shrink_iters: 20, ..ProptestConfig::with_cases(32) };
    proptest!(config, |(
        (sequences, length, kv_heads, group, head_dim) in sizes, (visible, earlier) in masks, gaps in gaps,
        (soft_cap, alibi, probability) in scores, first_key in first_keys, stored in any_stored(), seed in any::<u64>(),
    )| {
        // Some keys are those of one sequence.
        let sequences = if first_key.is_some() { 1 } else { sequences };
        let shape = shape(sequences, length, [kv_heads * group, kv_heads], head_dim);
        let dropout = probability.map(dropout);
        let attend = Attend { shape, earlier, visible, gaps, scale: None, soft_cap, alibi, dropout, first_key };
        let mut case = Case::new(seed).storing(stored);
        let ops = attend.passes(&mut case);
        prop_assert_eq!(bench.difference(&case, &ops), None);
    });
}

/// Around blocks of 32 queries, tiles of 64 keys, chunks of 64 channels and ranges of 128.
fn edges() -> impl Iterator<Item = (u64, Attend)> {
    let lengths = [1, 4, 31, 32, 33, 63, 64, 65, 96, 128, 129];
    let head_dims = [1, 2, 16, 63, 64, 65, 127, 128, 129, 192, 256, 257];
    lengths.into_iter().enumerate().flat_map(move |(index, length)| {
        (0..2).map(move |step| {
            let head_dim = head_dims[(5 * index + 7 * step) % head_dims.len()];
            let visible = ALL_VISIBLE[(index + step) % ALL_VISIBLE.len()];
            let mut attend = Attend::of(shape(1 + step, length, [2 + 2 * step, 1 + step], head_dim), visible);
            attend.gaps = [index % 3, step, 1];
            attend.soft_cap = (index % 4 == step + 1).then(|| CAPS[index % 3]);
            attend.alibi = (index % 2 == 0).then_some(index % 3);
            attend.dropout = (index % 3 == step).then(|| dropout(0.2));
            (index as u64, attend)
        })
    })
}

/// Keys from the middle of a sequence on, with a bias and a mask.
fn some_keys() -> impl Iterator<Item = (u64, Attend)> {
    let of = |index: usize| {
        let visible = ALL_VISIBLE[index % ALL_VISIBLE.len()];
        let attend = Attend::of(shape(1, [33, 64, 96, 129][index], [2, 1], [16, 65, 3, 129][index]), visible);
        let attend = Attend { alibi: Some(index), first_key: Some([64, 0, 100, 36][index]), ..attend };
        (index as u64, Attend { dropout: index.is_multiple_of(2).then(|| dropout(0.2)), ..attend })
    };
    (0..4).map(of)
}

pub fn forward(bench: &Bench) {
    edges().for_each(|(seed, attend)| {
        attend.compare(bench, seed, Attend::forward);
        Attend { earlier: 30, ..attend }.compare(bench, seed, Attend::forward);
    });
    some_keys().for_each(|(seed, attend)| attend.compare(bench, seed, Attend::forward));
}

pub fn backward(bench: &Bench) {
    edges().for_each(|(seed, attend)| {
        attend.compare(bench, seed, Attend::backward);
        Attend { earlier: 30, ..attend }.compare(bench, seed, Attend::backward);
    });
    some_keys().for_each(|(seed, attend)| attend.compare(bench, seed, Attend::backward));
    // More blocks of queries than are prepared at once.
    let long = Attend::of(shape(1, 300, [2, 1], 3), Visible::SlidingWindow);
    long.compare(bench, 0, Attend::backward);
}

#[needs::cuda]
#[test]
fn attention_at_the_edges_of_blocks_tiles_and_ranges_has_the_bits_of_the_cpu() {
    assert_same(&SOURCES, forward);
    assert_same(&SOURCES, backward);
}

/// Here the CPU sums the gradients of keys next to their place.
fn long_sequences(bench: &Bench) {
    for (index, visible) in [Visible::Causal, Visible::SlidingWindow, Visible::Documents].into_iter().enumerate() {
        let attend = Attend { dropout: Some(dropout(0.1)), ..Attend::of(shape(1, 530, [2, 1], 5), visible) };
        attend.compare(bench, index as u64, Attend::passes);
    }
}

#[needs::cuda]
#[test]
fn attention_of_long_sequences_has_the_bits_of_the_cpu() {
    assert_same(&SOURCES, long_sequences);
}

pub fn forward_of_minus_zeros(bench: &Bench) {
    minus_zero(bench, Attend::forward);
}

pub fn backward_of_minus_zeros(bench: &Bench) {
    minus_zero(bench, Attend::backward);
}

/// Products so small that they round to zeros of either sign.
fn minus_zero(bench: &Bench, ops: fn(&Attend, &mut Case) -> Vec<Op>) {
    let attend = Attend::of(shape(1, 70, [1, 1], 3), Visible::SlidingWindow);
    let mut case = Case::new(0);
    let ops = ops(&attend, &mut case);
    let tensors: Vec<Tensor> = ops.iter().flat_map(|op| op.operands().reads().collect::<Vec<_>>()).collect();
    for tensor in tensors.into_iter().filter(|tensor| tensor.dtype == Dtype::F32) {
        for row in 0..tensor.rows {
            for col in 0..tensor.cols {
                let value = [-1e-30f32, 1e-25, -0.0, -1e-38][case.words.below(4)];
                case.put(tensor, row, col, &value.to_le_bytes());
            }
        }
    }
    bench.compare_all(&case, &ops);
}

#[needs::cuda]
#[test]
fn sums_that_are_minus_zero_have_the_bits_of_the_cpu() {
    assert_same(&SOURCES, |bench| minus_zero(bench, Attend::passes));
}

/// Kernels compute slopes with the exponential of `cpu::math` in f64, the host with that of its library: rounded to f32
/// they are equal.
#[test]
fn slopes_of_kernels_are_those_of_the_host() {
    for num_heads in 1usize..=300 {
        let power_of_two = 1 << num_heads.ilog2();
        for head in 0..num_heads {
            let (number, series) = if head < power_of_two {
                (head + 1, power_of_two)
            } else {
                (2 * (head - power_of_two) + 1, 2 * power_of_two)
            };
            let slope = exp_f64(-8.0 * number as f64 / series as f64 * std::f64::consts::LN_2) as f32;
            let expected = Alibi { first_head: 0, num_heads }.slope(head);
            assert_eq!(slope.to_bits(), expected.to_bits(), "head {head} of {num_heads}");
        }
    }
}

/// The CPU asserts these.
#[needs::cuda]
#[test]
fn attention_that_does_not_fit_is_refused_with_the_tensors() {
    let bench = Bench::of(&SOURCES);
    let mut case = Case::new(0);
    let operands = Attend::of(shape(1, 8, [2, 1], 4), Visible::Causal).operands(&mut case);
    let o = operands;
    let with = |alter: &dyn Fn(&mut AttentionOperands)| {
        let mut operands = operands;
        alter(&mut operands);
        Op::Attention { operands }
    };
    let gradients = AttentionGradients { dout: o.q, dq: o.q, dk: o.q, dv: o.v, key_sums: o.q };
    let uneven = Some(Places { first_query: 8, first_key: 6 });
    let far = Some(Places { first_query: 8, first_key: (1 << 24) - 8 });
    let many_heads = DropoutKey { first_channel: 65_535, ..dropout(0.5) };
    for (op, expected) in [
        (with(&|o| o.shape.kv_heads = 3), "attention: 3 kv heads do not divide 2 heads"),
        (with(&|o| o.shape.head_dim = 513), "attention: heads of 513 channels; use at most 512"),
        (with(&|o| o.k.rows = 7), "attention: 7 keys per sequence for 8 queries"),
        (with(&|o| o.q.cols = 7), "attention: q F32[8, 7] stride 8 @0 is not [8, 8]"),
        (with(&|o| o.v.rows = 7), "is not [8, 4]"),
        (with(&|o| o.log_sum_exp.cols = 1), "is not [8, 2]"),
        (with(&|o| o.visible.rows = 7), "is not 8 intervals"),
        (with(&|o| o.dropout = Some(many_heads)), "attention: dropout does not tell 65537 heads apart"),
        (
            with(&|o| (o.dropout, o.places) = (Some(dropout(0.5)), uneven)),
            "attention: dropout draws 4 keys at once, not from 6 on",
        ),
        (with(&|o| o.places = far), "attention: positions of 16777216 keys are not exact in f32"),
        (with(&|o| o.q.dtype = Dtype::Bf16), "is not Bf16"),
        (Op::AttentionBackward { operands, gradients }, "attention_backward: dk F32[8, 8] @0 is not [8, 4]"),
    ] {
        let error = bench.failure(&case, &op);
        assert!(error.contains(expected), "{error}");
    }
}
