//! Operands of products: matrices of any type of real numbers.

use device::{Bf16, Dtype, F16};

use super::Orientation;
use super::blocks::Source;
use crate::view::MatRef;

/// A matrix to multiply; narrow ones are widened while they are packed.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// Of `f32`.
    F32(MatRef<'a>),
    /// Of bf16.
    Bf16(MatRef<'a, Bf16>),
    /// Of fp16.
    F16(MatRef<'a, F16>),
}

impl<'a> From<MatRef<'a>> for Operand<'a> {
    fn from(matrix: MatRef<'a>) -> Self {
        Operand::F32(matrix)
    }
}

impl<'a> From<MatRef<'a, Bf16>> for Operand<'a> {
    fn from(matrix: MatRef<'a, Bf16>) -> Self {
        Operand::Bf16(matrix)
    }
}

impl<'a> From<MatRef<'a, F16>> for Operand<'a> {
    fn from(matrix: MatRef<'a, F16>) -> Self {
        Operand::F16(matrix)
    }
}

impl Operand<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Operand::F32(matrix) => matrix.rows(),
            Operand::Bf16(matrix) => matrix.rows(),
            Operand::F16(matrix) => matrix.rows(),
        }
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        match self {
            Operand::F32(matrix) => matrix.cols(),
            Operand::Bf16(matrix) => matrix.cols(),
            Operand::F16(matrix) => matrix.cols(),
        }
    }

    /// The block of `rows` rows from `row` and `cols` columns from `col`.
    pub fn block(&self, row: usize, rows: usize, col: usize, cols: usize) -> Self {
        match self {
            Operand::F32(matrix) => Operand::F32(matrix.block(row, rows, col, cols)),
            Operand::Bf16(matrix) => Operand::Bf16(matrix.block(row, rows, col, cols)),
            Operand::F16(matrix) => Operand::F16(matrix.block(row, rows, col, cols)),
        }
    }

    pub(super) fn source(&self) -> Source {
        match self {
            Operand::F32(m) => Source { start: m.as_ptr().cast(), dtype: Dtype::F32, stride: m.row_stride() },
            Operand::Bf16(m) => Source { start: m.as_ptr().cast(), dtype: Dtype::Bf16, stride: m.row_stride() },
            Operand::F16(m) => Source { start: m.as_ptr().cast(), dtype: Dtype::F16, stride: m.row_stride() },
        }
    }
}

/// Two matrices to multiply.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// Which of the two is read transposed.
    pub orientation: Orientation,
    /// The left operand.
    pub a: Operand<'a>,
    /// The right operand.
    pub b: Operand<'a>,
}

impl<'a> Product<'a> {
    /// (M, N, K). Panics if the operands' K differ.
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        sizes(self.orientation, [self.a, self.b].map(|operand| (operand.rows(), operand.cols())))
    }

    /// The product of which `rows` rows from `row` and `cols` columns from `col` of this one are all.
    pub fn block(&self, row: usize, rows: usize, col: usize, cols: usize) -> Self {
        let (_, _, k) = self.sizes();
        let (a, b) = match self.orientation {
            Orientation::Nt => (self.a.block(row, rows, 0, k), self.b.block(col, cols, 0, k)),
            Orientation::Nn => (self.a.block(row, rows, 0, k), self.b.block(0, k, col, cols)),
            Orientation::Tn => (self.a.block(0, k, row, rows), self.b.block(0, k, col, cols)),
        };
        Self { a, b, ..*self }
    }
}

/// (M, N, K) of the product of operands of these rows and columns. Panics if their K differ.
pub(crate) fn sizes(orientation: Orientation, [a, b]: [(usize, usize); 2]) -> (usize, usize, usize) {
    let (m, n, k, k_of_b) = match orientation {
        Orientation::Nt => (a.0, b.0, a.1, b.1),
        Orientation::Nn => (a.0, b.1, a.1, b.0),
        Orientation::Tn => (a.1, b.1, a.0, b.0),
    };
    assert!(k == k_of_b, "{orientation:?}: K is {k} in a and {k_of_b} in b");
    (m, n, k)
}
