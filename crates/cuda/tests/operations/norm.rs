use config::{Norm, NormKind};
use device::{NormBackward, Op, Tensor, Write};

use crate::bench::{Bench, assert_same};
use crate::case::{Case, Values};

/// Around lanes, teams of a warp and chunks of 1024.
const WIDTHS: [usize; 11] = [1, 2, 15, 16, 17, 100, 255, 1023, 1024, 1025, 2500];

/// Matrices `[rows, heads * width]` of one case after the other.
fn for_each_shape(mut body: impl FnMut(u64, [usize; 3], Norm, Values)) {
    let mut index = 0;
    for width in WIDTHS {
        for (rows, heads) in [(1, 1), (5, 1), (3, 4)] {
            for kind in [NormKind::Layer, NormKind::Rms] {
                let values = if index % 3 == 2 { Values::Wild } else { Values::Plain };
                body(index, [rows, heads, width], Norm { kind, epsilon: 1e-5 }, values);
                index += 1;
            }
        }
    }
}

fn vector(case: &mut Case, len: usize, values: Values) -> Tensor {
    case.vector(len, values)
}

#[test]
fn norms_have_the_bits_of_the_cpu() {
    assert_same(&["norm"], norms);
}

pub fn norms(bench: &Bench) {
    for_each_shape(|index, [rows, heads, width], norm, values| {
        let mut case = Case::new(index);
        let x = case.reals(rows, heads * width, (index % 4) as usize, values);
        let weight = vector(&mut case, width, values);
        let bias = (index % 2 == 0).then(|| vector(&mut case, width, values));
        let y = case.reals(rows, heads * width, (index % 3) as usize, Values::Plain);
        let stats = case.reals(rows * heads, 2, 0, Values::Plain);
        bench.compare(&case, &Op::Norm { norm, x, weight, bias, y, stats });
    });
}

#[test]
fn gradients_of_norms_inputs_have_the_bits_of_the_cpu() {
    assert_same(&["norm"], input_gradients);
}

pub fn input_gradients(bench: &Bench) {
    for_each_shape(|index, [rows, heads, width], norm, values| {
        let mut case = Case::new(index);
        let cols = heads * width;
        let tensors = NormBackward {
            norm,
            x: case.reals(rows, cols, (index % 4) as usize, values),
            weight: vector(&mut case, width, values),
            stats: case.reals(rows * heads, 2, 0, values),
            dy: case.reals(rows, cols, (index % 3) as usize, values),
            dx: case.reals(rows, cols, (index % 5) as usize, values),
        };
        let write = if index % 2 == 0 { Write::Assign } else { Write::Accumulate };
        bench.compare(&case, &Op::NormBackwardInput { tensors, write });
    });
}

#[test]
fn gradients_of_norms_weights_have_the_bits_of_the_cpu() {
    assert_same(&["norm"], weight_gradients);
}

pub fn weight_gradients(bench: &Bench) {
    let norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 };
    let shapes = [[1, 1, 1], [31, 1, 33], [32, 2, 32], [33, 3, 31], [70, 1, 100], [1030, 1, 40], [2100, 1, 3]];
    for (index, [rows, heads, width]) in shapes.into_iter().enumerate() {
        for values in [Values::Plain, Values::Wild] {
            let mut case = Case::new(index as u64);
            let x = case.reals(rows, heads * width, index % 4, values);
            let stats = case.reals(rows * heads, 2, 0, values);
            let dy = case.reals(rows, heads * width, index % 3, values);
            let dweight = vector(&mut case, width, values);
            let dbias = (index % 2 == 0).then(|| vector(&mut case, width, values));
            bench.compare(&case, &Op::NormBackwardWeight { norm, x, stats, dy, dweight, dbias });
        }
    }
}
