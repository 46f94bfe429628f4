//! Constants of the driver.

use std::ffi::c_int;

use gpu::{TensorElement, TensorPromotion, TensorSwizzle};

use super::functions::{
    CaptureMode, DeviceAttribute, FunctionAttribute, GranularityFlag, Interleave, JitOption, OutsideFill, Promotion,
    Swizzle, TensorType,
};
use super::status::{KINDS, NO_DEVICE, NOT_PERMITTED, NOT_SUPPORTED, SUCCESS};

pub(super) const MULTIPROCESSORS: DeviceAttribute = DeviceAttribute(16);
pub(super) const MAJOR: DeviceAttribute = DeviceAttribute(75);
pub(super) const MINOR: DeviceAttribute = DeviceAttribute(76);
pub(super) const MAX_SHARED: DeviceAttribute = DeviceAttribute(97);
pub(super) const VIRTUAL_MEMORY: DeviceAttribute = DeviceAttribute(102);

pub(super) const HAS_FILE_HANDLES: DeviceAttribute = DeviceAttribute(103);
pub(super) const HAS_DIRECT_ACCESS: DeviceAttribute = DeviceAttribute(110);
pub(super) const HAS_FABRIC_HANDLES: DeviceAttribute = DeviceAttribute(128);

pub(super) const MAX_THREADS: FunctionAttribute = FunctionAttribute(0);
pub(super) const SHARED_BYTES: FunctionAttribute = FunctionAttribute(1);
pub(super) const LOCAL_BYTES: FunctionAttribute = FunctionAttribute(3);
pub(super) const REGISTERS: FunctionAttribute = FunctionAttribute(4);
pub(super) const MAX_DYNAMIC_SHARED: FunctionAttribute = FunctionAttribute(8);

pub(super) const ERROR_LOG: JitOption = JitOption(5);
pub(super) const ERROR_LOG_BYTES: JitOption = JitOption(6);

/// Any thread may end the capture, and calls of other threads do not disturb it.
pub(super) const RELAXED: CaptureMode = CaptureMode(2);
pub(super) const MINIMUM: GranularityFlag = GranularityFlag(0);
pub(super) const PINNED: u32 = 1;
pub(super) const ON_DEVICE: u32 = 1;
pub(super) const READ_WRITE: u32 = 3;
/// Memory that other processes of the machine can map, by a file descriptor.
pub(super) const FILE_HANDLES: u32 = 1;
/// Memory that other machines of one NVLink fabric can map.
pub(super) const FABRIC_HANDLES: u32 = 8;
/// The stream does not wait for the default stream.
pub(super) const NON_BLOCKING: u32 = 1;
/// The priority of a stream for which none is asked.
pub(super) const USUAL_PRIORITY: c_int = 0;
/// Pinned for all contexts of the process.
pub(super) const PORTABLE: u32 = 1;

/// No interleaved layout.
pub(super) const NOT_INTERLEAVED: Interleave = Interleave(0);
/// Elements outside of a tensor are zeros.
pub(super) const ZEROS_OUTSIDE: OutsideFill = OutsideFill(0);

/// The type of a tensor map's elements.
pub(super) fn tensor_type(element: TensorElement) -> TensorType {
    TensorType(match element {
        TensorElement::U8 => 0,
        TensorElement::U16 => 1,
        TensorElement::U32 => 2,
        TensorElement::F16 => 6,
        TensorElement::F32 => 7,
        TensorElement::Bf16 => 9,
    })
}

/// The order of chunks in shared memory.
pub(super) fn swizzle(swizzle: TensorSwizzle) -> Swizzle {
    Swizzle(match swizzle {
        TensorSwizzle::None => 0,
        TensorSwizzle::Bytes32 => 1,
        TensorSwizzle::Bytes64 => 2,
        TensorSwizzle::Bytes128 => 3,
    })
}

/// The reads of the level-2 cache.
pub(super) fn promotion(promotion: TensorPromotion) -> Promotion {
    Promotion(match promotion {
        TensorPromotion::None => 0,
        TensorPromotion::Bytes64 => 1,
        TensorPromotion::Bytes128 => 2,
        TensorPromotion::Bytes256 => 3,
    })
}

/// All of them by their names in the header.
pub(super) fn all() -> Vec<(&'static str, i64)> {
    let mut all = vec![
        ("CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", MULTIPROCESSORS.0),
        ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", MAJOR.0),
        ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", MINOR.0),
        ("CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", MAX_SHARED.0),
        ("CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", VIRTUAL_MEMORY.0),
        ("CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED", HAS_FILE_HANDLES.0),
        ("CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED", HAS_DIRECT_ACCESS.0),
        ("CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED", HAS_FABRIC_HANDLES.0),
        ("CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK", MAX_THREADS.0),
        ("CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES", SHARED_BYTES.0),
        ("CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES", LOCAL_BYTES.0),
        ("CU_FUNC_ATTRIBUTE_NUM_REGS", REGISTERS.0),
        ("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", MAX_DYNAMIC_SHARED.0),
        ("CU_JIT_ERROR_LOG_BUFFER", ERROR_LOG.0),
        ("CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES", ERROR_LOG_BYTES.0),
        ("CU_STREAM_CAPTURE_MODE_RELAXED", RELAXED.0),
        ("CU_MEM_ALLOC_GRANULARITY_MINIMUM", MINIMUM.0),
        ("CU_MEM_ALLOCATION_TYPE_PINNED", PINNED),
        ("CU_MEM_LOCATION_TYPE_DEVICE", ON_DEVICE),
        ("CU_MEM_ACCESS_FLAGS_PROT_READWRITE", READ_WRITE),
        ("CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR", FILE_HANDLES),
        ("CU_MEM_HANDLE_TYPE_FABRIC", FABRIC_HANDLES),
        ("CU_STREAM_NON_BLOCKING", NON_BLOCKING),
        ("CU_MEMHOSTALLOC_PORTABLE", PORTABLE),
        ("CU_TENSOR_MAP_DATA_TYPE_UINT8", tensor_type(TensorElement::U8).0),
        ("CU_TENSOR_MAP_DATA_TYPE_UINT16", tensor_type(TensorElement::U16).0),
        ("CU_TENSOR_MAP_DATA_TYPE_UINT32", tensor_type(TensorElement::U32).0),
        ("CU_TENSOR_MAP_DATA_TYPE_FLOAT16", tensor_type(TensorElement::F16).0),
        ("CU_TENSOR_MAP_DATA_TYPE_FLOAT32", tensor_type(TensorElement::F32).0),
        ("CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", tensor_type(TensorElement::Bf16).0),
        ("CU_TENSOR_MAP_SWIZZLE_NONE", swizzle(TensorSwizzle::None).0),
        ("CU_TENSOR_MAP_SWIZZLE_32B", swizzle(TensorSwizzle::Bytes32).0),
        ("CU_TENSOR_MAP_SWIZZLE_64B", swizzle(TensorSwizzle::Bytes64).0),
        ("CU_TENSOR_MAP_SWIZZLE_128B", swizzle(TensorSwizzle::Bytes128).0),
        ("CU_TENSOR_MAP_L2_PROMOTION_NONE", promotion(TensorPromotion::None).0),
        ("CU_TENSOR_MAP_L2_PROMOTION_L2_64B", promotion(TensorPromotion::Bytes64).0),
        ("CU_TENSOR_MAP_L2_PROMOTION_L2_128B", promotion(TensorPromotion::Bytes128).0),
        ("CU_TENSOR_MAP_L2_PROMOTION_L2_256B", promotion(TensorPromotion::Bytes256).0),
        ("CU_TENSOR_MAP_INTERLEAVE_NONE", NOT_INTERLEAVED.0),
        ("CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE", ZEROS_OUTSIDE.0),
        ("CUDA_SUCCESS", SUCCESS.0),
        ("CUDA_ERROR_NO_DEVICE", NO_DEVICE.0),
        ("CUDA_ERROR_NOT_PERMITTED", NOT_PERMITTED.0),
        ("CUDA_ERROR_NOT_SUPPORTED", NOT_SUPPORTED.0),
    ];
    all.extend(KINDS.iter().map(|(name, code, _)| (*name, *code)));
    all.into_iter().map(|(name, value)| (name, i64::from(value))).collect()
}
