//! Attention with products in blocks of tensor cores, of bf16 and fp16.

use device::{Dtype, Op};
use proptest::prelude::*;

use crate::attention::{ALL_VISIBLE, Attend, Visible, dropout, shape};
use crate::bench::{Bench, Order, assert_same_in, code};
use crate::case::Case;
use softgpu::Checks;

const SOURCES: &[&str] = &["attention_blocks", "attention_blocks_queries", "attention_blocks_keys", "element_wise"];

const NARROW: [Dtype; 2] = [Dtype::Bf16, Dtype::F16];

/// Compares an attention of each narrow type.
fn compare(bench: &Bench, attend: &Attend, seed: u64, ops: fn(&Attend, &mut Case) -> Vec<Op>) {
    for narrow in NARROW {
        let mut case = Case::new(seed).storing(narrow);
        let ops = ops(attend, &mut case);
        bench.compare_all(&case, &ops);
    }
}

/// Heads whose rows are copied by vectors, and others.
fn head_dims() -> impl Strategy<Value = usize> {
    prop_oneof![1usize..40, (1usize..17).prop_map(|eight| 8 * eight), Just(64), Just(128), 60usize..70, 120usize..129]
}

fn attention_of_any_shape(order: Order) {
    let Some(code) = code(SOURCES) else { return };
    let bench = Bench::in_order(order, &code, Checks::default());
    let lengths = prop_oneof![1usize..40, 100usize..300];
    let sizes = (1usize..3, lengths, 1usize..3, 1usize..3, head_dims());
    let masks = (prop::sample::select(ALL_VISIBLE.to_vec()), prop_oneof![Just(0usize), 1usize..150]);
    let gaps = prop_oneof![Just([0usize; 3]), Just([8, 16, 24]), [0usize..4, 0..4, 0..4]];
    let scores = (prop::option::of(0usize..4), prop::option::of(prop::sample::select(vec![0.0f32, 0.1, 0.7])));
    let first_keys = prop::option::of((0usize..100).prop_map(|four| 4 * four));
    let config = ProptestConfig { max_shrink_iters: 20, ..ProptestConfig::with_cases(24) };
    proptest!(config, |(
        (sequences, length, kv_heads, group, head_dim) in sizes, (visible, earlier) in masks, gaps in gaps,
        (alibi, probability) in scores, first_key in first_keys, narrow in prop::sample::select(NARROW.to_vec()),
        seed in any::<u64>(),
    )| {
        // Some keys are those of one sequence.
        let sequences = if first_key.is_some() { 1 } else { sequences };
        let shape = shape(sequences, length, [kv_heads * group, kv_heads], head_dim);
        let attend = Attend { shape, earlier, visible, gaps, alibi, dropout: probability.map(dropout), first_key };
        let mut case = Case::new(seed).storing(narrow);
        let ops = attend.passes(&mut case);
        prop_assert_eq!(bench.difference(&case, &ops), None);
    });
}

#[test]
fn attention_of_any_shape_in_blocks_of_16_has_the_bits_of_the_cpu() {
    attention_of_any_shape(Order::BLOCKS16);
}

#[test]
fn attention_of_any_shape_in_blocks_of_8_has_the_bits_of_the_cpu() {
    attention_of_any_shape(Order::BLOCKS8);
}

#[test]
fn first() {
    assert_same_in(Order::BLOCKS16, SOURCES, |bench| {
        for (seed, dims) in [(1, 64), (2, 128), (3, 16), (4, 24)] {
            compare(bench, &Attend::of(shape(1, 150, [2, 1], dims), Visible::Causal), seed, Attend::forward);
        }
    });
    assert_same_in(Order::BLOCKS16, SOURCES, |bench| {
        for (seed, dims) in [(1, 64), (2, 128), (3, 16), (4, 24)] {
            compare(bench, &Attend::of(shape(1, 150, [2, 1], dims), Visible::Causal), seed, Attend::passes);
        }
    });
}
