//! The functions and constants of cuDNN.

use std::ffi::{c_char, c_uint, c_void};

use crate::table::{functions, named};

named! {
    /// The result of every call.
    Status(c_uint) = "cudnnStatus_t";
    /// An open library, for one GPU.
    RawHandle(*mut c_void) = "cudnnHandle_t";
    /// Anything that the library describes.
    RawDescriptor(*mut c_void) = "cudnnBackendDescriptor_t";
    /// The kind of a descriptor.
    Kind(c_uint) = "cudnnBackendDescriptorType_t";
    /// A part of a descriptor.
    Attribute(c_uint) = "cudnnBackendAttributeName_t";
    /// The type of a part.
    AttributeType(c_uint) = "cudnnBackendAttributeType_t";
    /// A queue of the runtime, which is one of the driver.
    Stream(*mut c_void) = "cudaStream_t";
    /// Elements of a part.
    Count(i64) = "int64_t";
}

functions! {
    /// cuDNN 9.
    Functions {
        version = "cudnnGetVersion": () -> usize;
        status_text = "cudnnGetErrorString": (Status) -> *const c_char;
        last_error = "cudnnGetLastErrorString": (*mut c_char, usize) -> ();
        create = "cudnnCreate": (*mut RawHandle) -> Status;
        destroy = "cudnnDestroy": (RawHandle) -> Status;
        set_stream = "cudnnSetStream": (RawHandle, Stream) -> Status;
        create_descriptor = "cudnnBackendCreateDescriptor": (Kind, *mut RawDescriptor) -> Status;
        destroy_descriptor = "cudnnBackendDestroyDescriptor": (RawDescriptor) -> Status;
        finalize = "cudnnBackendFinalize": (RawDescriptor) -> Status;
        set = "cudnnBackendSetAttribute": (RawDescriptor, Attribute, AttributeType, Count, *const c_void) -> Status;
        get = "cudnnBackendGetAttribute": (
            RawDescriptor, Attribute, AttributeType, Count, *mut Count, *mut c_void
        ) -> Status;
        execute = "cudnnBackendExecute": (RawHandle, RawDescriptor, RawDescriptor) -> Status;
    }
}

/// Declares constants of the header, and the list that a test compares with it.
macro_rules! constants {
    ($($name:ident: $type:ident = $value:literal, $c:literal;)*) => {
        $(pub(super) const $name: $type = $type($value);)*

        pub(super) fn constants() -> Vec<(&'static str, i64)> {
            vec![$(($c, $value)),*]
        }
    };
}

/// A value of an enumeration of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice(pub(super) i32);

constants! {
    SUCCESS: Status = 0, "CUDNN_STATUS_SUCCESS";
    BAD_PARAMETER: Status = 2000, "CUDNN_STATUS_BAD_PARAM";
    INTERNAL_ERROR: Status = 4000, "CUDNN_STATUS_INTERNAL_ERROR";

    POINTWISE: Kind = 0, "CUDNN_BACKEND_POINTWISE_DESCRIPTOR";
    ENGINE: Kind = 2, "CUDNN_BACKEND_ENGINE_DESCRIPTOR";
    ENGINE_CONFIG: Kind = 3, "CUDNN_BACKEND_ENGINECFG_DESCRIPTOR";
    HEURISTIC: Kind = 4, "CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR";
    PLAN: Kind = 5, "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR";
    POINTWISE_OPERATION: Kind = 13, "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR";
    GRAPH: Kind = 15, "CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR";
    VARIANT_PACK: Kind = 16, "CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR";
    TENSOR: Kind = 17, "CUDNN_BACKEND_TENSOR_DESCRIPTOR";
    PRODUCT: Kind = 18, "CUDNN_BACKEND_MATMUL_DESCRIPTOR";
    PRODUCT_OPERATION: Kind = 19, "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR";
    REDUCTION: Kind = 21, "CUDNN_BACKEND_REDUCTION_DESCRIPTOR";
    REDUCTION_OPERATION: Kind = 22, "CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR";
    RESHAPE_OPERATION: Kind = 31, "CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR";
    GPU_PROPERTIES: Kind = 38, "CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR";

    POINTWISE_MODE: Attribute = 0, "CUDNN_ATTR_POINTWISE_MODE";
    POINTWISE_PRECISION: Attribute = 1, "CUDNN_ATTR_POINTWISE_MATH_PREC";
    POINTWISE_AXIS: Attribute = 9, "CUDNN_ATTR_POINTWISE_AXIS";
    HEURISTIC_MODE: Attribute = 200, "CUDNN_ATTR_ENGINEHEUR_MODE";
    HEURISTIC_GRAPH: Attribute = 201, "CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH";
    HEURISTIC_RESULTS: Attribute = 202, "CUDNN_ATTR_ENGINEHEUR_RESULTS";
    HEURISTIC_GPU: Attribute = 204, "CUDNN_ATTR_ENGINEHEUR_DEVICEPROP";
    CONFIG_ENGINE: Attribute = 300, "CUDNN_ATTR_ENGINECFG_ENGINE";
    PLAN_CONFIG: Attribute = 401, "CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG";
    PLAN_WORKSPACE: Attribute = 402, "CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE";
    PLAN_GPU: Attribute = 407, "CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP";
    POINTWISE_DESCRIPTION: Attribute = 750, "CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR";
    POINTWISE_X: Attribute = 751, "CUDNN_ATTR_OPERATION_POINTWISE_XDESC";
    POINTWISE_B: Attribute = 752, "CUDNN_ATTR_OPERATION_POINTWISE_BDESC";
    POINTWISE_Y: Attribute = 753, "CUDNN_ATTR_OPERATION_POINTWISE_YDESC";
    POINTWISE_T: Attribute = 758, "CUDNN_ATTR_OPERATION_POINTWISE_TDESC";
    GRAPH_OPERATIONS: Attribute = 801, "CUDNN_ATTR_OPERATIONGRAPH_OPS";
    TENSOR_ALIGNMENT: Attribute = 900, "CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT";
    TENSOR_TYPE: Attribute = 901, "CUDNN_ATTR_TENSOR_DATA_TYPE";
    TENSOR_DIMS: Attribute = 902, "CUDNN_ATTR_TENSOR_DIMENSIONS";
    TENSOR_STRIDES: Attribute = 903, "CUDNN_ATTR_TENSOR_STRIDES";
    TENSOR_ID: Attribute = 906, "CUDNN_ATTR_TENSOR_UNIQUE_ID";
    TENSOR_IS_VIRTUAL: Attribute = 907, "CUDNN_ATTR_TENSOR_IS_VIRTUAL";
    TENSOR_IS_OF_HOST: Attribute = 908, "CUDNN_ATTR_TENSOR_IS_BY_VALUE";
    PACK_IDS: Attribute = 1000, "CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS";
    PACK_ADDRESSES: Attribute = 1001, "CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS";
    PACK_WORKSPACE: Attribute = 1003, "CUDNN_ATTR_VARIANT_PACK_WORKSPACE";
    ENGINE_NUMBER: Attribute = 1301, "CUDNN_ATTR_ENGINE_GLOBAL_INDEX";
    ENGINE_NOTES: Attribute = 1303, "CUDNN_ATTR_ENGINE_NUMERICAL_NOTE";
    PRODUCT_SUMS: Attribute = 1500, "CUDNN_ATTR_MATMUL_COMP_TYPE";
    PRODUCT_A: Attribute = 1520, "CUDNN_ATTR_OPERATION_MATMUL_ADESC";
    PRODUCT_B: Attribute = 1521, "CUDNN_ATTR_OPERATION_MATMUL_BDESC";
    PRODUCT_C: Attribute = 1522, "CUDNN_ATTR_OPERATION_MATMUL_CDESC";
    PRODUCT_DESCRIPTION: Attribute = 1523, "CUDNN_ATTR_OPERATION_MATMUL_DESC";
    REDUCTION_MODE: Attribute = 1600, "CUDNN_ATTR_REDUCTION_OPERATOR";
    REDUCTION_PRECISION: Attribute = 1601, "CUDNN_ATTR_REDUCTION_COMP_TYPE";
    REDUCTION_X: Attribute = 1610, "CUDNN_ATTR_OPERATION_REDUCTION_XDESC";
    REDUCTION_Y: Attribute = 1611, "CUDNN_ATTR_OPERATION_REDUCTION_YDESC";
    REDUCTION_DESCRIPTION: Attribute = 1612, "CUDNN_ATTR_OPERATION_REDUCTION_DESC";
    RESHAPE_X: Attribute = 2200, "CUDNN_ATTR_OPERATION_RESHAPE_XDESC";
    RESHAPE_Y: Attribute = 2201, "CUDNN_ATTR_OPERATION_RESHAPE_YDESC";
    GPU_HANDLE: Attribute = 2701, "CUDNN_ATTR_DEVICEPROP_HANDLE";
    GPU_AS_JSON: Attribute = 2702, "CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION";

    OF_HANDLE: AttributeType = 0, "CUDNN_TYPE_HANDLE";
    OF_DATA_TYPE: AttributeType = 1, "CUDNN_TYPE_DATA_TYPE";
    OF_FLAG: AttributeType = 2, "CUDNN_TYPE_BOOLEAN";
    OF_NUMBER: AttributeType = 3, "CUDNN_TYPE_INT64";
    OF_ADDRESS: AttributeType = 6, "CUDNN_TYPE_VOID_PTR";
    OF_HEURISTIC: AttributeType = 8, "CUDNN_TYPE_HEUR_MODE";
    OF_NOTE: AttributeType = 11, "CUDNN_TYPE_NUMERICAL_NOTE";
    OF_POINTWISE: AttributeType = 14, "CUDNN_TYPE_POINTWISE_MODE";
    OF_DESCRIPTOR: AttributeType = 15, "CUDNN_TYPE_BACKEND_DESCRIPTOR";
    OF_REDUCTION: AttributeType = 18, "CUDNN_TYPE_REDUCTION_OPERATOR_TYPE";
    OF_CHARACTER: AttributeType = 24, "CUDNN_TYPE_CHAR";

    F32: Choice = 0, "CUDNN_DATA_FLOAT";
    F16: Choice = 2, "CUDNN_DATA_HALF";
    I32: Choice = 4, "CUDNN_DATA_INT32";
    BF16: Choice = 9, "CUDNN_DATA_BFLOAT16";
    FLAG: Choice = 11, "CUDNN_DATA_BOOLEAN";
    ADD: Choice = 0, "CUDNN_POINTWISE_ADD";
    MULTIPLY: Choice = 1, "CUDNN_POINTWISE_MUL";
    DIVIDE: Choice = 6, "CUDNN_POINTWISE_DIV";
    SUBTRACT: Choice = 9, "CUDNN_POINTWISE_SUB";
    EXP: Choice = 13, "CUDNN_POINTWISE_EXP";
    LOG: Choice = 15, "CUDNN_POINTWISE_LOG";
    AT_LEAST: Choice = 303, "CUDNN_POINTWISE_CMP_GE";
    INDEX: Choice = 501, "CUDNN_POINTWISE_GEN_INDEX";
    SELECT: Choice = 601, "CUDNN_POINTWISE_BINARY_SELECT";
    SUM: Choice = 0, "CUDNN_REDUCE_TENSOR_ADD";
    MAXIMUM: Choice = 3, "CUDNN_REDUCE_TENSOR_MAX";
    FALLBACK: Choice = 2, "CUDNN_HEUR_MODE_FALLBACK";
    MODE_A: Choice = 3, "CUDNN_HEUR_MODE_A";
    OTHER_BITS: Choice = 4, "CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC";
}
