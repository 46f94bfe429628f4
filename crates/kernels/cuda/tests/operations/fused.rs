//! Products with an activation, in every order of products.

use config::Activation;
use device::{Dtype, Op, Orientation};
use proptest::prelude::*;

use crate::operations::activation::FUSED;
use crate::operations::any_shape::any_stored;
use crate::operations::bench::{Bench, Order, assert_same, assert_same_in};
use crate::operations::case::{Case, Values};
use crate::operations::mat_mul::values;

const IN_BLOCKS: &[&str] = &["mat_mul_blocks", "activation"];
/// The second one has what the first one does not take.
const BY_WARPGROUPS: &[&str] = &["mat_mul_wgmma", "mat_mul_blocks", "activation"];

#[derive(Clone, Copy, Debug)]
struct Fused {
    /// Of the forward or of the backward product.
    orientation: Orientation,
    activation: Activation,
    /// Tokens, outputs of the activation, and steps of a sum.
    sizes: [usize; 3],
    /// Elements between rows of factors and of the others.
    gaps: [usize; 4],
    has_bias: bool,
    values: Values,
    stored: Dtype,
}

impl Fused {
    fn compare(self, bench: &Bench, seed: u64) {
        let Fused { orientation, activation, sizes: [rows, cols, k], gaps, has_bias, values, stored } = self;
        let mut case = Case::new(seed).storing(stored);
        let width = cols * activation.inputs_per_output();
        let a = case.stored(rows, k, gaps[0], values);
        let op = if orientation == Orientation::Nt {
            let b = case.stored(width, k, gaps[1], values);
            let bias = has_bias.then(|| case.stored_vector(width, values));
            let x = case.stored(rows, width, gaps[2], Values::Plain);
            let y = case.stored(rows, cols, gaps[3], Values::Plain);
            Op::MatMulActivation { a, b, bias, activation, x, y }
        } else {
            let b = case.stored(k, cols, gaps[1], values);
            let [x, dx] = [values, Values::Plain].map(|values| case.stored(rows, width, gaps[2], values));
            // The slope of some functions changes there.
            case.put(x, 0, 0, &vec![0; stored.size_bytes()]);
            let [dy, y] = [2, 3].map(|gap| case.stored(rows, cols, gaps[gap], Values::Plain));
            Op::MatMulActivationBackward { a, b, activation, dy, x, dx, y }
        };
        bench.compare(&case, &op);
    }
}

fn orientations() -> impl Strategy<Value = Orientation> {
    proptest::sample::select(vec![Orientation::Nt, Orientation::Nn])
}

fn activations() -> impl Strategy<Value = Activation> {
    proptest::sample::select(FUSED.to_vec())
}

fn in_order(bench: &Bench, stored: impl Strategy<Value = Dtype>, unit: usize, cases: u32) {
    let sizes = [1usize..70, 1..70, 0..50].map(move |size| size.prop_map(move |size| size * unit));
    let gaps = [0usize..3, 0..3, 0..5, 0..5].map(move |gap| gap.prop_map(move |gap| gap * unit));
    let kinds = (orientations(), activations(), any::<bool>(), values(), stored);
    proptest!(ProptestConfig::with_cases(cases), |(kinds in kinds, sizes in sizes, gaps in gaps, seed in any::<u64>())| {
        let (orientation, activation, has_bias, values, stored) = kinds;
        Fused { orientation, activation, sizes, gaps, has_bias, values, stored }.compare(bench, seed);
    });
}

#[needs::cuda]
#[test]
fn products_in_chains_with_an_activation_have_the_bits_of_the_cpu() {
    assert_same(&["mat_mul", "activation"], |bench| in_order(bench, any_stored(), 1, 48));
}

fn narrow() -> impl Strategy<Value = Dtype> {
    proptest::sample::select(vec![Dtype::Bf16, Dtype::F16])
}

#[needs::cuda]
#[test]
fn products_in_blocks_with_an_activation_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS8, IN_BLOCKS, |bench| in_order(bench, narrow(), 1, 24));
    assert_same_in(Order::BLOCKS16, IN_BLOCKS, |bench| in_order(bench, narrow(), 1, 24));
}

/// The one kernel of both: no other is loaded.
const IN_ONE: &[&str] = &["mat_mul_wgmma_activation"];

#[needs::cuda]
#[test]
fn products_in_one_kernel_with_an_activation_have_the_bits_of_the_cpu() {
    assert_same_in(Order::FUSED, IN_ONE, one_kernel);
    assert_same_in(Order::FUSED_OF_ONE, IN_ONE, one_kernel);
}

/// The same for GPUs without warpgroups.
const IN_ONE_BY_WARPS: &[&str] = &["mat_mul_blocks_activation"];

#[needs::cuda]
#[test]
fn products_in_one_kernel_by_warps_with_an_activation_have_the_bits_of_the_cpu() {
    assert_same_in(Order::FUSED_BY_WARPS, IN_ONE_BY_WARPS, one_kernel);
    assert_same_in(Order::FUSED_BY_WARPS_OF_ONE, IN_ONE_BY_WARPS, one_kernel);
    assert_same_in(Order::FUSED_IN_BLOCKS8, IN_ONE_BY_WARPS, one_kernel);
}

/// Factors whose rows are not at multiples of 16 bytes are loaded by element.
#[needs::cuda]
#[test]
fn products_in_one_kernel_by_warps_take_factors_at_any_place() {
    let sources = ["mat_mul_blocks_activation", "mat_mul_blocks", "activation"];
    assert_same_in(Order::FUSED_BY_WARPS, &sources, |bench| in_order(bench, narrow(), 1, 12));
    assert_same_in(Order::FUSED_BY_WARPS, IN_ONE_BY_WARPS, any_factors);
    assert_same_in(Order::FUSED_BY_WARPS_OF_ONE, IN_ONE_BY_WARPS, any_factors);
    assert_same_in(Order::FUSED_IN_BLOCKS8, IN_ONE_BY_WARPS, any_factors);
}

pub fn any_factors(bench: &Bench) {
    for (orientation, gap) in [(Orientation::Nt, 3), (Orientation::Nn, 1)] {
        for (activation, stored) in [(Activation::SwiGlu, Dtype::Bf16), (Activation::GeluTanh, Dtype::F16)] {
            let (sizes, gaps) = ([70, 72, 45], [gap, gap, 8, 0]);
            let (has_bias, values) = (true, Values::Plain);
            Fused { orientation, activation, sizes, gaps, has_bias, values, stored }.compare(bench, 5);
        }
    }
}

/// All activations and both directions: tiles and pairs of them that are whole or not, bias, gaps, wild values.
pub fn one_kernel(bench: &Bench) {
    let sizes = [[264, 136, 72], [24, 200, 64], [130, 64, 456], [1, 8, 8], [256, 256, 64]];
    let all = [Orientation::Nt, Orientation::Nn].into_iter().flat_map(|o| FUSED.map(|activation| (o, activation)));
    for (index, (orientation, activation)) in all.enumerate() {
        for (number, sizes) in sizes.into_iter().enumerate() {
            // Every activation with two sizes, and each size with some of all.
            if (index + number) % 5 > 1 {
                continue;
            }
            let values = [Values::Plain, Values::Wild][(index + number) % 2];
            let stored = [Dtype::Bf16, Dtype::F16][(index / 2 + number) % 2];
            let gaps = [[0; 4], [8, 0, 16, 8]][(index + number) % 2];
            let fused = Fused { orientation, activation, sizes, gaps, has_bias: number % 2 == 0, values, stored };
            fused.compare(bench, index as u64);
        }
    }
}

/// Tensors that one kernel does not take: rows at other places, and outputs where factors are.
#[needs::cuda]
#[test]
fn products_that_no_kernel_takes_with_an_activation_have_the_bits_of_the_cpu() {
    assert_same_in(Order::FUSED, &["mat_mul_wgmma", "mat_mul_blocks", "activation"], |bench| {
        in_order(bench, narrow(), 1, 12);
        outputs_in_place_of_factors(bench);
    });
    assert_same_in(Order::FUSED_BY_WARPS, IN_BLOCKS, outputs_in_place_of_factors);
}

fn outputs_in_place_of_factors(bench: &Bench) {
    for activation in [Activation::SwiGlu, Activation::GeluErf] {
        let mut case = Case::new(3).storing(Dtype::Bf16);
        let width = 64 * activation.inputs_per_output();
        let (a, b) = (case.stored(136, 64, 0, Values::Plain), case.stored(64, 64, 0, Values::Plain));
        let [x, dx] = [0; 2].map(|gap| case.stored(136, width, gap, Values::Plain));
        let dy = case.stored(136, 64, 0, Values::Plain);
        bench.compare(&case, &Op::MatMulActivationBackward { a, b, activation, dy, x, dx, y: a });
    }
}

/// Rows of 16 bytes are copied in boxes.
#[needs::cuda]
#[test]
fn products_by_warpgroups_with_an_activation_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS16_OF_90, BY_WARPGROUPS, |bench| in_order(bench, narrow(), 8, 24));
}
