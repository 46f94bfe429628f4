use config::Activation;
use device::Op;

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, STORED, Values};

/// The functions that kernels of products end with.
pub const FUSED: [Activation; 7] = [
    Activation::GeluTanh,
    Activation::GeluErf,
    Activation::GeluSigmoid,
    Activation::Relu,
    Activation::SwiGlu,
    Activation::GeGlu,
    Activation::GeGluTanh,
];

pub const ALL: [Activation; 8] = Activation::ALL;

#[needs::cuda]
#[test]
fn activations_and_their_gradients_have_the_bits_of_the_cpu() {
    assert_same(&["activation"], activations);
}

pub fn activations(bench: &Bench) {
    let typed = STORED.into_iter().flat_map(|stored| ALL.map(|activation| (stored, activation)));
    for (index, (stored, activation)) in typed.enumerate() {
        let pad = |cols: usize| cols.next_multiple_of(8) - cols;
        let of_inputs = pad(activation.inputs_per_output() * 31);
        for ([rows, cols], gaps, values) in [
            ([1, 1], [0; 4], Values::Plain),
            ([7, 33], [index % 3, index % 4, index % 2, index % 5], Values::Wild),
            ([9, 1104], [0; 4], Values::Wild),
            // Rows begin at multiples of eight elements and end elsewhere.
            ([5, 31], [of_inputs, pad(31), pad(31) + 8, of_inputs], Values::Wild),
            // Of all tensors but one.
            ([3, 32], [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]][index % 4], Values::Wild),
        ] {
            let mut case = Case::new(index as u64).storing(stored);
            let inputs = activation.inputs_per_output() * cols;
            let x = case.stored(rows, inputs, gaps[0], values);
            let y = case.stored(rows, cols, gaps[1], Values::Plain);
            bench.compare(&case, &Op::Activation { activation, x, y });
            let dy = case.stored(rows, cols, gaps[2], values);
            let dx = case.stored(rows, inputs, gaps[3], Values::Plain);
            bench.compare(&case, &Op::ActivationBackward { activation, x, dy, dx, y });
        }
    }
}
