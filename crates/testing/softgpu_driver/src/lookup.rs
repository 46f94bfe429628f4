//! Functions by name and version.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::settings::settings;
use crate::status::{INVALID_VALUE, NOT_FOUND, Status, put};
use crate::{code, devices, earlier_forms, graphs, host_copies, memory, priorities, status, streams, tensor_maps};

/// A function: its name without the number of its form, the version from which that form exists, and its address.
struct Entry {
    name: &'static CStr,
    version: c_int,
    address: *const c_void,
}

/// All functions.
fn entries() -> Vec<Entry> {
    let entry = |name, version, address| Entry { name, version, address };
    vec![
        entry(c"cuCtxGetStreamPriorityRange", 5050, priorities::cuCtxGetStreamPriorityRange as *const c_void),
        entry(c"cuCtxSetCurrent", 4000, devices::cuCtxSetCurrent as *const c_void),
        entry(c"cuDeviceGet", 2000, devices::cuDeviceGet as *const c_void),
        entry(c"cuDeviceGetAttribute", 2000, devices::cuDeviceGetAttribute as *const c_void),
        entry(c"cuDeviceGetCount", 2000, devices::cuDeviceGetCount as *const c_void),
        entry(c"cuDeviceGetName", 2000, devices::cuDeviceGetName as *const c_void),
        entry(c"cuDeviceGetPCIBusId", 4010, devices::cuDeviceGetPCIBusId as *const c_void),
        entry(c"cuDeviceGetUuid", 11040, devices::cuDeviceGetUuid_v2 as *const c_void),
        entry(c"cuDevicePrimaryCtxRelease", 11000, devices::cuDevicePrimaryCtxRelease_v2 as *const c_void),
        entry(c"cuDevicePrimaryCtxRetain", 7000, devices::cuDevicePrimaryCtxRetain as *const c_void),
        entry(c"cuDeviceTotalMem", 3020, devices::cuDeviceTotalMem_v2 as *const c_void),
        entry(c"cuDriverGetVersion", 2020, devices::cuDriverGetVersion as *const c_void),
        entry(c"cuEventCreate", 2000, streams::cuEventCreate as *const c_void),
        entry(c"cuEventDestroy", 4000, streams::cuEventDestroy_v2 as *const c_void),
        entry(c"cuEventElapsedTime", 2000, earlier_forms::cuEventElapsedTime as *const c_void),
        entry(c"cuEventElapsedTime", 12080, streams::cuEventElapsedTime_v2 as *const c_void),
        entry(c"cuEventQuery", 2000, streams::cuEventQuery as *const c_void),
        entry(c"cuEventRecord", 2000, streams::cuEventRecord as *const c_void),
        entry(c"cuFuncGetAttribute", 2020, code::cuFuncGetAttribute as *const c_void),
        entry(c"cuFuncGetParamInfo", 12040, code::cuFuncGetParamInfo as *const c_void),
        entry(c"cuFuncSetAttribute", 9000, code::cuFuncSetAttribute as *const c_void),
        entry(c"cuGetErrorName", 6000, status::cuGetErrorName as *const c_void),
        entry(c"cuGetErrorString", 6000, status::cuGetErrorString as *const c_void),
        entry(c"cuGetProcAddress", 12000, cuGetProcAddress_v2 as *const c_void),
        entry(c"cuGraphAddKernelNode", 12000, graphs::cuGraphAddKernelNode_v2 as *const c_void),
        entry(c"cuGraphCreate", 10000, graphs::cuGraphCreate as *const c_void),
        entry(c"cuGraphDestroy", 10000, graphs::cuGraphDestroy as *const c_void),
        entry(c"cuGraphExecDestroy", 10000, graphs::cuGraphExecDestroy as *const c_void),
        entry(c"cuGraphExecKernelNodeSetParams", 12000, graphs::cuGraphExecKernelNodeSetParams_v2 as *const c_void),
        entry(c"cuGraphInstantiateWithFlags", 11040, graphs::cuGraphInstantiateWithFlags as *const c_void),
        entry(c"cuGraphLaunch", 10000, graphs::cuGraphLaunch as *const c_void),
        entry(c"cuInit", 2000, devices::cuInit as *const c_void),
        entry(c"cuLaunchKernel", 4000, code::cuLaunchKernel as *const c_void),
        entry(c"cuMemAddressFree", 10020, memory::cuMemAddressFree as *const c_void),
        entry(c"cuMemAddressReserve", 10020, memory::cuMemAddressReserve as *const c_void),
        entry(c"cuMemCreate", 10020, memory::cuMemCreate as *const c_void),
        entry(c"cuMemFreeHost", 2000, memory::cuMemFreeHost as *const c_void),
        entry(c"cuMemGetAllocationGranularity", 10020, memory::cuMemGetAllocationGranularity as *const c_void),
        entry(
            c"cuMemGetAllocationPropertiesFromHandle",
            10020,
            memory::cuMemGetAllocationPropertiesFromHandle as *const c_void,
        ),
        entry(c"cuMemGetInfo", 3020, memory::cuMemGetInfo_v2 as *const c_void),
        entry(c"cuMemHostAlloc", 2020, memory::cuMemHostAlloc as *const c_void),
        entry(c"cuMemMap", 10020, memory::cuMemMap as *const c_void),
        entry(c"cuMemRelease", 10020, memory::cuMemRelease as *const c_void),
        entry(c"cuMemRetainAllocationHandle", 11000, memory::cuMemRetainAllocationHandle as *const c_void),
        entry(c"cuMemSetAccess", 10020, memory::cuMemSetAccess as *const c_void),
        entry(c"cuMemUnmap", 10020, memory::cuMemUnmap as *const c_void),
        entry(c"cuMemcpyDtoDAsync", 3020, host_copies::cuMemcpyDtoDAsync_v2 as *const c_void),
        entry(c"cuMemcpyDtoHAsync", 3020, host_copies::cuMemcpyDtoHAsync_v2 as *const c_void),
        entry(c"cuMemcpyHtoDAsync", 3020, host_copies::cuMemcpyHtoDAsync_v2 as *const c_void),
        entry(c"cuMemsetD8Async", 3020, host_copies::cuMemsetD8Async as *const c_void),
        entry(c"cuModuleGetFunction", 2000, code::cuModuleGetFunction as *const c_void),
        entry(c"cuModuleLoadDataEx", 2010, code::cuModuleLoadDataEx as *const c_void),
        entry(c"cuModuleUnload", 2000, code::cuModuleUnload as *const c_void),
        entry(c"cuStreamBeginCapture", 10010, streams::cuStreamBeginCapture_v2 as *const c_void),
        entry(c"cuStreamCreate", 2000, streams::cuStreamCreate as *const c_void),
        entry(c"cuStreamCreateWithPriority", 5050, priorities::cuStreamCreateWithPriority as *const c_void),
        entry(c"cuStreamDestroy", 4000, streams::cuStreamDestroy_v2 as *const c_void),
        entry(c"cuStreamEndCapture", 10000, streams::cuStreamEndCapture as *const c_void),
        entry(c"cuStreamGetPriority", 5050, priorities::cuStreamGetPriority as *const c_void),
        entry(c"cuStreamQuery", 2000, streams::cuStreamQuery as *const c_void),
        entry(c"cuStreamSynchronize", 2000, streams::cuStreamSynchronize as *const c_void),
        entry(c"cuStreamWaitEvent", 3020, streams::cuStreamWaitEvent as *const c_void),
        entry(c"cuTensorMapEncodeTiled", 12000, tensor_maps::cuTensorMapEncodeTiled as *const c_void),
    ]
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    address: *mut *const c_void,
    version: c_int,
    flags: u64,
    result: *mut c_uint,
) -> Status {
    if name.is_null() || flags > 2 {
        return INVALID_VALUE;
    }
    // SAFETY: the interface asks for a text with a zero at its end.
    let name = unsafe { CStr::from_ptr(name) };
    let entries = entries();
    // The newest form that the driver has, up to the version that is asked for.
    let newest = settings().as_ref().map_or(version, |settings| settings.cuda.min(version));
    let there = entries.iter().filter(|entry| entry.name == name && entry.version <= newest);
    let found = there.max_by_key(|entry| entry.version);
    // SAFETY: the interface asks for a place for a pointer.
    let status = unsafe { put(address, found.map_or(std::ptr::null(), |entry| entry.address)) };
    // 0: found; 1: unknown; 2: newer than the version that is asked for.
    let reason = match found {
        Some(_) => 0,
        None if entries.iter().any(|entry| entry.name == name) => 2,
        None => 1,
    };
    if !result.is_null() {
        // SAFETY: the interface asks for null or a place for the reason.
        unsafe { result.write(reason) };
    }
    if found.is_some() { status } else { NOT_FOUND }
}
