use config::Activation;
use device::Op;

use crate::bench::{Bench, assert_same};
use crate::case::{Case, STORED, Values};

const ALL: [Activation; 6] = [
    Activation::GeluTanh,
    Activation::GeluErf,
    Activation::GeluSigmoid,
    Activation::Relu,
    Activation::SwiGlu,
    Activation::GeGlu,
];

#[test]
fn activations_and_their_gradients_have_the_bits_of_the_cpu() {
    assert_same(&["activation"], activations);
}

pub fn activations(bench: &Bench) {
    let typed = STORED.into_iter().flat_map(|stored| ALL.map(|activation| (stored, activation)));
    for (index, (stored, activation)) in typed.enumerate() {
        for ([rows, cols], values) in [([1, 1], Values::Plain), ([7, 33], Values::Wild), ([40, 128], Values::Wild)] {
            let mut case = Case::new(index as u64).storing(stored);
            let inputs = activation.inputs_per_output() * cols;
            let x = case.stored(rows, inputs, index % 3, values);
            let y = case.stored(rows, cols, index % 4, Values::Plain);
            bench.compare(&case, &Op::Activation { activation, x, y });
            let dy = case.stored(rows, cols, index % 2, values);
            let dx = case.stored(rows, inputs, index % 5, Values::Plain);
            bench.compare(&case, &Op::ActivationBackward { activation, x, dy, dx, y });
        }
    }
}
