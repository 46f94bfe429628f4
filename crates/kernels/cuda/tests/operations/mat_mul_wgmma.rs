//! Products by warpgroups of compute capability 9.0.

use cpu::gemm::PIECE;
use device::{Dtype, Orientation, Write};
use proptest::prelude::*;

use crate::operations::bench::{ARENA_BYTES, Bench, Order, assert_same_in};
use crate::operations::case::{Case, Values};
use crate::operations::mat_mul::{orientations, values, writes};
use crate::operations::mat_mul_blocks::{ORIENTATIONS, Product, SINGLE, types};

/// The second one has what the first one does not take: factors that cannot be copied in boxes.
const SOURCES: &[&str] = &["mat_mul_wgmma", "mat_mul_blocks"];

#[needs::cuda]
#[test]
fn products_by_warpgroups_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS16_OF_90, SOURCES, products);
}

pub fn products(bench: &Bench) {
    // Rows of 16 bytes are copied in boxes.
    let sizes = [1usize..20, 1..40, 0..30].map(|size| size.prop_map(|size| size * 8));
    let gaps = [0usize..2, 0..2, 0..9].map(|gap| gap.prop_map(|gap| gap * 8));
    let drawn = (orientations(), sizes, types(), gaps, any::<bool>(), writes(), values(), any::<u64>());
    proptest!(ProptestConfig::with_cases(24), |(drawn in drawn)| {
        let (orientation, sizes, types, gaps, has_bias, write, values, seed) = drawn;
        Product { orientation, sizes, types, gaps, has_bias, write, values }.compare(bench, seed);
    });
}

/// Stages, turns of the ring, tiles of each kind and their edges, outputs whose rows begin anywhere.
#[needs::cuda]
#[test]
fn products_by_warpgroups_at_the_edges_of_tiles_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS16_OF_90, SOURCES, edges);
}

pub fn edges(bench: &Bench) {
    let sizes = [
        [64, 48, 640],
        [136, 64, 8],
        [248, 248, 136],
        [250, 72, 64],
        [520, 520, 72],
        [250, 512, 72],
        // The last tile of a row has some of its columns.
        [72, 320, 64],
        [1, 8, 8],
    ];
    for (index, (orientation, sizes)) in
        ORIENTATIONS.into_iter().flat_map(|o| sizes.map(|sizes| (o, sizes))).enumerate()
    {
        let narrow = [Dtype::Bf16, Dtype::F16][index % 2];
        let types = [narrow, narrow, [narrow, SINGLE, Dtype::F16][index % 3]];
        let write = [Write::Assign, Write::Accumulate][index / 2 % 2];
        let gaps = [[0; 3], [8, 0, 1], [0, 16, 2]][index % 3];
        let values = [Values::Plain, Values::Wild][index / 3 % 2];
        let product =
            Product { types, gaps, write, values, has_bias: index % 2 == 0, ..Product::of(orientation, sizes) };
        product.compare(bench, index as u64);
    }
}

/// In registers, and through an output that holds the sums as they are.
#[needs::cuda]
#[test]
fn pieces_of_long_sums_by_warpgroups_have_the_bits_of_the_cpu() {
    // With small tiles, and with large ones, one after the other.
    assert_same_in(Order::BLOCKS16_OF_90, SOURCES, pieces);
    assert_same_in(Order::BLOCKS16_OF_ONE_90, SOURCES, pieces);
}

pub fn pieces(bench: &Bench) {
    for (index, [m, n, k]) in [[8, 8, 2 * PIECE + 8], [16, 136, PIECE + 64], [16, 200, PIECE + 8], [16, 192, PIECE + 8]]
        .into_iter()
        .enumerate()
    {
        for (write, out) in [(Write::Assign, SINGLE), (Write::Accumulate, SINGLE), (Write::Accumulate, Dtype::Bf16)] {
            let types = [Dtype::Bf16, Dtype::Bf16, out];
            let product = Product { types, write, has_bias: index != 1, ..Product::of(Orientation::Tn, [m, n, k]) };
            product.compare(bench, index as u64);
        }
    }
}

/// Outputs of single precision that hold whole chunks of rows and are added to, with each kind of tile.
#[needs::cuda]
#[test]
fn sums_of_single_precision_by_warpgroups_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS16_OF_ONE_90, SOURCES, single_sums);
}

pub fn single_sums(bench: &Bench) {
    let sizes = [
        (Orientation::Nt, [32, 64, 64]),
        (Orientation::Nn, [32, 128, 64]),
        (Orientation::Tn, [32, 160, 64]),
        (Orientation::Nt, [32, 192, 72]),
        (Orientation::Nn, [32, 256, 64]),
        // The last parts of a tile's rows are not there.
        (Orientation::Nt, [32, 32, 64]),
        (Orientation::Tn, [32, 224, 64]),
        (Orientation::Tn, [16, 96, PIECE + 8]),
    ];
    for (index, (orientation, sizes)) in sizes.into_iter().enumerate() {
        let types = [Dtype::Bf16, Dtype::Bf16, SINGLE];
        let (write, has_bias) = (Write::Accumulate, index % 2 == 0);
        Product { types, write, has_bias, ..Product::of(orientation, sizes) }.compare(bench, index as u64);
    }
}

#[needs::cuda]
#[test]
fn factors_of_warpgroups_at_the_end_of_memory_are_read_to_their_end() {
    assert_same_in(Order::BLOCKS16_OF_90, SOURCES, ends);
}

pub fn ends(bench: &Bench) {
    for (orientation, last) in
        ORIENTATIONS.into_iter().flat_map(|orientation| (0..4).map(move |last| (orientation, last)))
    {
        for sizes in [[24, 16, 40], [136, 264, 72]] {
            let write = Write::Accumulate;
            let product = Product { has_bias: true, write, ..Product::of(orientation, sizes) };
            product.compare_in(bench, Case::with_last(7, last, ARENA_BYTES));
        }
    }
}
