//! A rank that hashes what each of its operations has written.

use std::sync::{Arc, Mutex};

use device::{Device, DeviceError, Dtype, Op, Tensor};
use sync::lock;
use testkit::intercepted::intercept_ops;
use train::RankEngine;
use xxhash_rust::xxh3::Xxh3Default;

/// The operations of a run in their order, with hashes of what they wrote.
pub type Hashes = Vec<(String, u64)>;

/// The only rank of a run, whose operations add their hashes to `hashes`.
pub fn hashed(rank: RankEngine, hashes: &Arc<Mutex<Hashes>>) -> RankEngine {
    let hashes = Arc::clone(hashes);
    intercept_ops(rank, move |device, stream, op| {
        device.submit(stream, op)?;
        let mut hash = Xxh3Default::new();
        for (dtype, mut elements) in defined_elements(device, op)? {
            unify_nans(dtype, &mut elements);
            hash.update(&elements);
        }
        lock(&hashes).push((op.name().into(), hash.digest()));
        Ok(())
    })
}

/// The elements that an operation has defined on a device, one tensor after the other, with their types.
///
/// # Errors
/// The device's.
pub fn defined_elements(device: &dyn Device, op: &Op) -> Result<Vec<(Dtype, Vec<u8>)>, DeviceError> {
    defined(op).into_iter().map(|tensor| Ok((tensor.dtype, elements(device, tensor)?))).collect()
}

/// The elements of a tensor: those between rows are not its own.
fn elements(device: &dyn Device, tensor: Tensor) -> Result<Vec<u8>, DeviceError> {
    if tensor.is_empty() {
        return Ok(vec![]);
    }
    let width = tensor.dtype.size_bytes();
    let span = Tensor::new(tensor.offset_bytes, 1, tensor.span_bytes() / width, tensor.dtype);
    let mut bytes = vec![0; span.size_bytes()];
    device.read(span, &mut bytes)?;
    let row = |row: usize| &bytes[row * tensor.row_stride * width..][..tensor.cols * width];
    Ok((0..tensor.rows).flat_map(row).copied().collect())
}

/// Makes one NaN of all: of a NaN only that it is one is promised.
pub fn unify_nans(dtype: Dtype, bytes: &mut [u8]) {
    // The bits of infinity; a magnitude above is a NaN.
    let of_half = |infinity: u16, bytes: &mut [u8]| {
        for half in bytes.as_chunks_mut::<2>().0 {
            if u16::from_le_bytes(*half) & 0x7fff > infinity {
                *half = 0x7fff_u16.to_le_bytes();
            }
        }
    };
    match dtype {
        Dtype::F32 => {
            for word in bytes.as_chunks_mut::<4>().0 {
                if f32::from_le_bytes(*word).is_nan() {
                    *word = f32::NAN.to_le_bytes();
                }
            }
        }
        Dtype::Bf16 => of_half(0x7f80, bytes),
        Dtype::F16 => of_half(0x7c00, bytes),
        Dtype::I32 | Dtype::I64 => {}
    }
}

/// The tensors that an operation defines. Of sums that become single only the first half of their place is used.
fn defined(op: &Op) -> Vec<Tensor> {
    if let Op::RoundedToSingle { sums, .. } = op {
        return vec![Tensor::new(sums.offset_bytes, 1, sums.len(), Dtype::F32)];
    }
    if let Op::AttentionBackward { gradients, .. } = op {
        return vec![gradients.dq, gradients.dk, gradients.dv];
    }
    if let Op::MatMulActivationBackward { dx, y, .. } = *op {
        return vec![dx, y];
    }
    op.operands().writes().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unified<const N: usize>(dtype: Dtype, bits: [u32; N]) -> [u32; N] {
        let width = dtype.size_bytes();
        let mut bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()[..width].to_vec()).collect();
        unify_nans(dtype, &mut bytes);
        std::array::from_fn(|index| {
            let mut word = [0; 4];
            word[..width].copy_from_slice(&bytes[index * width..][..width]);
            u32::from_le_bytes(word)
        })
    }

    #[test]
    fn payloads_and_signs_of_nans_are_not_compared_and_other_bits_are() {
        let nan = f32::NAN.to_bits();
        let single = [0x7f80_0001, 0xffff_ffff, 0x7f80_0000, 0xff80_0000, 0x8000_0000, 0x0000_0001];
        assert_eq!(unified(Dtype::F32, single), [nan, nan, single[2], single[3], single[4], single[5]]);
        assert_eq!(
            unified(Dtype::Bf16, [0x7f81, 0xffff, 0x7f80, 0xff80, 0x8000]),
            [0x7fff, 0x7fff, 0x7f80, 0xff80, 0x8000]
        );
        assert_eq!(
            unified(Dtype::F16, [0x7c01, 0xfe00, 0x7c00, 0xfbff, 0x8000]),
            [0x7fff, 0x7fff, 0x7c00, 0xfbff, 0x8000]
        );
        assert_eq!(unified(Dtype::I32, [u32::MAX]), [u32::MAX]);
    }
}
