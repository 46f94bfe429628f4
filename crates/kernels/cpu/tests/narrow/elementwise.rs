//! Norms, activations, dropout, embeddings, rotations, sums over rows, the optimizer's copy.

use config::{Activation, Norm, NormKind, Pairing, RotaryScaling};
use device::{AdamWUpdate, Direction, DropoutKey, NormBackward, Op, Write};

use crate::narrow::machine::assert_rounded_once;

/// Rows with a last block that is not whole.
const SHAPE: (usize, usize) = (35, 77);
const NORMS: [NormKind; 3] = [NormKind::Layer, NormKind::Rms, NormKind::RmsPlusOne];
const WRITES: [Write; 2] = [Write::Assign, Write::Accumulate];

#[test]
fn norms_are_rounded_once() {
    let (rows, cols) = SHAPE;
    for (kind, write) in NORMS.into_iter().flat_map(|kind| WRITES.map(|write| (kind, write))) {
        assert_rounded_once(&format!("{kind:?} {write:?}"), |machine| {
            let norm = Norm { kind, epsilon: 1e-5 };
            let [x, y, dy, dx] = [0; 4].map(|_| machine.stored(rows, cols));
            let [weight, bias] = [0; 2].map(|_| machine.stored(1, cols));
            let [dweight, dbias] = [0; 2].map(|_| machine.single(1, cols));
            let stats = machine.single(rows, 2);
            machine.submit(Op::Norm { norm, x, weight, bias: Some(bias), y, stats });
            let tensors = NormBackward { norm, x, weight, stats, dy, dx };
            machine.submit(Op::NormBackwardInput { tensors, write });
            machine.submit(Op::NormBackwardWeight { norm, x, stats, dy, dweight, dbias: Some(dbias) });
            vec![y, stats, dx, dweight, dbias]
        });
    }
}

#[test]
fn activations_are_rounded_once() {
    let (rows, cols) = SHAPE;
    for activation in Activation::ALL {
        assert_rounded_once(&format!("{activation:?}"), |machine| {
            let width = cols * activation.inputs_per_output();
            let [x, dx] = [0; 2].map(|_| machine.stored(rows, width));
            let [y, dy, again] = [0; 3].map(|_| machine.stored(rows, cols));
            machine.submit(Op::Activation { activation, x, y });
            machine.submit(Op::ActivationBackward { activation, x, dy, dx, y: again });
            vec![y, dx, again]
        });
    }
}

#[test]
fn dropout_is_rounded_once() {
    let (rows, cols) = SHAPE;
    let key = DropoutKey { seed: 3, step: 1, site: 4, first_token: 15, first_channel: 6, probability: 0.3 };
    for dropout in [None, Some(key)] {
        assert_rounded_once(&format!("{dropout:?}"), |machine| {
            let [x, residual, out, in_place, dx] = [0; 5].map(|_| machine.stored(rows, cols));
            let (bias, residual) = (Some(machine.stored(1, cols)), Some(residual));
            machine.submit(Op::DropoutAdd { x, bias, residual, residual_scale: 1.0, dropout, out });
            machine.submit(Op::DropoutAdd { x: in_place, bias, residual, residual_scale: 1.0, dropout, out: in_place });
            machine.submit(Op::DropoutBackward { dy: x, dropout: key, dx });
            vec![out, in_place, dx]
        });
    }
}

#[test]
fn embeddings_are_rounded_once() {
    for write in WRITES {
        assert_rounded_once(&format!("{write:?}"), |machine| {
            let tokens = machine.ints(1, &[3, 9, 4, 4, 0, 12, 7]);
            let (table, out, dy) = (machine.stored(6, 45), machine.stored(7, 45), machine.stored(7, 45));
            let dtable = machine.single(6, 45);
            machine.submit(Op::EmbeddingLookup { tokens, table, first_row: 3, out, write });
            machine.submit(Op::EmbeddingBackward { tokens, dy, scale: 0.1, first_row: 3, untrained: None, dtable });
            vec![out, dtable]
        });
    }
}

#[test]
fn rotations_are_rounded_once() {
    for pairing in [Pairing::Half, Pairing::Interleaved] {
        for direction in [Direction::Forward, Direction::Backward] {
            assert_rounded_once(&format!("{pairing:?} {direction:?}"), |machine| {
                let (cos, sin) = (machine.single(9, 19), machine.single(9, 19));
                machine.submit(Op::RotaryTable { cos, sin, base: 100.0, scaling: RotaryScaling::Off });
                let (x, positions) = (machine.stored(4, 3 * 40), machine.ints(1, &[8, 0, 3, 5]));
                machine.submit(Op::Rotary { x, head_dim: 40, positions, cos, sin, pairing, direction });
                vec![x]
            });
        }
    }
}

#[test]
fn sums_over_rows_are_single() {
    let (rows, cols) = SHAPE;
    assert_rounded_once("column sum", |machine| {
        let (x, out) = (machine.stored(rows, cols), machine.single(1, cols));
        machine.submit(Op::ColumnSum { x, out });
        vec![out]
    });
}

#[test]
fn weights_are_drawn_and_filled_rounded() {
    assert_rounded_once("initial weights", |machine| {
        let (out, filled) = (machine.stored(7, 21), machine.stored(2, 5));
        let (first_row, first_col, global_cols) = (3, 2, 30);
        machine.submit(Op::InitializeNormal {
            out,
            seed: 5,
            parameter: 8,
            std: 0.02,
            first_row,
            first_col,
            global_cols,
        });
        machine.submit(Op::Fill { out: filled, value: 0.1 });
        vec![out, filled]
    });
}

/// In single precision the copy is one of the same type: layers then read the updated weights themselves.
#[test]
fn the_optimizer_leaves_a_rounded_copy() {
    let update =
        AdamWUpdate { learning_rate: 1e-2, weight_decay: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, update: 3 };
    assert_rounded_once("AdamW", |machine| {
        let [param, grad, first_moment] = [0; 3].map(|_| machine.single(1, 83));
        let second_moment = machine.put(1, 83, device::Dtype::F32, &[0.01; 83]);
        let coefficient = machine.put(1, 4, device::Dtype::F32, &[0.5; 4]);
        let copy = machine.stored(1, 83);
        let op = Op::AdamW { param, copy: Some(copy), grad, first_moment, second_moment, coefficient, update };
        machine.submit(op);
        vec![param, copy, first_moment, second_moment]
    });
}
