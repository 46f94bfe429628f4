//! The order of 16-byte chunks in shared memory, which copies of boxes and products share.

use gpu::TensorSwizzle;

/// Bytes of a chunk.
pub const CHUNK: usize = 16;
/// Rows of a pattern.
const ROWS: usize = 8;
/// The bits of an address from which a chunk's place is changed begin here.
const FROM_BIT: usize = 7;
/// The bits that are changed begin here.
const TO_BIT: usize = 4;

/// Bytes of a row of the pattern; a chunk without one.
pub fn row_bytes(swizzle: TensorSwizzle) -> usize {
    swizzle.span().map_or(CHUNK, |span| span as usize)
}

/// Bytes after which the pattern repeats; its first byte is at a multiple of them.
pub fn pattern_bytes(swizzle: TensorSwizzle) -> usize {
    row_bytes(swizzle) * ROWS
}

/// The place of the byte at `address`: the number of a chunk in its row is changed by bits 7 and up of the address.
pub fn placed(swizzle: TensorSwizzle, address: usize) -> usize {
    let chunks = row_bytes(swizzle) / CHUNK;
    address ^ ((address >> FROM_BIT) & (chunks - 1)) << TO_BIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_change_places_within_their_row() {
        let order = |swizzle: TensorSwizzle, row: usize| -> Vec<usize> {
            let bytes = row_bytes(swizzle);
            (0..bytes / CHUNK).map(|chunk| placed(swizzle, row * bytes + chunk * CHUNK) % bytes / CHUNK).collect()
        };
        assert_eq!(order(TensorSwizzle::None, 5), [0]);
        // Rows of 32 bytes: the halves change in the second 128 bytes.
        let halves: Vec<usize> = (0..8).map(|row| order(TensorSwizzle::Bytes32, row)[0]).collect();
        assert_eq!(halves, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(order(TensorSwizzle::Bytes64, 2), [1, 0, 3, 2]);
        assert_eq!(order(TensorSwizzle::Bytes64, 7), [3, 2, 1, 0]);
        assert_eq!(order(TensorSwizzle::Bytes128, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(order(TensorSwizzle::Bytes128, 3), [3, 2, 1, 0, 7, 6, 5, 4]);
        assert_eq!(order(TensorSwizzle::Bytes128, 7), [7, 6, 5, 4, 3, 2, 1, 0]);
        let patterns = TensorSwizzle::ALL.map(pattern_bytes);
        assert_eq!(patterns, [128, 256, 512, 1024]);
    }
}
