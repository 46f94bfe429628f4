//! Matrix products with narrow operands.

use device::{Dtype, Op, Orientation, Tensor, Write};

use crate::narrow::machine::{Machine, assert_rounded_once};

const ORIENTATIONS: [Orientation; 3] = [Orientation::Nt, Orientation::Nn, Orientation::Tn];

fn operands(machine: &mut Machine, orientation: Orientation, (m, n, k): (usize, usize, usize)) -> (Tensor, Tensor) {
    match orientation {
        Orientation::Nt => (machine.stored(m, k), machine.stored(n, k)),
        Orientation::Nn => (machine.stored(m, k), machine.stored(k, n)),
        Orientation::Tn => (machine.stored(k, m), machine.stored(k, n)),
    }
}

/// Sizes of edge tiles, of two blocks of K, and of two blocks of a rounded result each way.
#[test]
fn a_product_is_rounded_once() {
    for orientation in ORIENTATIONS {
        for sizes in [(1, 1, 1), (37, 65, 300), (19, 130, 0), (60, 70, 513)] {
            assert_rounded_once(&format!("{orientation:?} {sizes:?}"), |machine| {
                let (a, b) = operands(machine, orientation, sizes);
                let (bias, out) = (machine.stored(1, sizes.1), machine.stored(sizes.0, sizes.1));
                machine.submit(Op::MatMul { orientation, a, b, bias: Some(bias), out, write: Write::Assign });
                vec![out]
            });
        }
    }
    for orientation in ORIENTATIONS {
        assert_rounded_once(&format!("{orientation:?} in blocks"), |machine| {
            let (a, b) = operands(machine, orientation, (1100, 900, 3));
            let out = machine.stored(1100, 900);
            machine.submit(Op::MatMul { orientation, a, b, bias: None, out, write: Write::Accumulate });
            vec![out]
        });
    }
}

/// A weight's gradient, and the head's products with logits in single precision.
#[test]
fn types_of_a_product_are_independent() {
    for orientation in ORIENTATIONS {
        assert_rounded_once(&format!("{orientation:?} into single precision"), |machine| {
            let (a, b) = operands(machine, orientation, (33, 50, 270));
            let out = machine.single(33, 50);
            machine.submit(Op::MatMul { orientation, a, b, bias: None, out, write: Write::Accumulate });
            vec![out]
        });
    }
    assert_rounded_once("single times stored", |machine| {
        let (a, b, out) = (machine.single(20, 90), machine.stored(90, 40), machine.stored(20, 40));
        machine.submit(Op::MatMul { orientation: Orientation::Nn, a, b, bias: None, out, write: Write::Assign });
        vec![out]
    });
    assert_rounded_once("a few rows in place", |machine| {
        let (a, b, out) = (machine.single(5, 90), machine.stored(5, 40), machine.single(90, 40));
        machine.submit(Op::MatMul { orientation: Orientation::Tn, a, b, bias: None, out, write: Write::Assign });
        assert_eq!(out.dtype, Dtype::F32);
        vec![out]
    });
}
