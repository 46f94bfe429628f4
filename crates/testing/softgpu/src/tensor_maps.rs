//! Tensor maps as this GPU encodes them in 128 bytes.

use gpu::{DevicePointer, MAX_TENSOR_DIMS, TensorElement, TensorMap, TensorPromotion, TensorSwizzle, TensorTiles};

/// The first bytes of a map.
const MAGIC: [u8; 8] = *b"softTMAP";
/// Places of the parts: kinds, address, dims, strides, box dims, and a sum of all bytes before it.
const KINDS: usize = 8;
const ADDRESS: usize = 16;
const DIMS: usize = 24;
const STRIDES: usize = 64;
const BOXES: usize = 96;
const SUM: usize = 120;

/// A number that changes with each byte.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn place<T: PartialEq>(all: &[T], wanted: &T) -> u8 {
    all.iter().position(|one| one == wanted).unwrap_or(all.len()) as u8
}

/// Encodes tiles that keep the rules.
pub fn encode(tiles: &TensorTiles) -> TensorMap {
    let mut bytes = [0; TensorMap::BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[KINDS..KINDS + 4].copy_from_slice(&[
        tiles.dims.len() as u8,
        place(&TensorElement::ALL, &tiles.element),
        place(&TensorSwizzle::ALL, &tiles.swizzle),
        place(&TensorPromotion::ALL, &tiles.promotion),
    ]);
    bytes[ADDRESS..DIMS].copy_from_slice(&tiles.address.0.to_le_bytes());
    for (dim, to) in tiles.dims.iter().zip(bytes[DIMS..STRIDES].chunks_exact_mut(8)) {
        to.copy_from_slice(&dim.to_le_bytes());
    }
    for (stride, to) in tiles.strides_bytes.iter().zip(bytes[STRIDES..BOXES].chunks_exact_mut(8)) {
        to.copy_from_slice(&stride.to_le_bytes());
    }
    for (dim, to) in tiles.box_dims.iter().zip(bytes[BOXES..SUM].chunks_exact_mut(4)) {
        to.copy_from_slice(&dim.to_le_bytes());
    }
    let sum = sum(&bytes[..SUM]);
    bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
    TensorMap::from_bytes(bytes)
}

fn words(bytes: &[u8], count: usize) -> Vec<u64> {
    let chunks = bytes.chunks_exact(8).take(count);
    chunks.map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))).collect()
}

/// The tiles of a map; `None` for bytes that [`encode`] did not write.
pub fn decode(bytes: &[u8; TensorMap::BYTES]) -> Option<TensorTiles> {
    if bytes[..8] != MAGIC || bytes[SUM..] != sum(&bytes[..SUM]).to_le_bytes() {
        return None;
    }
    let rank = usize::from(bytes[KINDS]);
    if rank == 0 || rank > MAX_TENSOR_DIMS {
        return None;
    }
    let boxes = bytes[BOXES..SUM].chunks_exact(4).take(rank);
    Some(TensorTiles {
        element: *TensorElement::ALL.get(usize::from(bytes[KINDS + 1]))?,
        swizzle: *TensorSwizzle::ALL.get(usize::from(bytes[KINDS + 2]))?,
        promotion: *TensorPromotion::ALL.get(usize::from(bytes[KINDS + 3]))?,
        address: DevicePointer(*words(&bytes[ADDRESS..DIMS], 1).first()?),
        dims: words(&bytes[DIMS..STRIDES], rank),
        strides_bytes: words(&bytes[STRIDES..BOXES], rank - 1),
        box_dims: boxes.map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_as_it_was_written_and_a_damaged_one_is_not() {
        for rank in 1..=MAX_TENSOR_DIMS {
            let tiles = TensorTiles {
                element: TensorElement::ALL[rank],
                address: DevicePointer(0x7_0000_0010),
                dims: (0..rank as u64).map(|dim| (1 << 32) - dim).collect(),
                strides_bytes: (1..rank as u64).map(|dim| dim << 32).collect(),
                box_dims: (0..rank as u32).map(|dim| 256 - dim).collect(),
                swizzle: TensorSwizzle::ALL[(rank - 1) & 3],
                promotion: TensorPromotion::ALL[rank & 3],
            };
            let map = encode(&tiles);
            assert_eq!(decode(map.bytes()), Some(tiles));
            for byte in 0..TensorMap::BYTES {
                let mut damaged = *map.bytes();
                damaged[byte] ^= 4;
                assert_eq!(decode(&damaged), None, "byte {byte}");
            }
        }
        assert_eq!(decode(&[0; TensorMap::BYTES]), None);
    }
}
