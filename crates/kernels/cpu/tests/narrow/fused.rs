//! Operations that are a product and an activation: the bits of both, one after the other.

use config::Activation;
use device::{Op, Orientation, Tensor, Write};

use crate::narrow::machine::{Machine, on_each};

const TOKENS: usize = 35;
const WIDTH: usize = 40;
const HIDDEN: usize = 77;

/// Columns of a wider matrix.
fn strided(machine: &mut Machine, rows: usize, cols: usize) -> Tensor {
    machine.stored(rows, cols + 5).cols_of(3..cols + 3)
}

#[test]
fn a_product_with_its_activation_has_the_bits_of_both() {
    for activation in Activation::ALL {
        on_each(|machine| {
            let width = HIDDEN * activation.inputs_per_output();
            let (a, b) = (strided(machine, TOKENS, WIDTH), machine.stored(width, WIDTH));
            let bias = Some(machine.stored(1, width));
            let [x, out] = [0; 2].map(|_| strided(machine, TOKENS, width));
            let [y, again] = [0; 2].map(|_| strided(machine, TOKENS, HIDDEN));
            for bias in [bias, None] {
                machine.submit(Op::MatMulActivation { a, b, bias, activation, x, y });
                machine.submit(Op::MatMul { orientation: Orientation::Nt, a, b, bias, out, write: Write::Assign });
                machine.submit(Op::Activation { activation, x: out, y: again });
                assert_eq!(machine.bits(x), machine.bits(out), "{activation:?}");
                assert_eq!(machine.bits(y), machine.bits(again), "{activation:?}");
            }
        });
    }
}

#[test]
fn a_product_with_the_gradient_of_an_activation_has_the_bits_of_both() {
    for activation in Activation::ALL {
        on_each(|machine| {
            let width = HIDDEN * activation.inputs_per_output();
            let (a, b) = (strided(machine, TOKENS, WIDTH), machine.stored(WIDTH, HIDDEN));
            let [x, dx, dx_again] = [0; 3].map(|_| strided(machine, TOKENS, width));
            let [dy, out, y, y_again] = [0; 4].map(|_| strided(machine, TOKENS, HIDDEN));
            machine.submit(Op::MatMulActivationBackward { a, b, activation, dy, x, dx, y });
            machine.submit(Op::MatMul { orientation: Orientation::Nn, a, b, bias: None, out, write: Write::Assign });
            machine.submit(Op::ActivationBackward { activation, x, dy: out, dx: dx_again, y: y_again });
            assert_eq!(machine.bits(dx), machine.bits(dx_again), "{activation:?}");
            assert_eq!(machine.bits(y), machine.bits(y_again), "{activation:?}");
        });
    }
}
