//! Tensors that an operation does not take are refused before anything is launched.

use device::{Dtype, Op, Orientation, Tensor, Write};

use crate::operations::bench::{ARENA_BYTES, Bench};
use crate::operations::case::{Case, Values};

/// Refused by both devices, in the same words.
#[needs::cuda]
#[test]
fn tensors_of_other_types_and_places_are_refused_in_the_words_of_the_cpu() {
    let bench = Bench::of(&["element_wise", "mat_mul", "column_sum"]);
    let mut case = Case::new(0);
    let x = case.reals(4, 4, 0, Values::Plain);
    let out = case.reals(4, 4, 0, Values::Plain);
    let apart = Tensor { row_stride: 5, rows: 2, ..out };
    let outside = Tensor { offset_bytes: ARENA_BYTES - 32, ..x };
    let ids = Tensor { dtype: Dtype::I32, ..x };
    let longs = Tensor { dtype: Dtype::I64, rows: 2, ..x };
    let mat_mul = |a, b, bias, out| Op::MatMul { orientation: Orientation::Nt, a, b, bias, out, write: Write::Assign };
    for (op, expected) in [
        (Op::Accumulate { x: outside, into: out }, "needs bytes up to"),
        (Op::Accumulate { x, into: outside }, "needs bytes up to"),
        (Op::Accumulate { x: ids, into: out }, "is not F32"),
        (Op::Accumulate { x, into: longs }, "is not a dense I64 tensor"),
        (Op::Fill { out: ids, value: 1.0 }, "holds no real numbers"),
        (Op::Fill { out: Tensor { row_stride: 5, ..longs }, value: 1.0 }, "is not a dense I64 tensor"),
        (Op::Copy { from: longs, to: x }, "is not a dense I64 tensor"),
        (Op::Copy { from: x, to: longs }, "holds no real numbers"),
        (Op::ColumnSum { x, out: apart }, "is not a dense F32 tensor"),
        (Op::ColumnSum { x, out: Tensor::new(ARENA_BYTES, 1, 4, Dtype::F32) }, "needs bytes up to"),
        (mat_mul(x, outside, None, out), "needs bytes up to"),
        (mat_mul(x, x, Some(apart), out), "is not a dense F32 tensor"),
    ] {
        let error = bench.refusal(&case, &op);
        assert!(error.contains(expected), "{op:?}: {error}");
    }
}

/// The CPU asserts these.
#[needs::cuda]
#[test]
fn shapes_that_do_not_fit_are_refused_with_the_tensors() {
    let bench = Bench::of(&["mat_mul", "column_sum"]);
    let mut case = Case::new(0);
    let [x, y] = [[3, 4], [5, 6]].map(|[rows, cols]| case.reals(rows, cols, 0, Values::Plain));
    let product = Op::MatMul { orientation: Orientation::Nt, a: x, b: y, bias: None, out: x, write: Write::Assign };
    for (op, expected) in [
        (product, "mat_mul: Nt of F32[3, 4] @0 and F32[5, 6] @128: K is 4 in a and 6 in b"),
        (Op::ColumnSum { x, out: y }, "column_sum: F32[5, 6] @128 has not one sum for each column of F32[3, 4] @0"),
    ] {
        assert_eq!(bench.failure(&case, &op), expected);
    }
}
