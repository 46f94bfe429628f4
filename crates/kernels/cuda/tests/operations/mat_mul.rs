use device::{Dtype, Op, Orientation, Write};
use proptest::prelude::*;

use crate::operations::any_shape::any_stored;
use crate::operations::bench::{ARENA_BYTES, Bench, assert_same};
use crate::operations::case::{Case, STORED, Values};

#[derive(Clone, Copy, Debug)]
struct Product {
    orientation: Orientation,
    sizes: [usize; 3],
    gaps: [usize; 3],
    has_bias: bool,
    write: Write,
    values: Values,
    /// The types of the operands and of the output.
    types: [Dtype; 3],
}

impl Product {
    fn compare(self, bench: &Bench, seed: u64) {
        self.compare_in(bench, Case::new(seed));
    }

    fn compare_in(self, bench: &Bench, mut case: Case) {
        let Product { orientation, sizes: [m, n, k], gaps, has_bias, write, values, types } = self;
        let (a, b) = match orientation {
            Orientation::Nt => ([m, k], [n, k]),
            Orientation::Nn => ([m, k], [k, n]),
            Orientation::Tn => ([k, m], [k, n]),
        };
        let a = case.reals_of(types[0], a, gaps[0], values);
        let b = case.reals_of(types[1], b, gaps[1], values);
        let bias = has_bias.then(|| case.reals_of(types[2], [1, n], 0, values));
        let out = case.reals_of(types[2], [m, n], gaps[2], values);
        bench.compare(&case, &Op::MatMul { orientation, a, b, bias, out, write });
    }
}

pub fn orientations() -> impl Strategy<Value = Orientation> {
    prop_oneof![Just(Orientation::Nt), Just(Orientation::Nn), Just(Orientation::Tn)]
}

pub fn writes() -> impl Strategy<Value = Write> {
    prop_oneof![Just(Write::Assign), Just(Write::Accumulate)]
}

pub fn values() -> impl Strategy<Value = Values> {
    prop_oneof![Just(Values::Plain), Just(Values::Wild)]
}

/// The types of the operands and the output of a product: one of all 27 choices.
fn types(index: usize) -> [Dtype; 3] {
    [index, index / 3, index / 9].map(|choice| STORED[choice % 3])
}

#[needs::cuda]
#[test]
fn products_of_any_shape_have_the_bits_of_the_cpu() {
    assert_same(&["mat_mul"], products);
}

pub fn products(bench: &Bench) {
    let sizes = [1usize..70, 1..70, 0..70].map(|size| size);
    let types = [any_stored(), any_stored(), any_stored()];
    let strategy = (orientations(), sizes, [0usize..5, 0..5, 0..5], types, any::<bool>(), writes(), values());
    let config = ProptestConfig::with_cases(96);
    proptest!(config, |((orientation, sizes, gaps, types, has_bias, write, values) in strategy, seed in any::<u64>())| {
        Product { orientation, sizes, gaps, has_bias, write, values, types }.compare(bench, seed);
    });
}

/// Blocks of K, stages, tiles of both kinds and their edges.
#[needs::cuda]
#[test]
fn products_at_the_edges_of_blocks_and_tiles_have_the_bits_of_the_cpu() {
    assert_same(&["mat_mul"], edges);
}

pub fn edges(bench: &Bench) {
    let orientations = [Orientation::Nt, Orientation::Nn, Orientation::Tn];
    let ks = [0, 1, 15, 16, 17, 255, 256, 257, 272, 512, 513, 700];
    let cases = ks.into_iter().flat_map(|k| orientations.map(|orientation| (k, orientation)));
    let typed = cases.flat_map(|case| [0, 13, 26].map(|types| (case, types)));
    for (index, ((k, orientation), same)) in typed.enumerate() {
        // Both operands and the output are of one type, or of any three.
        let types = types(if index % 2 == 0 { same } else { index });
        let index = index / 3;
        let sizes = [[64, 64, k], [65, 3, k], [1, 130, k]][index % 3];
        let write = [Write::Assign, Write::Accumulate][index / 3 % 2];
        let (has_bias, values) = (index % 2 == 0, Values::Plain);
        let product = Product { orientation, sizes, gaps: [0, 1, 3], has_bias, write, values, types };
        product.compare(bench, index as u64);
    }
    for (index, orientation) in orientations.into_iter().enumerate() {
        let sizes = [[129, 130, 40], [200, 257, 260], [256, 256, 16]];
        for (number, sizes) in sizes.into_iter().chain(sizes).chain(sizes).enumerate() {
            let write = [Write::Accumulate, Write::Assign][index % 2];
            let types = types([0, 13, 26, 15, 19, 5, 7, 11, 21][number]);
            let (has_bias, values) = (true, Values::Wild);
            let product = Product { orientation, sizes, gaps: [2, 0, 1], has_bias, write, values, types };
            product.compare(bench, index as u64);
        }
    }
}

#[needs::cuda]
#[test]
fn sums_that_are_minus_zero_stay_so_after_the_last_step() {
    assert_same(&["mat_mul"], minus_zero);
}

pub fn minus_zero(bench: &Bench) {
    // The product of two tiny numbers of different signs rounds to -0, and so does the sum. With whole blocks of K,
    // too.
    for steps in [3, 256, 512] {
        let mut case = Case::new(0);
        let (a, b) = (case.vector(steps, Values::Plain), case.vector(steps, Values::Plain));
        let out = case.vector(1, Values::Plain);
        for col in 0..steps {
            case.put(a, 0, col, &1e-30f32.to_le_bytes());
            case.put(b, 0, col, &(-1e-30f32).to_le_bytes());
        }
        let op = Op::MatMul { orientation: Orientation::Nt, a, b, bias: None, out, write: Write::Assign };
        bench.compare(&case, &op);
    }
}

#[needs::cuda]
#[test]
fn products_of_matrices_at_the_end_of_memory_read_nothing_after_it() {
    assert_same(&["mat_mul"], ends);
}

pub fn ends(bench: &Bench) {
    for orientation in [Orientation::Nt, Orientation::Nn, Orientation::Tn] {
        for (last, sizes) in (0..4).flat_map(|last| [[3, 5, 17], [129, 193, 5]].map(|sizes| (last, sizes))) {
            let (write, values) = (Write::Accumulate, Values::Plain);
            for types in [0, 13, 26].map(types) {
                let product = Product { orientation, sizes, gaps: [0; 3], has_bias: true, write, values, types };
                product.compare_in(bench, Case::with_last(7, last, ARENA_BYTES));
            }
        }
    }
}
