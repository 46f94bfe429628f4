//! Products by warpgroups of compute capability 9.0 that multiply in turns.

use cpu::gemm::PIECE;
use device::{Dtype, Orientation, Write};

use crate::operations::bench::{Bench, Order, assert_same_in};
use crate::operations::case::Values;
use crate::operations::mat_mul_blocks::{ORIENTATIONS, Product, SINGLE};
use crate::operations::mat_mul_wgmma;

/// The second one has what the first one does not take: factors that cannot be copied in boxes.
const SOURCES: &[&str] = &["mat_mul_wgmma_turns", "mat_mul_wgmma", "mat_mul_blocks"];

#[needs::cuda]
#[test]
fn products_in_turns_have_the_bits_of_the_cpu() {
    assert_same_in(Order::IN_TURNS, SOURCES, mat_mul_wgmma::products);
    assert_same_in(Order::IN_TURNS_OF_ONE, SOURCES, mat_mul_wgmma::products);
}

#[needs::cuda]
#[test]
fn products_in_turns_at_the_edges_of_tiles_have_the_bits_of_the_cpu() {
    assert_same_in(Order::IN_TURNS, SOURCES, mat_mul_wgmma::edges);
    assert_same_in(Order::IN_TURNS, SOURCES, mat_mul_wgmma::ends);
    assert_same_in(Order::IN_TURNS_OF_ONE, SOURCES, mat_mul_wgmma::single_sums);
}

/// An even and an odd number of tiles of a block, sums of one stage, of the ring, and of more than two rings, in which
/// the parity of a stage's barrier is that of two turns before.
#[needs::cuda]
#[test]
fn tiles_in_turns_have_the_bits_of_the_cpu() {
    assert_same_in(Order::IN_TURNS_OF_ONE, SOURCES, tiles);
}

pub fn tiles(bench: &Bench) {
    let sizes = [[256, 128, 64], [128, 384, 384], [264, 128, 840], [136, 136, 24], [128, 128, 1000]];
    for (index, (orientation, sizes)) in
        ORIENTATIONS.into_iter().flat_map(|o| sizes.map(|sizes| (o, sizes))).enumerate()
    {
        let narrow = [Dtype::Bf16, Dtype::F16][index % 2];
        let types = [narrow, narrow, [narrow, SINGLE][index / 2 % 2]];
        let write = [Write::Assign, Write::Accumulate][index % 2];
        let values = [Values::Plain, Values::Wild][index / 3 % 2];
        let product = Product { types, write, values, has_bias: index % 3 == 0, ..Product::of(orientation, sizes) };
        product.compare(bench, index as u64);
    }
}

/// Pieces of a pair of tiles come in turns; a tile without another one passes the turns of the other.
#[needs::cuda]
#[test]
fn pieces_in_turns_have_the_bits_of_the_cpu() {
    assert_same_in(Order::IN_TURNS_OF_ONE, SOURCES, pieces);
}

pub fn pieces(bench: &Bench) {
    for (index, sizes) in [[8, 8, 2 * PIECE + 8], [16, 136, PIECE + 64], [16, 264, PIECE + 8]].into_iter().enumerate() {
        let types = [Dtype::Bf16, Dtype::Bf16, SINGLE];
        let write = [Write::Assign, Write::Accumulate][index % 2];
        let product = Product { types, write, has_bias: index != 1, ..Product::of(Orientation::Tn, sizes) };
        product.compare(bench, index as u64);
    }
}
