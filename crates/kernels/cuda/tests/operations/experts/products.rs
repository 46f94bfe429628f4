//! Products of groups of rows: unequal groups, groups without rows, and rows that no token has, which are NaN.

use std::ops::Range;

use config::Products;
use device::{Dtype, ExpertOp, Orientation, TokenRange, Write};

use super::chosen::{Chosen, Spread};
use crate::operations::bench::{ARENA_BYTES, Bench, Order, assert_same, assert_same_in};
use crate::operations::case::{Case, Values, Words};

const ORIENTATIONS: [Orientation; 3] = [Orientation::Nt, Orientation::Nn, Orientation::Tn];
const CHAINS: &[&str] = &["expert_mat_mul"];
const BLOCKS: &[&str] = &["expert_mat_mul_blocks"];

/// Types of both factors and of the result.
const IN_CHAINS: [[Dtype; 3]; 4] =
    [[Dtype::F32; 3], [Dtype::Bf16; 3], [Dtype::F16, Dtype::F32, Dtype::Bf16], [Dtype::Bf16, Dtype::F16, Dtype::F32]];
const IN_BLOCKS: [[Dtype; 3]; 4] = [
    [Dtype::Bf16; 3],
    [Dtype::F16, Dtype::F16, Dtype::F32],
    [Dtype::F32, Dtype::Bf16, Dtype::F32],
    [Dtype::F16, Dtype::F32, Dtype::F16],
];

/// A product of groups.
#[derive(Clone, Debug)]
struct Product {
    orientation: Orientation,
    /// Tokens, experts, and experts of a token.
    choices: [usize; 3],
    own: Range<usize>,
    spread: Spread,
    /// Inputs and outputs of a matrix.
    sizes: [usize; 2],
    types: [Dtype; 3],
    gaps: [usize; 3],
    tokens: Option<TokenRange>,
    write: Write,
    values: Values,
}

impl Product {
    /// Of two experts for each token, all of which are this rank's, with matrices of 24 inputs and 40 outputs.
    fn new(orientation: Orientation, types: [Dtype; 3], choices: [usize; 3]) -> Product {
        Product {
            orientation,
            choices,
            own: 0..choices[1],
            spread: Spread::Even,
            sizes: [24, 40],
            types,
            gaps: [0; 3],
            tokens: None,
            write: Write::Assign,
            values: Values::Plain,
        }
    }

    fn compare(&self, bench: &Bench, mut case: Case) {
        let Product { orientation, choices, spread, sizes: [inputs, outputs], types, gaps, tokens, write, .. } = *self;
        let chosen = Chosen::new(&mut case.words, spread, choices, self.own.clone());
        let (room, groups) = (chosen.room(), self.own.len());
        let [a, b, out] = match orientation {
            Orientation::Nt => [[room, inputs], [groups * outputs, inputs], [room, outputs]],
            Orientation::Nn => [[room, outputs], [groups * outputs, inputs], [room, inputs]],
            Orientation::Tn => [[room, outputs], [room, inputs], [groups * outputs, inputs]],
        };
        let [a, b, out] = [(0, a), (1, b), (2, out)]
            .map(|(index, shape)| case.reals_of(types[index], shape, gaps[index], self.values));
        let rows = chosen.placed(&mut case);
        chosen.poison(&mut case, a);
        if orientation == Orientation::Tn {
            chosen.poison(&mut case, b);
        }
        bench.compare(&case, &ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write }.into());
    }
}

#[needs::cuda]
#[test]
fn products_of_unequal_groups_have_the_bits_of_the_cpu() {
    assert_same(CHAINS, unequal_in_chains);
    assert_same_in(Order::BLOCKS16, BLOCKS, unequal_in_blocks);
    assert_same_in(Order::BLOCKS8, BLOCKS, unequal_in_blocks);
}

/// Groups of any size, none among them; all rows of one group; one token; groups of more than a warp's lanes.
fn unequal(bench: &Bench, types: [[Dtype; 3]; 4]) {
    for (index, orientation) in ORIENTATIONS.into_iter().enumerate() {
        let of = |number: usize, choices| Product::new(orientation, types[(number + index) % 4], choices);
        let products = [
            of(0, [40, 6, 2]),
            Product { own: 2..6, spread: Spread::Uneven, gaps: [8, 0, 16], ..of(1, [90, 8, 2]) },
            Product { spread: Spread::All(1), gaps: [1, 3, 2], ..of(2, [70, 4, 1]) },
            // No row is this rank's.
            Product { own: 2..4, spread: Spread::All(0), write: Write::Accumulate, ..of(3, [9, 4, 2]) },
            Product { sizes: [9, 5], write: Write::Accumulate, ..of(4, [1, 3, 1]) },
            Product { sizes: [5, 3], spread: Spread::Uneven, ..of(5, [60, 75, 2]) },
            Product { sizes: [70, 66], values: Values::Wild, write: Write::Accumulate, ..of(6, [50, 3, 2]) },
        ];
        for (number, product) in products.into_iter().enumerate() {
            product.compare(bench, Case::new((number + 7 * index) as u64));
        }
    }
}

pub fn unequal_in_chains(bench: &Bench) {
    unequal(bench, IN_CHAINS);
}

pub fn unequal_in_blocks(bench: &Bench) {
    unequal(bench, IN_BLOCKS);
}

#[needs::cuda]
#[test]
fn products_of_groups_of_any_shape_have_the_bits_of_the_cpu() {
    assert_same(CHAINS, |bench| drawn(bench, IN_CHAINS));
    assert_same_in(Order::BLOCKS16, BLOCKS, |bench| drawn(bench, IN_BLOCKS));
    assert_same_in(Order::BLOCKS8, BLOCKS, |bench| drawn(bench, IN_BLOCKS));
}

/// Everything of a product at random.
fn drawn(bench: &Bench, types: [[Dtype; 3]; 4]) {
    for seed in 0..40 {
        let mut words = Words::new(seed);
        let (tokens, experts) = (1 + words.below(60), 1 + words.below(9));
        let per_token = 1 + words.below(experts);
        let start = words.below(experts);
        let first_token = words.below(tokens);
        let some = TokenRange { start: first_token, end: first_token + 1 + words.below(tokens - first_token) };
        Product {
            orientation: ORIENTATIONS[words.below(3)],
            choices: [tokens, experts, per_token],
            own: start..start + 1 + words.below(experts - start),
            spread: [Spread::Even, Spread::Uneven, Spread::All(0)][words.below(3)],
            sizes: [(); 2].map(|()| 1 + words.below(80)),
            types: types[words.below(4)],
            gaps: [(); 3].map(|()| words.below(9)),
            tokens: [None, Some(some)][words.below(2)],
            write: [Write::Assign, Write::Accumulate][words.below(2)],
            values: [Values::Plain, Values::Wild][words.below(2)],
        }
        .compare(bench, Case::new(seed));
    }
}

#[needs::cuda]
#[test]
fn products_of_groups_in_large_tiles_have_the_bits_of_the_cpu() {
    assert_same(CHAINS, large_in_chains);
    assert_same_in(Order::BLOCKS16, BLOCKS, large_in_blocks);
}

/// More rows than 64 for each group, and a group of several tiles.
fn large(bench: &Bench, types: [[Dtype; 3]; 4]) {
    for (index, orientation) in ORIENTATIONS.into_iter().enumerate() {
        let of_group = Product::new(orientation, types[index], [170, 4, 2]);
        let product = Product { sizes: [130, 72], spread: Spread::Uneven, own: 0..4, ..of_group };
        product.compare(bench, Case::new(index as u64));
        let of_more = Product::new(orientation, types[index + 1], [130, 5, 3]);
        let product = Product { sizes: [72, 136], write: Write::Accumulate, gaps: [3, 1, 2], ..of_more };
        product.compare(bench, Case::new(index as u64));
    }
}

pub fn large_in_chains(bench: &Bench) {
    large(bench, IN_CHAINS);
}

pub fn large_in_blocks(bench: &Bench) {
    large(bench, IN_BLOCKS);
}

#[needs::cuda]
#[test]
fn products_of_the_rows_of_some_tokens_have_the_bits_of_the_cpu() {
    assert_same(CHAINS, tokens_in_chains);
    assert_same_in(Order::BLOCKS16, BLOCKS, tokens_in_blocks);
}

/// The first, the last and other tokens, of which some have no rows.
fn of_tokens(bench: &Bench, types: [[Dtype; 3]; 4]) {
    let ranges = [0..20, 20..40, 7..8, 0..40, 39..40, 5..33];
    for (index, orientation) in ORIENTATIONS.into_iter().enumerate() {
        for (number, range) in ranges.clone().into_iter().enumerate() {
            let tokens = Some(TokenRange { start: range.start, end: range.end });
            let write = [Write::Assign, Write::Accumulate][number % 2];
            let own = [0..6, 1..5][number / 2 % 2].clone();
            let all = Product::new(orientation, types[(index + number) % 4], [40, 6, 2]);
            Product { tokens, write, own, sizes: [17, 24], ..all }.compare(bench, Case::new(number as u64));
        }
    }
}

pub fn tokens_in_chains(bench: &Bench) {
    of_tokens(bench, IN_CHAINS);
}

pub fn tokens_in_blocks(bench: &Bench) {
    of_tokens(bench, IN_BLOCKS);
}

/// Sums over the rows of a group are cut into pieces as those over tokens are.
#[needs::cuda]
#[test]
fn pieces_of_long_groups_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS16, BLOCKS, pieces);
}

pub fn pieces(bench: &Bench) {
    for write in [Write::Assign, Write::Accumulate] {
        let all = Product::new(Orientation::Tn, [Dtype::Bf16, Dtype::Bf16, Dtype::F32], [8300, 2, 1]);
        Product { spread: Spread::All(1), sizes: [9, 16], write, ..all }.compare(bench, Case::new(3));
    }
}

#[needs::cuda]
#[test]
fn factors_of_groups_at_the_end_of_memory_are_read_to_their_end() {
    assert_same(CHAINS, ends_in_chains);
    assert_same_in(Order::BLOCKS16, BLOCKS, ends_in_blocks);
}

fn ends(bench: &Bench, types: [[Dtype; 3]; 4]) {
    for (index, orientation) in ORIENTATIONS.into_iter().enumerate() {
        for last in 0..6 {
            let all = Product::new(orientation, types[(index + last) % 4], [33, 3, 2]);
            let tokens = (last > 2).then_some(TokenRange { start: 3, end: 33 });
            let product = Product { sizes: [17, 5], tokens, write: Write::Accumulate, ..all };
            product.compare(bench, Case::with_last(5, last, ARENA_BYTES));
        }
    }
}

pub fn ends_in_chains(bench: &Bench) {
    ends(bench, IN_CHAINS);
}

pub fn ends_in_blocks(bench: &Bench) {
    ends(bench, IN_BLOCKS);
}

/// The CPU asserts that shapes fit.
#[needs::cuda]
#[test]
fn products_that_do_not_fit_are_refused_with_the_tensors() {
    let bench = Bench::of(CHAINS);
    let mut case = Case::new(0);
    let chosen = Chosen::new(&mut case.words, Spread::Even, [4, 3, 1], 0..3);
    let [a, b, out] = [[4, 5], [3 * 6, 5], [4, 6]].map(|[rows, cols]| case.reals(rows, cols, 0, Values::Plain));
    let rows = chosen.placed(&mut case);
    let op = |b, out| {
        let (orientation, tokens, write) = (Orientation::Nt, None, Write::Assign);
        ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write }.into()
    };
    assert_eq!(bench.failure(&case, &op(b, out)), "ran");
    let expected = "expert_mat_mul: Nt of F32[4, 5] @0 and F32[4, 6] @640 in 3 groups is not F32[4, 6] @640";
    assert_eq!(bench.failure(&case, &op(out, out)), expected);
    let pairs = Bench::in_order(
        Order { products: Products::Pairs, ..Order::CHAINED },
        &crate::operations::bench::code(CHAINS),
        softgpu::Checks::default(),
    );
    assert_eq!(pairs.failure(&case, &op(b, out)), "expert_mat_mul: products in the order \"pairs\" have no kernels");
}
