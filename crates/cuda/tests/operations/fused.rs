//! Products with an activation, in every order of products.

use config::Activation;
use device::{Dtype, Op, Orientation};
use proptest::prelude::*;

use crate::activation::ALL;
use crate::any_shape::any_stored;
use crate::bench::{Bench, Order, assert_same, assert_same_in};
use crate::case::{Case, Values};
use crate::mat_mul::values;

/// With what the kernels of warpgroups do not take.
const IN_BLOCKS: &[&str] = &["mat_mul_wgmma", "mat_mul_blocks", "activation"];

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
    proptest::sample::select(ALL.to_vec())
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

#[test]
fn products_in_chains_with_an_activation_have_the_bits_of_the_cpu() {
    assert_same(&["mat_mul", "activation"], |bench| in_order(bench, any_stored(), 1, 48));
}

fn narrow() -> impl Strategy<Value = Dtype> {
    proptest::sample::select(vec![Dtype::Bf16, Dtype::F16])
}

#[test]
fn products_in_blocks_with_an_activation_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS8, IN_BLOCKS, |bench| in_order(bench, narrow(), 1, 24));
    assert_same_in(Order::BLOCKS16, IN_BLOCKS, |bench| in_order(bench, narrow(), 1, 24));
}

/// Rows of 16 bytes are copied in boxes.
#[test]
fn products_by_warpgroups_with_an_activation_have_the_bits_of_the_cpu() {
    assert_same_in(Order::BLOCKS16_OF_90, IN_BLOCKS, |bench| in_order(bench, narrow(), 8, 24));
}
