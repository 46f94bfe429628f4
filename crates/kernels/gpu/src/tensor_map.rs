//! Tensor maps: a tensor in a GPU's memory, and the boxes of it that one instruction copies.

use crate::DevicePointer;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorElement {
    /// 8 bits.
    U8,
    /// 16 bits.
    U16,
    /// 32 bits.
    U32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    Bf16,
    /// Single precision.
    F32,
}

impl TensorElement {
    /// All of them.
    pub const ALL: [TensorElement; 6] = [
        TensorElement::U8,
        TensorElement::U16,
        TensorElement::U32,
        TensorElement::F16,
        TensorElement::Bf16,
        TensorElement::F32,
    ];

    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            TensorElement::U8 => 1,
            TensorElement::U16 | TensorElement::F16 | TensorElement::Bf16 => 2,
            TensorElement::U32 | TensorElement::F32 => 4,
        }
    }
}

/// The order of 16-byte chunks within rows of a box in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorSwizzle {
    /// In order.
    None,
    /// Exchanged within 32 bytes.
    Bytes32,
    /// Exchanged within 64 bytes.
    Bytes64,
    /// Exchanged within 128 bytes.
    Bytes128,
}

impl TensorSwizzle {
    /// All of them.
    pub const ALL: [TensorSwizzle; 4] =
        [TensorSwizzle::None, TensorSwizzle::Bytes32, TensorSwizzle::Bytes64, TensorSwizzle::Bytes128];

    /// Bytes within which chunks are exchanged; `None` where they are not.
    pub fn span(self) -> Option<u64> {
        match self {
            TensorSwizzle::None => None,
            TensorSwizzle::Bytes32 => Some(32),
            TensorSwizzle::Bytes64 => Some(64),
            TensorSwizzle::Bytes128 => Some(128),
        }
    }
}

/// Bytes that the level-2 cache reads at least. They change no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorPromotion {
    /// As many as are asked for.
    None,
    /// 64.
    Bytes64,
    /// 128.
    Bytes128,
    /// 256.
    Bytes256,
}

impl TensorPromotion {
    /// All of them.
    pub const ALL: [TensorPromotion; 4] =
        [TensorPromotion::None, TensorPromotion::Bytes64, TensorPromotion::Bytes128, TensorPromotion::Bytes256];
}

/// A tensor, and the box of it that one instruction copies. Dims begin with the innermost one, whose elements are next
/// to each other. Elements of a box that are outside of the tensor read as zeros and are not written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorTiles {
    /// The type of elements.
    pub element: TensorElement,
    /// The first element.
    pub address: DevicePointer,
    /// Elements along each dim: 1 to 5 dims.
    pub dims: Vec<u64>,
    /// Bytes between neighbours along each dim but the innermost one.
    pub strides_bytes: Vec<u64>,
    /// Elements of a box along each dim.
    pub box_dims: Vec<u32>,
    /// The order of chunks in shared memory.
    pub swizzle: TensorSwizzle,
    /// The reads of the level-2 cache.
    pub promotion: TensorPromotion,
}

/// The most dims of a tensor.
pub const MAX_TENSOR_DIMS: usize = 5;
/// Elements along a dim are at most this many.
const MAX_DIM: u64 = 1 << 32;
/// Strides have fewer bytes.
const MAX_STRIDE: u64 = 1 << 40;
/// Elements of a box along a dim are at most this many.
const MAX_BOX: u32 = 256;
/// The alignment of addresses, strides and rows of a box.
const ALIGNMENT: u64 = 16;

impl TensorTiles {
    /// Checks the rules of NVIDIA's driver for tensor maps.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let rank = self.dims.len();
        if rank == 0 || rank > MAX_TENSOR_DIMS {
            return Err(format!("a tensor must have 1 to {MAX_TENSOR_DIMS} dims; got {rank}"));
        }
        let (strides, boxes) = (self.strides_bytes.len(), self.box_dims.len());
        if strides + 1 != rank || boxes != rank {
            return Err(format!(
                "{rank} dims must have {} strides and {rank} box dims; got {strides} and {boxes}",
                rank - 1
            ));
        }
        if !self.address.0.is_multiple_of(ALIGNMENT) {
            return Err(format!("the address {:#x} must be a multiple of {ALIGNMENT}", self.address.0));
        }
        if let Some(dim) = self.dims.iter().position(|dim| *dim == 0 || *dim > MAX_DIM) {
            return Err(format!("dim {dim} must have 1 to 2^32 elements; got {}", self.dims[dim]));
        }
        let is_wrong = |stride: &u64| !stride.is_multiple_of(ALIGNMENT) || *stride >= MAX_STRIDE;
        if let Some(dim) = self.strides_bytes.iter().position(is_wrong) {
            let stride = self.strides_bytes[dim];
            return Err(format!("the stride of dim {} must be a multiple of 16 below 2^40; got {stride}", dim + 1));
        }
        if let Some(dim) = self.box_dims.iter().position(|dim| *dim == 0 || *dim > MAX_BOX) {
            return Err(format!("dim {dim} of a box must have 1 to {MAX_BOX} elements; got {}", self.box_dims[dim]));
        }
        let row = u64::from(self.box_dims[0]) * self.element.bytes();
        if !row.is_multiple_of(ALIGNMENT) {
            return Err(format!("a row of a box must be a multiple of {ALIGNMENT} bytes; got {row}"));
        }
        match self.swizzle.span() {
            Some(span) if row > span => {
                Err(format!("a row of a box with a swizzle of {span} bytes must have at most {span} bytes; got {row}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Bytes of a box in shared memory.
    pub fn box_bytes(&self) -> u64 {
        self.box_dims.iter().map(|dim| u64::from(*dim)).product::<u64>() * self.element.bytes()
    }
}

/// A tensor map as the driver encodes it: the value of a kernel's parameter of 128 bytes, aligned to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    bytes: [u8; TensorMap::BYTES],
}

impl TensorMap {
    /// Bytes of a tensor map.
    pub const BYTES: usize = 128;

    /// A map that a driver has encoded.
    pub fn from_bytes(bytes: [u8; TensorMap::BYTES]) -> TensorMap {
        TensorMap { bytes }
    }

    /// The bytes, for an argument.
    pub fn bytes(&self) -> &[u8; TensorMap::BYTES] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles() -> TensorTiles {
        TensorTiles {
            element: TensorElement::Bf16,
            address: DevicePointer(0x1000),
            dims: vec![100, 7],
            strides_bytes: vec![208],
            box_dims: vec![64, 128],
            swizzle: TensorSwizzle::Bytes128,
            promotion: TensorPromotion::None,
        }
    }

    #[test]
    fn every_rule_is_named() {
        assert_eq!((tiles().check(), tiles().box_bytes()), (Ok(()), 16384));
        type Change = fn(&mut TensorTiles);
        let changes: [(Change, &str); 9] = [
            (|tiles| tiles.dims.clear(), "a tensor must have 1 to 5 dims; got 0"),
            (|tiles| tiles.dims.push(1), "3 dims must have 2 strides and 3 box dims; got 1 and 2"),
            (|tiles| tiles.address.0 += 8, "the address 0x1008 must be a multiple of 16"),
            (|tiles| tiles.dims[1] = 0, "dim 1 must have 1 to 2^32 elements; got 0"),
            (|tiles| tiles.strides_bytes[0] = 200, "the stride of dim 1 must be a multiple of 16 below 2^40; got 200"),
            (|tiles| tiles.strides_bytes[0] = 1 << 40, "must be a multiple of 16 below 2^40; got 1099511627776"),
            (|tiles| tiles.box_dims[1] = 257, "dim 1 of a box must have 1 to 256 elements; got 257"),
            (|tiles| tiles.box_dims[0] = 12, "a row of a box must be a multiple of 16 bytes; got 24"),
            (|tiles| tiles.swizzle = TensorSwizzle::Bytes64, "of 64 bytes must have at most 64 bytes; got 128"),
        ];
        for (change, expected) in changes {
            let mut changed = tiles();
            change(&mut changed);
            let text = changed.check().expect_err(expected);
            assert!(text.contains(expected), "{text}");
        }
    }
}
