use config::{Norm, NormKind};
use device::{Dtype, NormBackward, Op, Write};

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, STORED, Values};

/// Around lanes, teams of a warp and chunks of 1024.
const WIDTHS: [usize; 11] = [1, 2, 15, 16, 17, 100, 255, 1023, 1024, 1025, 2500];

/// Multiples of 64, around chunks of 1,024 and the teams of a block: rows of bf16 and fp16 values that are read once,
/// and after them a row that is too long.
const WHOLE_WIDTHS: [usize; 8] = [64, 192, 768, 1024, 1088, 2688, 8192, 8256];

/// A case: matrices `[rows, heads * width]`, and elements between rows of three matrices.
struct Shape {
    index: usize,
    sizes: [usize; 3],
    gaps: [usize; 3],
    norm: Norm,
    values: Values,
}

/// One case after the other.
fn for_each_shape(mut body: impl FnMut(Case, Shape)) {
    let mut index = 0;
    for stored in [Dtype::Bf16, Dtype::F16] {
        for width in WHOLE_WIDTHS {
            for (rows, heads) in [(5, 1), (3, 2)] {
                for kind in [NormKind::Layer, NormKind::Rms, NormKind::RmsPlusOne] {
                    let values = if index % 3 == 2 { Values::Wild } else { Values::Plain };
                    let case = Case::new(index as u64).storing(stored);
                    // Rows are aligned, but for one matrix in some cases.
                    let gaps = [[0, 8, 0], [8, 0, 16], [0; 3], [0, 0, 1]][index % 4];
                    let norm = Norm { kind, epsilon: 1e-5 };
                    body(case, Shape { index, sizes: [rows, heads, width], gaps, norm, values });
                    index += 1;
                }
            }
        }
    }
    for stored in STORED {
        for width in WIDTHS {
            for (rows, heads) in [(1, 1), (5, 1), (3, 4)] {
                for kind in [NormKind::Layer, NormKind::Rms, NormKind::RmsPlusOne] {
                    let values = if index % 3 == 2 { Values::Wild } else { Values::Plain };
                    let case = Case::new(index as u64).storing(stored);
                    let gaps = [index % 4, index % 3, index % 5];
                    let norm = Norm { kind, epsilon: 1e-5 };
                    body(case, Shape { index, sizes: [rows, heads, width], gaps, norm, values });
                    index += 1;
                }
            }
        }
    }
}

#[needs::cuda]
#[test]
fn norms_have_the_bits_of_the_cpu() {
    assert_same(&["norm"], norms);
}

pub fn norms(bench: &Bench) {
    for_each_shape(|mut case, Shape { index, sizes: [rows, heads, width], gaps, norm, values }| {
        let x = case.stored(rows, heads * width, gaps[0], values);
        let weight = case.stored_vector(width, values);
        let bias = (index % 2 == 0).then(|| case.stored_vector(width, values));
        let y = case.stored(rows, heads * width, gaps[1], Values::Plain);
        let stats = case.reals(rows * heads, 2, 0, Values::Plain);
        bench.compare(&case, &Op::Norm { norm, x, weight, bias, y, stats });
    });
}

#[needs::cuda]
#[test]
fn gradients_of_norms_inputs_have_the_bits_of_the_cpu() {
    assert_same(&["norm"], input_gradients);
}

pub fn input_gradients(bench: &Bench) {
    for_each_shape(|mut case, Shape { index, sizes: [rows, heads, width], gaps, norm, values }| {
        let cols = heads * width;
        let tensors = NormBackward {
            norm,
            x: case.stored(rows, cols, gaps[0], values),
            weight: case.stored_vector(width, values),
            stats: case.reals(rows * heads, 2, 0, values),
            dy: case.stored(rows, cols, gaps[1], values),
            dx: case.stored(rows, cols, gaps[2], values),
        };
        let write = if index % 2 == 0 { Write::Assign } else { Write::Accumulate };
        bench.compare(&case, &Op::NormBackwardInput { tensors, write });
    });
}

#[needs::cuda]
#[test]
fn gradients_of_norms_weights_have_the_bits_of_the_cpu() {
    assert_same(&["norm"], weight_gradients);
}

pub fn weight_gradients(bench: &Bench) {
    let norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 };
    let shapes = [[1, 1, 1], [31, 1, 33], [32, 2, 32], [33, 3, 31], [70, 1, 100], [1030, 1, 40], [4200, 1, 3]];
    let any = shapes.map(|shape| (shape, [1, 2]));
    // Rows of whole vectors of 16 bytes, aligned in both matrices, or in all but one.
    let vectors = [
        ([33, 3, 24], [0, 8]),
        ([70, 1, 104], [8, 0]),
        ([1030, 1, 40], [0, 0]),
        ([2100, 2, 16], [16, 0]),
        ([40, 1, 64], [0, 3]),
        ([40, 1, 64], [3, 0]),
    ];
    let typed = STORED.into_iter().flat_map(|stored| any.into_iter().chain(vectors).map(move |shape| (stored, shape)));
    for (index, (stored, ([rows, heads, width], gaps))) in typed.enumerate() {
        for values in [Values::Plain, Values::Wild] {
            let mut case = Case::new(index as u64).storing(stored);
            let x = case.stored(rows, heads * width, gaps[0], values);
            let stats = case.reals(rows * heads, 2, 0, values);
            let dy = case.stored(rows, heads * width, gaps[1], values);
            let dweight = case.vector(width, values);
            let dbias = (index % 2 == 0).then(|| case.vector(width, values));
            bench.compare(&case, &Op::NormBackwardWeight { norm, x, stats, dy, dweight, dbias });
        }
    }
}
