//! Structures of the driver.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;

use gpu::TensorMap;

use super::functions::{Context, Function, LibraryKernel};
use crate::header::Layout;
use crate::table::CType;

/// Where memory is: on a GPU.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: c_uint,
    pub(crate) id: c_int,
}

/// The kind of memory that is created.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: c_uint,
    pub(crate) handle_types: c_uint,
    pub(crate) location: Location,
    pub(crate) windows: *mut c_void,
    pub(crate) compression: u8,
    pub(crate) gpu_direct: u8,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 4],
}

/// Who may use mapped memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AccessDescription {
    pub(crate) location: Location,
    pub(crate) flags: c_uint,
}

/// The identifier of a GPU.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Uuid {
    pub(crate) bytes: [u8; 16],
}

/// A tensor map as the driver encodes it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub(crate) struct EncodedTensorMap {
    pub(crate) bytes: [u8; TensorMap::BYTES],
}

/// A kernel as a node of a graph.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KernelNodeParameters {
    pub(crate) function: Function,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) arguments: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
    pub(crate) kernel: LibraryKernel,
    pub(crate) context: Context,
}

impl CType for KernelNodeParameters {
    fn c() -> String {
        "CUDA_KERNEL_NODE_PARAMS".into()
    }
}

impl CType for AllocationProperties {
    fn c() -> String {
        "CUmemAllocationProp".into()
    }
}

impl CType for AccessDescription {
    fn c() -> String {
        "CUmemAccessDesc".into()
    }
}

impl CType for EncodedTensorMap {
    fn c() -> String {
        "CUtensorMap".into()
    }
}

impl CType for Uuid {
    fn c() -> String {
        "CUuuid".into()
    }
}

/// Sizes and offsets of all structures.
pub(super) fn layouts() -> Vec<Layout> {
    vec![
        Layout {
            name: "CUmemLocation",
            size: Some(size_of::<Location>()),
            fields: vec![("type", offset_of!(Location, kind)), ("id", offset_of!(Location, id))],
        },
        Layout {
            name: "CUmemAllocationProp",
            size: Some(size_of::<AllocationProperties>()),
            fields: vec![
                ("type", offset_of!(AllocationProperties, kind)),
                ("requestedHandleTypes", offset_of!(AllocationProperties, handle_types)),
                ("location", offset_of!(AllocationProperties, location)),
                ("win32HandleMetaData", offset_of!(AllocationProperties, windows)),
                ("allocFlags.compressionType", offset_of!(AllocationProperties, compression)),
                ("allocFlags.gpuDirectRDMACapable", offset_of!(AllocationProperties, gpu_direct)),
                ("allocFlags.usage", offset_of!(AllocationProperties, usage)),
                ("allocFlags.reserved", offset_of!(AllocationProperties, reserved)),
            ],
        },
        Layout {
            name: "CUmemAccessDesc",
            size: Some(size_of::<AccessDescription>()),
            fields: vec![
                ("location", offset_of!(AccessDescription, location)),
                ("flags", offset_of!(AccessDescription, flags)),
            ],
        },
        Layout {
            name: "CUtensorMap",
            size: Some(size_of::<EncodedTensorMap>()),
            fields: vec![("opaque", offset_of!(EncodedTensorMap, bytes))],
        },
        Layout {
            name: "CUDA_KERNEL_NODE_PARAMS",
            size: Some(size_of::<KernelNodeParameters>()),
            fields: vec![
                ("func", offset_of!(KernelNodeParameters, function)),
                ("gridDimX", offset_of!(KernelNodeParameters, grid)),
                ("blockDimX", offset_of!(KernelNodeParameters, block)),
                ("sharedMemBytes", offset_of!(KernelNodeParameters, shared_bytes)),
                ("kernelParams", offset_of!(KernelNodeParameters, arguments)),
                ("extra", offset_of!(KernelNodeParameters, extra)),
                ("kern", offset_of!(KernelNodeParameters, kernel)),
                ("ctx", offset_of!(KernelNodeParameters, context)),
            ],
        },
        Layout { name: "CUuuid", size: Some(size_of::<Uuid>()), fields: vec![("bytes", offset_of!(Uuid, bytes))] },
    ]
}
