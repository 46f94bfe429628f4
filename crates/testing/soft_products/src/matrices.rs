//! Matrices of a product as ranges of memory.

use device::{Bf16, Element as _, F16};
use gpu::{DevicePointer, MatrixElement};

/// A matrix by rows in the memory of a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub place: DevicePointer,
    pub element: MatrixElement,
    pub rows: usize,
    pub cols: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl Matrix {
    /// The ranges of memory that it has: one where there are no gaps, or else one of each row.
    pub fn ranges(&self) -> Vec<(DevicePointer, usize)> {
        let Matrix { place, element, rows, cols, stride } = *self;
        let size = element.bytes();
        if rows * cols == 0 {
            vec![]
        } else if rows == 1 || stride == cols {
            vec![(place, rows * cols * size)]
        } else {
            (0..rows).map(|row| (place.offset(row * stride * size), cols * size)).collect()
        }
    }

    /// The bytes of all elements, cut into those of each range.
    pub fn cut(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut rest = bytes;
        let ranges = self.ranges();
        ranges
            .into_iter()
            .map(|(_, count)| {
                let (range, after) = rest.split_at(count);
                rest = after;
                range.to_vec()
            })
            .collect()
    }
}

/// Numbers of single precision from their bytes in a type.
pub(crate) fn widened(element: MatrixElement, bytes: &[u8]) -> Vec<f32> {
    match element {
        MatrixElement::F32 => bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        MatrixElement::Bf16 => words(bytes).map(|word| Bf16(word).widen()).collect(),
        MatrixElement::F16 => words(bytes).map(|word| F16(word).widen()).collect(),
    }
}

/// 16-bit words from their bytes.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes))
}

/// The bytes of numbers, each rounded once to a type.
pub(crate) fn rounded(element: MatrixElement, numbers: &[f32]) -> Vec<u8> {
    match element {
        MatrixElement::F32 => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        MatrixElement::Bf16 => numbers.iter().flat_map(|number| Bf16::narrow(*number).0.to_le_bytes()).collect(),
        MatrixElement::F16 => numbers.iter().flat_map(|number| F16::narrow(*number).0.to_le_bytes()).collect(),
    }
}
