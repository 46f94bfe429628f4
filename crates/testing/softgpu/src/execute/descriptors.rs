//! Matrices in shared memory that products of warpgroups name by descriptors (PTX ISA, shared memory matrix layout).
//!
//! A matrix has an outer dim, that of the result, and K. Eight elements of 16 bits that are next to each other are a
//! chunk; 8 rows of chunks, by the swizzle 1, 2, 4 or 8 chunks long, are a pattern.

use std::ops::Range;

use gpu::TensorSwizzle;

use super::swizzle::{CHUNK, pattern_bytes, placed, row_bytes};
use crate::code::Major;

/// Steps of a product.
pub const DEPTH: usize = 16;
/// Elements of a chunk.
const ELEMENTS: usize = 8;
/// Rows of a pattern.
const ROWS: usize = 8;

/// A matrix in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    start: usize,
    leading: usize,
    stride: usize,
    swizzle: TensorSwizzle,
    major: Major,
}

impl Matrix {
    /// Reads a descriptor, for `outer` elements along the outer dim.
    ///
    /// # Errors
    /// A rule that does not hold.
    pub fn new(descriptor: u64, major: Major, outer: usize) -> Result<Matrix, String> {
        let field = |from: u32| ((descriptor >> from & 0x3fff) as usize) << 4;
        let swizzle = match descriptor >> 62 {
            0 => TensorSwizzle::None,
            1 => TensorSwizzle::Bytes128,
            2 => TensorSwizzle::Bytes64,
            _ => TensorSwizzle::Bytes32,
        };
        let base_offset = descriptor >> 49 & 7;
        if base_offset != 0 {
            return Err(format!("the base offset of a matrix descriptor must be 0 on this GPU; got {base_offset}"));
        }
        let matrix = Matrix { start: field(0), leading: field(16), stride: field(32), swizzle, major };
        if swizzle != TensorSwizzle::None {
            matrix.check_patterns(outer)?;
        }
        Ok(matrix)
    }

    /// Patterns must begin where the addresses have them begin.
    fn check_patterns(&self, outer: usize) -> Result<(), String> {
        let (row, pattern) = (row_bytes(self.swizzle), pattern_bytes(self.swizzle));
        let within = self.start % pattern;
        let (along, needs_leading) = match self.major {
            Major::K => (DEPTH * 2, false),
            Major::Outer => ((outer * 2).min(row), outer * 2 > row),
        };
        if within + along > row {
            return Err(format!(
                "a matrix with a {row}-byte swizzle begins at {:#x}: its patterns must begin at multiples of \
                 {pattern}, and its {along} bytes must be within a row of {row}",
                self.start
            ));
        }
        let needs_stride = self.major == Major::Outer || outer > ROWS;
        if needs_stride && !self.stride.is_multiple_of(pattern) {
            let stride = self.stride;
            return Err(format!(
                "the stride of a matrix with a {row}-byte swizzle must be a multiple of {pattern} bytes; got {stride}"
            ));
        }
        if needs_leading && !self.leading.is_multiple_of(pattern) {
            let leading = self.leading;
            return Err(format!(
                "the leading offset of a matrix with a {row}-byte swizzle must be a multiple of {pattern} bytes; got {leading}"
            ));
        }
        Ok(())
    }

    /// The place of the chunk that has element (`outer`, `k`).
    fn chunk(&self, outer: usize, k: usize) -> usize {
        let row = row_bytes(self.swizzle);
        let offset = match (self.major, self.swizzle) {
            (Major::K, TensorSwizzle::None) => {
                outer % ROWS * row + outer / ROWS * self.stride + k / ELEMENTS * self.leading
            }
            (Major::K, _) => outer % ROWS * row + outer / ROWS * self.stride + k / ELEMENTS * CHUNK,
            (Major::Outer, TensorSwizzle::None) => {
                outer / ELEMENTS * self.stride + k % ROWS * row + k / ROWS * self.leading
            }
            (Major::Outer, _) => {
                let in_row = outer * 2 % row / CHUNK * CHUNK;
                outer * 2 / row * self.leading + k / ROWS * self.stride + k % ROWS * row + in_row
            }
        };
        placed(self.swizzle, self.start + offset)
    }

    /// Reads elements `[outer][k]` for a range of the outer dim, a multiple of 8, by a function that reads a chunk.
    ///
    /// # Errors
    /// The errors of the function.
    pub fn read<E>(
        &self,
        outer: Range<usize>,
        mut chunk: impl FnMut(usize) -> Result<[u16; ELEMENTS], E>,
    ) -> Result<Vec<[u16; DEPTH]>, E> {
        let mut all = vec![[0; DEPTH]; outer.len()];
        match self.major {
            Major::K => {
                for (index, row) in all.iter_mut().enumerate() {
                    for k in (0..DEPTH).step_by(ELEMENTS) {
                        row[k..k + ELEMENTS].copy_from_slice(&chunk(self.chunk(outer.start + index, k))?);
                    }
                }
            }
            Major::Outer => {
                for first in (0..outer.len()).step_by(ELEMENTS) {
                    for k in 0..DEPTH {
                        let elements = chunk(self.chunk(outer.start + first, k))?;
                        all[first..].iter_mut().zip(elements).for_each(|(row, element)| row[k] = element);
                    }
                }
            }
        }
        Ok(all)
    }

    /// The bytes that hold a range of the outer dim: whole patterns.
    pub fn ranges(&self, outer: Range<usize>) -> Vec<Range<usize>> {
        let mut starts: Vec<usize> = Vec::new();
        let pattern = pattern_bytes(self.swizzle);
        for index in outer.step_by(ELEMENTS) {
            for k in (0..DEPTH).step_by(ELEMENTS) {
                let place = self.chunk(index, k);
                // Without a swizzle, 8 rows of a chunk are next to each other, at any multiple of 16.
                starts.push(if self.swizzle == TensorSwizzle::None { place } else { place / pattern * pattern });
            }
        }
        starts.sort_unstable();
        starts.dedup();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for start in starts {
            match ranges.last_mut() {
                Some(last) if last.end >= start => last.end = last.end.max(start + pattern),
                _ => ranges.push(start..start + pattern),
            }
        }
        ranges
    }
}
