//! Products in blocks of tensor cores, of bf16, fp16 and operands that are rounded to it.

use cpu::gemm::PIECE;
use device::{Bf16, Dtype, Element, F16, Op, Orientation, Tensor, Write};
use proptest::prelude::*;

use crate::operations::bench::{ARENA_BYTES, Bench, Order, assert_same_in};
use crate::operations::case::{Case, Values};
use crate::operations::mat_mul::{orientations, values, writes};

const SOURCES: &[&str] = &["mat_mul_blocks"];

/// The types of both factors and of the output.
pub type Types = [Dtype; 3];

pub const SINGLE: Dtype = Dtype::F32;

#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub orientation: Orientation,
    pub sizes: [usize; 3],
    pub types: Types,
    pub gaps: [usize; 3],
    pub has_bias: bool,
    pub write: Write,
    pub values: Values,
}

impl Product {
    /// Of bf16, without gaps, bias and what was there.
    pub fn of(orientation: Orientation, sizes: [usize; 3]) -> Product {
        let (types, write) = ([Dtype::Bf16; 3], Write::Assign);
        Product { orientation, sizes, types, gaps: [0; 3], has_bias: false, write, values: Values::Plain }
    }

    pub fn compare(self, bench: &Bench, seed: u64) {
        self.compare_in(bench, Case::new(seed));
    }

    pub fn compare_in(self, bench: &Bench, mut case: Case) {
        let Product { orientation, sizes: [m, n, k], types, gaps, has_bias, write, values } = self;
        let (a, b) = match orientation {
            Orientation::Nt => ([m, k], [n, k]),
            Orientation::Nn => ([m, k], [k, n]),
            Orientation::Tn => ([k, m], [k, n]),
        };
        let mut matrix = |[rows, cols]: [usize; 2], gap, dtype| reals(&mut case, [rows, cols], gap, dtype, values);
        let (a, b) = (matrix(a, gaps[0], types[0]), matrix(b, gaps[1], types[1]));
        let bias = has_bias.then(|| matrix([1, n], 0, types[2]));
        let out = matrix([m, n], gaps[2], types[2]);
        bench.compare(&case, &Op::MatMul { orientation, a, b, bias, out, write });
    }
}

/// Real numbers of a type.
fn reals(case: &mut Case, [rows, cols]: [usize; 2], gap: usize, dtype: Dtype, values: Values) -> Tensor {
    let tensor = case.place(rows, cols, gap, dtype);
    for row in 0..rows {
        for col in 0..cols {
            let value = case.words.real(values);
            match dtype {
                Dtype::F32 => case.put(tensor, row, col, &value.to_le_bytes()),
                Dtype::Bf16 => case.put(tensor, row, col, &Bf16::narrow(value).0.to_le_bytes()),
                Dtype::F16 => case.put(tensor, row, col, &F16::narrow(value).0.to_le_bytes()),
                Dtype::I32 | Dtype::I64 => panic!("no real numbers"),
            }
        }
    }
    tensor
}

/// At least one factor is narrow, and the other one is of the same type or of single precision.
pub fn types() -> impl Strategy<Value = Types> {
    let narrow = prop_oneof![Just(Dtype::Bf16), Just(Dtype::F16)];
    let out = prop_oneof![Just(SINGLE), Just(Dtype::Bf16), Just(Dtype::F16)];
    (narrow, 0..4, out).prop_map(|(narrow, kind, out)| match kind {
        0 => [SINGLE, narrow, out],
        1 => [narrow, SINGLE, out],
        _ => [narrow, narrow, out],
    })
}

#[needs::cuda]
#[test]
fn products_of_any_shape_and_type_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS16, SOURCES, products);
    assert_same_in(Order::BLOCKS8, SOURCES, products);
}

pub fn products(bench: &Bench) {
    let sizes = [1usize..90, 1..90, 0..90].map(|size| size);
    let gaps = [0usize..9, 0..9, 0..5];
    let drawn = (orientations(), sizes, types(), gaps, any::<bool>(), writes(), values(), any::<u64>());
    proptest!(ProptestConfig::with_cases(48), |(drawn in drawn)| {
        let (orientation, sizes, types, gaps, has_bias, write, values, seed) = drawn;
        Product { orientation, sizes, types, gaps, has_bias, write, values }.compare(bench, seed);
    });
}

pub const ORIENTATIONS: [Orientation; 3] = [Orientation::Nt, Orientation::Nn, Orientation::Tn];

/// Stages, tiles of both kinds and their edges, rows that are copied in chunks and others.
#[needs::cuda]
#[test]
fn products_at_the_edges_of_stages_and_tiles_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS16, SOURCES, edges);
    assert_same_in(Order::BLOCKS8, SOURCES, edges);
}

pub fn edges(bench: &Bench) {
    let ks = [0, 1, 8, 15, 16, 17, 31, 32, 33, 64, 72, 96, 200];
    for (index, (k, orientation)) in ks.into_iter().flat_map(|k| ORIENTATIONS.map(|o| (k, o))).enumerate() {
        let sizes = [[64, 64, k], [65, 8, k], [8, 136, k]][index % 3];
        let write = [Write::Assign, Write::Accumulate][index / 3 % 2];
        let narrow = [Dtype::Bf16, Dtype::F16][index / 2 % 2];
        let types = [narrow, narrow, [SINGLE, narrow][index % 2]];
        let gaps = [[0; 3], [8, 16, 0], [0, 1, 3]][index / 3 % 3];
        let has_bias = index % 2 == 0;
        let product = Product { types, gaps, has_bias, write, ..Product::of(orientation, sizes) };
        product.compare(bench, index as u64);
    }
    for (index, orientation) in ORIENTATIONS.into_iter().enumerate() {
        for sizes in [[129, 136, 40], [200, 257, 100], [256, 256, 16]] {
            let write = [Write::Accumulate, Write::Assign][index % 2];
            let types = [[Dtype::F16, Dtype::F16, SINGLE], [SINGLE, Dtype::Bf16, SINGLE], [Dtype::Bf16; 3]][index];
            let product =
                Product { orientation, sizes, types, gaps: [0; 3], has_bias: true, write, values: Values::Wild };
            product.compare(bench, index as u64);
        }
    }
}

/// Sums over tokens are cut into pieces; those of other products are not.
#[needs::cuda]
#[test]
fn pieces_of_long_sums_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS16, SOURCES, pieces);
    assert_same_in(Order::BLOCKS8, SOURCES, pieces);
}

pub fn pieces(bench: &Bench) {
    for (index, orientation) in ORIENTATIONS.into_iter().chain([Orientation::Tn; 3]).enumerate() {
        let steps = [PIECE + 40, PIECE + 40, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 33][index];
        let write = [Write::Accumulate, Write::Assign][index % 2];
        let types = [Dtype::Bf16, Dtype::Bf16, [Dtype::Bf16, SINGLE][index / 2 % 2]];
        let product = Product { types, write, has_bias: index == 4, ..Product::of(orientation, [16, 9, steps]) };
        product.compare(bench, index as u64);
    }
    // With tiles of 128.
    for write in [Write::Assign, Write::Accumulate] {
        let types = [Dtype::F16, Dtype::F16, Dtype::Bf16];
        Product { types, write, ..Product::of(Orientation::Tn, [129, 129, PIECE + 8]) }.compare(bench, 7);
    }
}

#[needs::cuda]
#[test]
fn factors_at_the_end_of_memory_are_read_to_their_end() {
    assert_same_in(Order::BLOCKS16, SOURCES, ends);
}

pub fn ends(bench: &Bench) {
    let cases = (0..4).flat_map(|last| [[3, 5, 17], [129, 193, 5], [24, 16, 40]].map(|sizes| (last, sizes)));
    for (orientation, (last, sizes)) in ORIENTATIONS.into_iter().flat_map(|o| cases.clone().map(move |case| (o, case)))
    {
        for types in [[Dtype::Bf16; 3], [SINGLE, Dtype::F16, SINGLE], [Dtype::F16, SINGLE, Dtype::F16]] {
            let product =
                Product { types, has_bias: true, write: Write::Accumulate, ..Product::of(orientation, sizes) };
            product.compare_in(bench, Case::with_last(7, last, ARENA_BYTES));
        }
    }
}

#[needs::cuda]
#[test]
fn factors_of_two_narrow_types_or_of_none_are_refused_in_the_words_of_the_cpu() {
    let code = crate::operations::bench::code(SOURCES);
    let bench = Bench::in_order(Order::BLOCKS16, &code, softgpu::Checks::default());
    let mut case = Case::new(0);
    let types = [SINGLE, Dtype::Bf16, Dtype::F16, Dtype::I32];
    let [single, bf16, f16, ints] = types.map(|dtype| case.place(4, 4, 0, dtype));
    for (a, b, out, expected) in [
        (single, single, single, "must have one narrow type to be multiplied in blocks"),
        (bf16, f16, single, "must have one narrow type to be multiplied in blocks"),
        (ints, bf16, single, "holds no real numbers"),
        (bf16, bf16, ints, "holds no real numbers"),
    ] {
        let op = Op::MatMul { orientation: Orientation::Nt, a, b, bias: None, out, write: Write::Assign };
        let error = bench.refusal(&case, &op);
        assert!(error.contains(expected), "{op:?}: {error}");
    }
}
