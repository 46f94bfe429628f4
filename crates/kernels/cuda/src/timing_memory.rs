//! Memory in which products are timed, apart from the memory of a run.

use std::sync::Arc;

use gpu::{BiasForm, DevicePointer, DriverError, Gpu, MatrixProduct, StreamHandle};

use crate::owned::allocate_pinned;

/// Memory of the GPU that is left free.
pub(crate) const MARGIN_BYTES: u64 = 256 << 20;

/// Bytes of random numbers that fill the matrices, again and again.
const PATTERN_BYTES: usize = 1 << 20;

/// Distance of matrices, and the largest alignment that a product knows.
const ALIGNMENT: usize = MatrixProduct::MAX_ALIGNMENT as usize;

/// Where a product's a, b, d and bias are, as bytes after a multiple of [`ALIGNMENT`], and the first byte after them.
pub(crate) fn offsets(product: &MatrixProduct) -> ([usize; 4], usize) {
    let [a, b, d] = product.shapes();
    let bias = match product.bias {
        BiasForm::Absent => [0, 0],
        BiasForm::Present => [1, product.sizes[1]],
    };
    let [a_stride, b_stride, d_stride] = product.strides;
    let elements = [product.factors, product.factors, product.result, product.result];
    let matrices = [(a, a_stride), (b, b_stride), (d, d_stride), (bias, 0)];
    let (mut offsets, mut next) = ([0; 4], 0);
    for (index, (([rows, cols], stride), element)) in matrices.into_iter().zip(elements).enumerate() {
        // No multiple of more than the product's alignment.
        offsets[index] = next + product.alignments[index] as usize % ALIGNMENT;
        let elements = rows.saturating_sub(1) * stride + cols;
        next = (offsets[index] + elements as usize * element.bytes()).next_multiple_of(ALIGNMENT);
    }
    (offsets, next)
}

/// Fills memory with random numbers from 2^-7 to 2 in every type: products of zeros need less power and are faster.
pub(crate) fn fill_with_random(
    gpu: &Arc<dyn Gpu>,
    stream: StreamHandle,
    start: DevicePointer,
    bytes: usize,
) -> Result<(), DriverError> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bits = (state >> 32) as u16;
        (bits & 0x83ff | 0x3c00).to_le_bytes()
    };
    let first = PATTERN_BYTES.min(bytes);
    let pattern: Vec<u8> = std::iter::repeat_with(word).take(first.div_ceil(2)).flatten().collect();
    let pinned = allocate_pinned(gpu, pattern.len())?;
    gpu.write_pinned(pinned.handle(), 0, &pattern)?;
    gpu.upload(stream, start, pinned.handle(), 0, first)?;
    let mut filled = first;
    while filled < bytes {
        let more = filled.min(bytes - filled);
        gpu.copy(stream, start.offset(filled), start, more)?;
        filled += more;
    }
    gpu.synchronize(stream)
}
