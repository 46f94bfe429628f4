//! The functions of the driver, by concept. A library that stands in for the driver exports these symbols.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};

use super::structs::{AccessDescription, AllocationProperties, EncodedTensorMap, KernelNodeParameters, Uuid};
use crate::table::{functions, named};

named! {
    /// The result of every call.
    Status(c_uint) = "CUresult";
    /// A GPU by number.
    Device(c_int) = "CUdevice";
    /// A question about a GPU.
    DeviceAttribute(c_uint) = "CUdevice_attribute";
    /// A property of a kernel.
    FunctionAttribute(c_uint) = "CUfunction_attribute";
    Context(*mut c_void) = "CUcontext";
    Stream(*mut c_void) = "CUstream";
    Event(*mut c_void) = "CUevent";
    /// Loaded code.
    Module(*mut c_void) = "CUmodule";
    /// A kernel.
    Function(*mut c_void) = "CUfunction";
    /// Work that was captured or described.
    Graph(*mut c_void) = "CUgraph";
    /// The same, so that it can be launched.
    ExecutableGraph(*mut c_void) = "CUgraphExec";
    GraphNode(*mut c_void) = "CUgraphNode";
    /// A kernel of a library, which nothing here has.
    LibraryKernel(*mut c_void) = "CUkernel";
    /// An option of the compiler of PTX.
    JitOption(c_uint) = "CUjit_option";
    /// Which calls other threads may make during a capture.
    CaptureMode(c_uint) = "CUstreamCaptureMode";
    /// Which granularity is asked for.
    GranularityFlag(c_uint) = "CUmemAllocationGranularity_flags";
    /// A number of a tensor map with 64 bits.
    Wide(u64) = "cuuint64_t";
    /// The type of a tensor map's elements.
    TensorType(c_uint) = "CUtensorMapDataType";
    /// The interleaved layout of a tensor.
    Interleave(c_uint) = "CUtensorMapInterleave";
    /// The order of chunks in shared memory.
    Swizzle(c_uint) = "CUtensorMapSwizzle";
    /// The reads of the level-2 cache.
    Promotion(c_uint) = "CUtensorMapL2promotion";
    /// The value of elements outside of a tensor.
    OutsideFill(c_uint) = "CUtensorMapFloatOOBfill";
    LookupFlags(u64) = "cuuint64_t";
    /// Why a lookup found nothing.
    LookupResult(c_uint) = "CUdriverProcAddressQueryResult";
}

functions! {
    /// Functions for a driver whose version is not known yet. These symbols never had another form.
    Entry {
        init = "cuInit" since 2000: (c_uint) -> Status;
        version = "cuDriverGetVersion" since 2020: (*mut c_int) -> Status;
        error_name = "cuGetErrorName" since 6000: (Status, *mut *const c_char) -> Status;
        error_text = "cuGetErrorString" since 6000: (Status, *mut *const c_char) -> Status;
    }
}

functions! {
    /// The lookup of a function by its version, from CUDA 12.0 on.
    Lookup {
        lookup = "cuGetProcAddress_v2" since 12000: (
            *const c_char, *mut *mut c_void, c_int, LookupFlags, *mut LookupResult
        ) -> Status;
    }
}

functions! {
    /// GPUs and their contexts.
    Devices {
        count = "cuDeviceGetCount" since 2000: (*mut c_int) -> Status;
        get = "cuDeviceGet" since 2000: (*mut Device, c_int) -> Status;
        name = "cuDeviceGetName" since 2000: (*mut c_char, c_int, Device) -> Status;
        total_memory = "cuDeviceTotalMem_v2" since 3020: (*mut usize, Device) -> Status;
        attribute = "cuDeviceGetAttribute" since 2000: (*mut c_int, DeviceAttribute, Device) -> Status;
        uuid = "cuDeviceGetUuid_v2" since 11040: (*mut Uuid, Device) -> Status;
        bus_id = "cuDeviceGetPCIBusId" since 4010: (*mut c_char, c_int, Device) -> Status;
        retain = "cuDevicePrimaryCtxRetain" since 7000: (*mut Context, Device) -> Status;
        release = "cuDevicePrimaryCtxRelease_v2" since 11000: (Device) -> Status;
        set_current = "cuCtxSetCurrent" since 4000: (Context) -> Status;
    }
}

functions! {
    /// Memory of a GPU, by ranges of addresses, and pinned memory of the host.
    Memory {
        info = "cuMemGetInfo_v2" since 3020: (*mut usize, *mut usize) -> Status;
        granularity = "cuMemGetAllocationGranularity" since 10020: (
            *mut usize, *const AllocationProperties, GranularityFlag
        ) -> Status;
        reserve = "cuMemAddressReserve" since 10020: (*mut u64, usize, usize, u64, u64) -> Status;
        free_addresses = "cuMemAddressFree" since 10020: (u64, usize) -> Status;
        create = "cuMemCreate" since 10020: (*mut u64, usize, *const AllocationProperties, u64) -> Status;
        release = "cuMemRelease" since 10020: (u64) -> Status;
        map = "cuMemMap" since 10020: (u64, usize, usize, u64, u64) -> Status;
        unmap = "cuMemUnmap" since 10020: (u64, usize) -> Status;
        set_access = "cuMemSetAccess" since 10020: (u64, usize, *const AccessDescription, usize) -> Status;
        allocate_host = "cuMemHostAlloc" since 2020: (*mut *mut c_void, usize, c_uint) -> Status;
        free_host = "cuMemFreeHost" since 2000: (*mut c_void) -> Status;
    }
}

functions! {
    /// Streams, events, and the work that the driver does itself.
    Streams {
        priorities = "cuCtxGetStreamPriorityRange" since 5050: (*mut c_int, *mut c_int) -> Status;
        create = "cuStreamCreateWithPriority" since 5050: (*mut Stream, c_uint, c_int) -> Status;
        destroy = "cuStreamDestroy_v2" since 4000: (Stream) -> Status;
        synchronize = "cuStreamSynchronize" since 2000: (Stream) -> Status;
        query = "cuStreamQuery" since 2000: (Stream) -> Status;
        wait = "cuStreamWaitEvent" since 3020: (Stream, Event, c_uint) -> Status;
        create_event = "cuEventCreate" since 2000: (*mut Event, c_uint) -> Status;
        destroy_event = "cuEventDestroy_v2" since 4000: (Event) -> Status;
        record = "cuEventRecord" since 2000: (Event, Stream) -> Status;
        query_event = "cuEventQuery" since 2000: (Event) -> Status;
        upload = "cuMemcpyHtoDAsync_v2" since 3020: (u64, *const c_void, usize, Stream) -> Status;
        download = "cuMemcpyDtoHAsync_v2" since 3020: (*mut c_void, u64, usize, Stream) -> Status;
        copy = "cuMemcpyDtoDAsync_v2" since 3020: (u64, u64, usize, Stream) -> Status;
        fill = "cuMemsetD8Async" since 3020: (u64, c_uchar, usize, Stream) -> Status;
    }
}

functions! {
    /// The time between two events.
    Elapsed {
        elapsed = "cuEventElapsedTime_v2" since 12080: (*mut f32, Event, Event) -> Status;
    }
}

functions! {
    /// The same of drivers before CUDA 12.8.
    EarlierElapsed {
        elapsed = "cuEventElapsedTime" since 2000: (*mut f32, Event, Event) -> Status;
    }
}

functions! {
    /// Code and its launches.
    Code {
        load = "cuModuleLoadDataEx" since 2010: (
            *mut Module, *const c_void, c_uint, *mut JitOption, *mut *mut c_void
        ) -> Status;
        unload = "cuModuleUnload" since 2000: (Module) -> Status;
        function = "cuModuleGetFunction" since 2000: (*mut Function, Module, *const c_char) -> Status;
        attribute = "cuFuncGetAttribute" since 2020: (*mut c_int, FunctionAttribute, Function) -> Status;
        set_attribute = "cuFuncSetAttribute" since 9000: (Function, FunctionAttribute, c_int) -> Status;
        launch = "cuLaunchKernel" since 4000: (
            Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void, *mut *mut c_void
        ) -> Status;
        encode_tiled = "cuTensorMapEncodeTiled" since 12000: (
            *mut EncodedTensorMap, TensorType, c_uint, *mut c_void, *const Wide, *const Wide, *const c_uint,
            *const c_uint, Interleave, Swizzle, Promotion, OutsideFill
        ) -> Status;
    }
}

functions! {
    /// Parameters of kernels. Without a driver's word arguments are not compared with them.
    Parameters {
        parameter = "cuFuncGetParamInfo" since 12040: (Function, usize, *mut usize, *mut usize) -> Status;
    }
}

functions! {
    /// Graphs of launches. A driver without them runs everything else.
    Graphs {
        begin_capture = "cuStreamBeginCapture_v2" since 10010: (Stream, CaptureMode) -> Status;
        end_capture = "cuStreamEndCapture" since 10000: (Stream, *mut Graph) -> Status;
        instantiate = "cuGraphInstantiateWithFlags" since 11040: (*mut ExecutableGraph, Graph, u64) -> Status;
        launch_graph = "cuGraphLaunch" since 10000: (ExecutableGraph, Stream) -> Status;
        destroy_graph = "cuGraphDestroy" since 10000: (Graph) -> Status;
        destroy_executable = "cuGraphExecDestroy" since 10000: (ExecutableGraph) -> Status;
        create = "cuGraphCreate" since 10000: (*mut Graph, c_uint) -> Status;
        add_kernel = "cuGraphAddKernelNode_v2" since 12000: (
            *mut GraphNode, Graph, *const GraphNode, usize, *const KernelNodeParameters
        ) -> Status;
        set_kernel = "cuGraphExecKernelNodeSetParams_v2" since 12000: (
            ExecutableGraph, GraphNode, *const KernelNodeParameters
        ) -> Status;
    }
}
