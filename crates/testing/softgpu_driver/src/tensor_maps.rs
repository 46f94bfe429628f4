//! Tensor maps.

use std::ffi::{c_uint, c_void};

use gpu::{DevicePointer, Gpu, MAX_TENSOR_DIMS, TensorElement, TensorPromotion, TensorSwizzle, TensorTiles};

use crate::context::entered;
use crate::memory::enter;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, Status, code, put};

/// The alignment of a tensor map.
const ALIGNMENT: usize = 64;

fn element(number: c_uint) -> Option<TensorElement> {
    match number {
        0 => Some(TensorElement::U8),
        1 => Some(TensorElement::U16),
        2 => Some(TensorElement::U32),
        6 => Some(TensorElement::F16),
        7 => Some(TensorElement::F32),
        9 => Some(TensorElement::Bf16),
        _ => None,
    }
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut [u8; 128],
    data_type: c_uint,
    rank: c_uint,
    address: *mut c_void,
    dims: *const u64,
    strides: *const u64,
    box_dims: *const c_uint,
    element_strides: *const c_uint,
    interleave: c_uint,
    swizzle: c_uint,
    promotion: c_uint,
    fill: c_uint,
) -> Status {
    let context = enter!();
    let rank = rank as usize;
    let is_missing =
        dims.is_null() || (strides.is_null() && rank > 1) || box_dims.is_null() || element_strides.is_null();
    if is_missing || rank == 0 || rank > MAX_TENSOR_DIMS || !map.addr().is_multiple_of(ALIGNMENT) {
        return INVALID_VALUE;
    }
    let swizzle = TensorSwizzle::ALL.get(swizzle as usize);
    let promotion = TensorPromotion::ALL.get(promotion as usize);
    let (Some(element), Some(swizzle), Some(promotion)) = (element(data_type), swizzle, promotion) else {
        return NOT_SUPPORTED;
    };
    // SAFETY: the interface asks for `rank` numbers of each, and one stride less.
    let (dims, box_dims, element_strides, strides_bytes) = unsafe {
        let strides = if rank > 1 { std::slice::from_raw_parts(strides, rank - 1).to_vec() } else { vec![] };
        (
            std::slice::from_raw_parts(dims, rank).to_vec(),
            std::slice::from_raw_parts(box_dims, rank).to_vec(),
            std::slice::from_raw_parts(element_strides, rank),
            strides,
        )
    };
    if interleave != 0 || fill != 0 || element_strides.iter().any(|stride| *stride != 1) {
        return NOT_SUPPORTED;
    }
    let address = DevicePointer(address.addr() as u64);
    let tiles =
        TensorTiles { element, address, dims, strides_bytes, box_dims, swizzle: *swizzle, promotion: *promotion };
    match context.gpu.tensor_map(&tiles) {
        // SAFETY: the interface asks for a place for a map.
        Ok(encoded) => unsafe { put(map, *encoded.bytes()) },
        Err(error) => code(&error),
    }
}
