//! Numbers of operands, and those that tensors hold.

use device::{Bf16, Dtype, Element as _, F16};

/// A number from -2 to 2.
pub fn number(seed: usize, index: usize) -> f32 {
    let mixed = ((seed * 7919 + index) as u32).wrapping_mul(0x9e37_79b1);
    ((mixed ^ mixed >> 13).wrapping_mul(0x85eb_ca6b) >> 8) as f32 / (1 << 22) as f32 - 2.0
}

/// Numbers in memory.
pub fn widened(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    let words = || bytes.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
    match dtype {
        Dtype::F32 => bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes).into()).collect(),
        Dtype::Bf16 => words().map(|word| Bf16(word).widen().into()).collect(),
        Dtype::F16 => words().map(|word| F16(word).widen().into()).collect(),
        Dtype::I32 | Dtype::I64 => panic!("real numbers"),
    }
}
