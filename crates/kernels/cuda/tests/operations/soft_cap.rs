use device::Op;

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, Values};

const SHAPES: [[usize; 2]; 5] = [[1, 1], [3, 70], [100, 3], [1, 5000], [17, 256]];

#[needs::cuda]
#[test]
fn soft_caps_and_their_gradients_have_the_bits_of_the_cpu() {
    assert_same(&["soft_cap"], soft_caps);
}

pub fn soft_caps(bench: &Bench) {
    for (index, [rows, cols]) in SHAPES.into_iter().enumerate() {
        // Rows are without gaps, not aligned, and aligned, or those of one tensor alone are.
        for gaps in [[0, 0], [3, 3], [16, 16], [16, 3], [5, 16]] {
            for (values, cap) in [(Values::Plain, 0.7), (Values::Wild, 30.0), (Values::Wild, 1e-3)] {
                let mut case = Case::new(index as u64);
                let x = case.reals(rows, cols, gaps[0], values);
                bench.compare(&case, &Op::SoftCap { x, cap });
                let gradient = case.reals(rows, cols, gaps[1], values);
                bench.compare(&case, &Op::SoftCapBackward { y: x, cap, gradient });
            }
        }
    }
}

/// The CPU asserts it.
#[needs::cuda]
#[test]
fn a_gradient_of_another_shape_is_refused_with_the_tensors() {
    let bench = Bench::of(&["soft_cap"]);
    let mut case = Case::new(0);
    let [y, gradient] = [[3, 4], [4, 3]].map(|[rows, cols]| case.reals(rows, cols, 0, Values::Plain));
    let error = bench.failure(&case, &Op::SoftCapBackward { y, cap: 1.0, gradient });
    assert_eq!(error, "soft_cap_backward: F32[3, 4] @0 is not of the shape of F32[4, 3] @128");
}
