//! A tensor is a place in a rank's arena: a byte offset, rows, columns and the distance between rows.

use std::fmt;
use std::ops::Range;

use config::{Format, GradientSums};

/// Element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// The upper half of an F32: its range, 8 bits of precision. A type of storage, see [`crate::element`].
    Bf16,
    /// IEEE half precision: 11 bits of precision up to 65504. A type of storage as well.
    F16,
    /// Token ids, labels, positions and mask intervals.
    I32,
    /// Integer sums: of the norm, of the loss, of gradients.
    I64,
}

impl Dtype {
    /// Bytes of one element.
    pub fn size_bytes(self) -> usize {
        match self {
            Dtype::Bf16 | Dtype::F16 => 2,
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::I64 => 8,
        }
    }
}

impl From<Format> for Dtype {
    fn from(format: Format) -> Dtype {
        match format {
            Format::Fp32 => Dtype::F32,
            Format::Bf16 => Dtype::Bf16,
            Format::Fp16 => Dtype::F16,
        }
    }
}

impl From<GradientSums> for Dtype {
    fn from(sums: GradientSums) -> Dtype {
        match sums {
            GradientSums::Single => Dtype::F32,
            GradientSums::Exact => Dtype::I64,
        }
    }
}

/// A matrix `[rows, cols]` in the arena of one rank; vectors have one row. Copying it copies the place, not the values.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// First byte in the arena.
    pub offset_bytes: usize,
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Elements from the start of one row to the start of the next; at least `cols`.
    pub row_stride: usize,
    /// Element type.
    pub dtype: Dtype,
}

impl Tensor {
    /// A dense `[rows, cols]` at `offset_bytes`.
    pub fn new(offset_bytes: usize, rows: usize, cols: usize, dtype: Dtype) -> Tensor {
        Tensor { offset_bytes, rows, cols, row_stride: cols, dtype }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.rows * self.cols
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether rows follow each other without a gap.
    pub fn is_dense(&self) -> bool {
        self.row_stride == self.cols || self.rows <= 1
    }

    /// Bytes from the first element to after the last.
    pub fn span_bytes(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        ((self.rows - 1) * self.row_stride + self.cols) * self.dtype.size_bytes()
    }

    /// Bytes of the elements, without gaps between rows.
    pub fn size_bytes(&self) -> usize {
        self.len() * self.dtype.size_bytes()
    }

    /// The place in the arena: from the first byte to after the last.
    pub fn bytes(&self) -> Range<usize> {
        self.offset_bytes..self.offset_bytes + self.span_bytes()
    }

    /// Rows `range` of this matrix.
    pub fn rows_of(&self, range: Range<usize>) -> Tensor {
        assert!(range.end <= self.rows, "rows {range:?} of {self:?}");
        let skipped_bytes = range.start * self.row_stride * self.dtype.size_bytes();
        Tensor { offset_bytes: self.offset_bytes + skipped_bytes, rows: range.len(), ..*self }
    }

    /// Columns `range` of this matrix: rows keep their distance.
    pub fn cols_of(&self, range: Range<usize>) -> Tensor {
        assert!(range.end <= self.cols, "columns {range:?} of {self:?}");
        let skipped_bytes = range.start * self.dtype.size_bytes();
        Tensor { offset_bytes: self.offset_bytes + skipped_bytes, cols: range.len(), ..*self }
    }

    /// Elements `range` of a dense tensor, as a vector.
    pub fn elements(&self, range: Range<usize>) -> Tensor {
        assert!(self.is_dense() && range.end <= self.len(), "elements {range:?} of {self:?}");
        Tensor::new(self.offset_bytes + range.start * self.dtype.size_bytes(), 1, range.len(), self.dtype)
    }

    /// The same elements of four bytes each as numbers in single precision. Operations that move them, copies and
    /// gathers, keep their bits.
    pub fn in_words(self) -> Tensor {
        assert!(self.dtype.size_bytes() == Dtype::F32.size_bytes(), "{self:?} has no elements of four bytes");
        Tensor { dtype: Dtype::F32, ..self }
    }

    /// The same dense elements as `[rows, cols]`.
    pub fn reshaped(&self, rows: usize, cols: usize) -> Tensor {
        assert!(self.is_dense() && rows * cols == self.len(), "[{rows}, {cols}] of {self:?}");
        Tensor::new(self.offset_bytes, rows, cols, self.dtype)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}[{}, {}]", self.dtype, self.rows, self.cols)?;
        if !self.is_dense() {
            write!(f, " stride {}", self.row_stride)?;
        }
        write!(f, " @{}", self.offset_bytes)
    }
}
