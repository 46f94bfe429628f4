//! Attention on some of the keys of a sequence at a time, joined by log-sum-exps, against attention on all of them.
//!
//! Scores have the same bits in both, and so have gradients of keys and values, which are sums over the same queries.
//! An output is a mean of values of at most 1.5, by weights that dropout raises to 1.25: a chain of at most 120 keys,
//! and some 40 more roundings by exponentials of differences of up to 10, by decays and by joining. Two orders are
//! apart by at most twice that: 2 x 160 x 2^-24 x 1.875 = 3.6e-5. A gradient of a query is a chain as long, of terms of
//! at most `scale p (|dout . v| + |delta|) |k|`, which add up to less than 10: 1.9e-4.

use cpu::attention::{
    Alibi, Attention, AttentionBuffers, AttentionShape, Backward, DropoutKey, Forward, JoinAttention,
    attention_backward, attention_forward,
};
use cpu::instruction_set::InstructionSet;
use cpu::lanes;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};
use device::{Bf16, Element, Write};

const QUERIES: usize = 40;
/// Sets of as many keys each.
const SETS: usize = 3;
const KEYS: usize = SETS * QUERIES;
/// Queries are the last tokens.
const FIRST: usize = KEYS - QUERIES;
const SHAPE: AttentionShape =
    AttentionShape { sequences: 1, sequence_length: QUERIES, heads: 6, kv_heads: 3, head_dim: 20 };
const QUERY_COLS: usize = 120;
const KEY_COLS: usize = 60;
const OUT_BOUND: f32 = 3.6e-5;
const GRADIENT_BOUND: f32 = 1.9e-4;

fn values(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64 / (1u64 << 30) as f64 - 1.0) * 1.5
    };
    (0..len).map(|_| next() as f32).collect()
}

struct Case {
    visible: Vec<[i32; 2]>,
    alibi: Option<Alibi>,
    dropout: Option<DropoutKey>,
    set: InstructionSet,
}

/// Outputs on some keys.
#[derive(PartialEq)]
struct On {
    out: Vec<f32>,
    log_sum_exp: Vec<f32>,
}

impl Case {
    fn attention(&self, first_key: usize) -> Attention<'_> {
        let Case { visible, alibi, dropout, .. } = self;
        Attention {
            shape: SHAPE,
            visible,
            first_key: Some(first_key),
            scale: 0.22,
            soft_cap: None,
            alibi: *alibi,
            dropout: *dropout,
        }
    }

    fn forward(&self, [q, k, v]: [&[f32]; 3], first_key: usize) -> On {
        let keys = k.len() / KEY_COLS;
        let (mut out, mut log_sum_exp) = (vec![f32::NAN; QUERIES * QUERY_COLS], vec![f32::NAN; QUERIES * SHAPE.heads]);
        let tensors = Forward {
            q: MatRef::dense(q, QUERIES, QUERY_COLS),
            k: MatRef::dense(k, keys, KEY_COLS),
            v: MatRef::dense(v, keys, KEY_COLS),
            out: MatMut::dense(&mut out, QUERIES, QUERY_COLS),
            log_sum_exp: MatMut::dense(&mut log_sum_exp, QUERIES, SHAPE.heads),
        };
        attention_forward(&self.attention(first_key), tensors, &mut AttentionBuffers::new(), self.set, &Meter::new());
        On { out, log_sum_exp }
    }

    fn backward(&self, [q, k, v, dout]: [&[f32]; 4], of_all: &On, first_key: usize) -> [Vec<f32>; 3] {
        let keys = k.len() / KEY_COLS;
        let (mut dq, mut sums) = (vec![f32::NAN; q.len()], vec![f32::NAN; 2 * keys * SHAPE.head_dim]);
        let [mut dk, mut dv] = [(); 2].map(|()| vec![f32::NAN; k.len()]);
        let tensors = Backward {
            q: MatRef::dense(q, QUERIES, QUERY_COLS),
            k: MatRef::dense(k, keys, KEY_COLS),
            v: MatRef::dense(v, keys, KEY_COLS),
            out: MatRef::dense(&of_all.out, QUERIES, QUERY_COLS),
            log_sum_exp: MatRef::dense(&of_all.log_sum_exp, QUERIES, SHAPE.heads),
            dout: MatRef::dense(dout, QUERIES, QUERY_COLS),
            dq: MatMut::dense(&mut dq, QUERIES, QUERY_COLS),
            dk: MatMut::dense(&mut dk, keys, KEY_COLS),
            dv: MatMut::dense(&mut dv, keys, KEY_COLS),
            key_sums: MatMut::dense(&mut sums, 2 * keys, SHAPE.head_dim),
        };
        attention_backward(&self.attention(first_key), tensors, &mut AttentionBuffers::new(), self.set, &Meter::new());
        [dq, dk, dv]
    }

    fn join<E: lanes::Stored>(&self, part: &[E], of_part: &[f32], On { out, log_sum_exp }: &mut On, write: Write) {
        let kernel = JoinAttention {
            part: MatRef::dense(part, QUERIES, QUERY_COLS),
            part_log_sum_exp: MatRef::dense(of_part, QUERIES, SHAPE.heads),
            out: MatMut::dense(out, QUERIES, QUERY_COLS),
            log_sum_exp: MatMut::dense(log_sum_exp, QUERIES, SHAPE.heads),
            head_dim: SHAPE.head_dim,
            write,
        };
        lanes::run(self.set, kernel);
    }

    /// On each set of keys, joined from the last to the first.
    fn joined(&self, [q, k, v]: [&[f32]; 3]) -> On {
        let mut all = On { out: vec![f32::NAN; q.len()], log_sum_exp: vec![f32::NAN; QUERIES * SHAPE.heads] };
        for set in (0..SETS).rev() {
            let rows = set * QUERIES * KEY_COLS..(set + 1) * QUERIES * KEY_COLS;
            let part = self.forward([q, &k[rows.clone()], &v[rows]], set * QUERIES);
            let write = if set == SETS - 1 { Write::Assign } else { Write::Accumulate };
            self.join(&part.out, &part.log_sum_exp, &mut all, write);
        }
        all
    }
}

fn cases() -> Vec<Case> {
    let place = |query: usize| (FIRST + query) as i32;
    let causal: Vec<[i32; 2]> = (0..QUERIES).map(|query| [0, place(query) + 1]).collect();
    // Windows that begin and end in any set, and queries that see nothing.
    let windows = (0..QUERIES).map(|query| match query % 5 {
        0 => [7, 7],
        1 => [11, 33],
        _ => [place(query) - 70, place(query) + 1],
    });
    let windows: Vec<[i32; 2]> = windows.collect();
    let dropout = DropoutKey { seed: 3, step: 7, site: 3, first_token: 1000, first_channel: 5, probability: 0.2 };
    let alibi = Alibi { first_head: 3, num_heads: 9 };
    let mut cases = vec![];
    for set in InstructionSet::available() {
        for visible in [&causal, &windows] {
            for (alibi, dropout) in [(None, None), (Some(alibi), None), (Some(alibi), Some(dropout))] {
                cases.push(Case { visible: visible.clone(), alibi, dropout, set });
            }
        }
    }
    cases
}

fn farthest(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    let far = |(a, b): (&f32, &f32)| if a == b { 0.0 } else { (a - b).abs() };
    one.iter().zip(other).map(far).fold(0.0, f32::max)
}

fn operands() -> [Vec<f32>; 4] {
    [(1, QUERIES * QUERY_COLS), (2, KEYS * KEY_COLS), (3, KEYS * KEY_COLS), (4, QUERIES * QUERY_COLS)]
        .map(|(seed, len)| values(seed, len))
}

#[test]
fn attention_on_sets_of_keys_is_joined_to_attention_on_all() {
    let [q, k, v, dout] = operands();
    for case in cases() {
        let all = case.forward([&q, &k, &v], 0);
        let joined = case.joined([&q, &k, &v]);
        let far = farthest(&all.out, &joined.out).max(farthest(&all.log_sum_exp, &joined.log_sum_exp));
        assert!(far <= OUT_BOUND, "{far}");

        let [dq, dk, dv] = case.backward([&q, &k, &v, &dout], &all, 0);
        let mut sums = vec![0.0f32; dq.len()];
        for set in 0..SETS {
            let rows = set * QUERIES * KEY_COLS..(set + 1) * QUERIES * KEY_COLS;
            let (k, v) = (&k[rows.clone()], &v[rows.clone()]);
            let [of_queries, of_keys, of_values] = case.backward([&q, k, v, &dout], &all, set * QUERIES);
            assert!(of_keys == dk[rows.clone()] && of_values == dv[rows], "set {set}");
            sums.iter_mut().zip(of_queries).for_each(|(sum, term)| *sum += term);
        }
        let far = farthest(&sums, &dq);
        assert!(far <= GRADIENT_BOUND, "{far}");
    }
}

#[test]
fn joining_has_the_same_bits_on_every_instruction_set_and_for_bf16_values() {
    let [q, k, v, _] = operands();
    let bits = |on: &On| on.out.iter().chain(&on.log_sum_exp).map(|value| value.to_bits()).collect::<Vec<u32>>();
    let cases = cases();
    let joined: Vec<Vec<u32>> = cases.iter().map(|case| bits(&case.joined([&q, &k, &v]))).collect();
    let of_set = cases.len() / InstructionSet::available().len();
    assert!(joined.chunks(of_set).all(|of_set| of_set == &joined[..of_set.len()]));
    for case in &cases {
        let part = case.forward([&q, &k, &v], 0);
        let narrow: Vec<Bf16> = part.out.iter().map(|value| Bf16::narrow(*value)).collect();
        let wide: Vec<f32> = narrow.iter().map(|value| value.widen()).collect();
        let mut sums = [(); 2].map(|()| case.joined([&q, &k, &v]));
        let [one, other] = &mut sums;
        case.join(&narrow, &part.log_sum_exp, one, Write::Accumulate);
        case.join(&wide, &part.log_sum_exp, other, Write::Accumulate);
        assert_eq!(bits(one), bits(other));
    }
}
