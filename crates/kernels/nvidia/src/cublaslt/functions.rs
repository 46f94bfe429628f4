//! The functions of cuBLASLt.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

use crate::header::Layout;
use crate::table::{CType, functions, named};

named! {
    /// The result of every call.
    Status(c_uint) = "cublasStatus_t";
    /// An open library, for one GPU.
    RawHandle(*mut c_void) = "cublasLtHandle_t";
    /// A product's types and transposes.
    Description(*mut c_void) = "cublasLtMatmulDesc_t";
    MatrixLayout(*mut c_void) = "cublasLtMatrixLayout_t";
    /// Limits of a search.
    Preference(*mut c_void) = "cublasLtMatmulPreference_t";
    /// The type of sums.
    ComputeType(c_uint) = "cublasComputeType_t";
    /// The type of elements.
    DataType(c_uint) = "cudaDataType_t";
    /// A part of a description.
    DescriptionAttribute(c_uint) = "cublasLtMatmulDescAttributes_t";
    /// A limit of a search.
    PreferenceAttribute(c_uint) = "cublasLtMatmulPreferenceAttributes_t";
    /// A part of an algorithm.
    AlgorithmAttribute(c_uint) = "cublasLtMatmulAlgoConfigAttributes_t";
    /// A queue of the runtime, which is one of the driver.
    Stream(*mut c_void) = "cudaStream_t";
    /// A number of rows or columns.
    Count(u64) = "uint64_t";
    /// Elements from a column to the next.
    Stride(i64) = "int64_t";
}

/// An algorithm, opaque.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RawAlgorithm {
    pub(crate) data: [u64; 8],
}

/// An algorithm that fits a product.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Candidate {
    pub(crate) algorithm: RawAlgorithm,
    pub(crate) workspace: usize,
    pub(crate) state: c_uint,
    pub(crate) waves: f32,
    pub(crate) reserved: [c_int; 4],
}

impl CType for RawAlgorithm {
    fn c() -> String {
        "cublasLtMatmulAlgo_t".into()
    }
}

impl CType for Candidate {
    fn c() -> String {
        "cublasLtMatmulHeuristicResult_t".into()
    }
}

pub(crate) const SUCCESS: Status = Status(0);
pub(crate) const NOT_SUPPORTED: Status = Status(15);
pub(crate) const SUMS_IN_F32: ComputeType = ComputeType(68);
pub(crate) const F32: DataType = DataType(0);
pub(crate) const F16: DataType = DataType(2);
pub(crate) const BF16: DataType = DataType(14);
pub(crate) const TRANSPOSE_A: DescriptionAttribute = DescriptionAttribute(3);
pub(crate) const TRANSPOSE_B: DescriptionAttribute = DescriptionAttribute(4);
pub(crate) const TRANSPOSED: u32 = 1;
pub(crate) const END: DescriptionAttribute = DescriptionAttribute(7);
pub(crate) const END_WITH_BIAS: u32 = 4;
pub(crate) const BIAS: DescriptionAttribute = DescriptionAttribute(8);
pub(crate) const WORKSPACE: PreferenceAttribute = PreferenceAttribute(1);
pub(crate) const REDUCTIONS: PreferenceAttribute = PreferenceAttribute(3);
/// Of the matrices A, B, C and D.
pub(crate) const ALIGNMENTS: [PreferenceAttribute; 4] =
    [PreferenceAttribute(5), PreferenceAttribute(6), PreferenceAttribute(7), PreferenceAttribute(8)];
pub(crate) const SPLITS: AlgorithmAttribute = AlgorithmAttribute(2);
pub(crate) const REDUCTION: AlgorithmAttribute = AlgorithmAttribute(3);
/// No pieces.
pub(crate) const NO_REDUCTION: u32 = 0;
/// Pieces in the type of sums, added in a step of their own.
pub(crate) const REDUCTION_OF_SUMS: u32 = 2;

functions! {
    /// See the module.
    Functions {
        version = "cublasLtGetVersion": () -> usize;
        runtime_version = "cublasLtGetCudartVersion": () -> usize;
        status_name = "cublasLtGetStatusName": (Status) -> *const c_char;
        status_text = "cublasLtGetStatusString": (Status) -> *const c_char;
        create = "cublasLtCreate": (*mut RawHandle) -> Status;
        destroy = "cublasLtDestroy": (RawHandle) -> Status;
        create_description = "cublasLtMatmulDescCreate": (*mut Description, ComputeType, DataType) -> Status;
        destroy_description = "cublasLtMatmulDescDestroy": (Description) -> Status;
        set_description = "cublasLtMatmulDescSetAttribute": (
            Description, DescriptionAttribute, *const c_void, usize
        ) -> Status;
        create_layout = "cublasLtMatrixLayoutCreate": (*mut MatrixLayout, DataType, Count, Count, Stride) -> Status;
        destroy_layout = "cublasLtMatrixLayoutDestroy": (MatrixLayout) -> Status;
        create_preference = "cublasLtMatmulPreferenceCreate": (*mut Preference) -> Status;
        destroy_preference = "cublasLtMatmulPreferenceDestroy": (Preference) -> Status;
        set_preference = "cublasLtMatmulPreferenceSetAttribute": (
            Preference, PreferenceAttribute, *const c_void, usize
        ) -> Status;
        candidates = "cublasLtMatmulAlgoGetHeuristic": (
            RawHandle, Description, MatrixLayout, MatrixLayout, MatrixLayout, MatrixLayout, Preference, c_int,
            *mut Candidate, *mut c_int
        ) -> Status;
        algorithm_part = "cublasLtMatmulAlgoConfigGetAttribute": (
            *const RawAlgorithm, AlgorithmAttribute, *mut c_void, usize, *mut usize
        ) -> Status;
        multiply = "cublasLtMatmul": (
            RawHandle, Description, *const c_void, *const c_void, MatrixLayout, *const c_void, MatrixLayout,
            *const c_void, *const c_void, MatrixLayout, *mut c_void, MatrixLayout, *const RawAlgorithm,
            *mut c_void, usize, Stream
        ) -> Status;
    }
}

pub(super) fn constants() -> Vec<(&'static str, i64)> {
    let all = [
        ("CUBLAS_STATUS_SUCCESS", SUCCESS.0),
        ("CUBLAS_STATUS_NOT_SUPPORTED", NOT_SUPPORTED.0),
        ("CUBLAS_COMPUTE_32F", SUMS_IN_F32.0),
        ("CUDA_R_32F", F32.0),
        ("CUDA_R_16F", F16.0),
        ("CUDA_R_16BF", BF16.0),
        ("CUBLASLT_MATMUL_DESC_TRANSA", TRANSPOSE_A.0),
        ("CUBLASLT_MATMUL_DESC_TRANSB", TRANSPOSE_B.0),
        ("CUBLAS_OP_T", TRANSPOSED),
        ("CUBLASLT_MATMUL_DESC_EPILOGUE", END.0),
        ("CUBLASLT_EPILOGUE_BIAS", END_WITH_BIAS),
        ("CUBLASLT_MATMUL_DESC_BIAS_POINTER", BIAS.0),
        ("CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES", WORKSPACE.0),
        ("CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK", REDUCTIONS.0),
        ("CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES", ALIGNMENTS[0].0),
        ("CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES", ALIGNMENTS[1].0),
        ("CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES", ALIGNMENTS[2].0),
        ("CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES", ALIGNMENTS[3].0),
        ("CUBLASLT_ALGO_CONFIG_SPLITK_NUM", SPLITS.0),
        ("CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME", REDUCTION.0),
        ("CUBLASLT_REDUCTION_SCHEME_NONE", NO_REDUCTION),
        ("CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE", REDUCTION_OF_SUMS),
    ];
    all.into_iter().map(|(name, value)| (name, i64::from(value))).collect()
}

pub(super) fn layouts() -> Vec<Layout> {
    vec![
        Layout {
            name: "cublasLtMatmulAlgo_t",
            size: Some(size_of::<RawAlgorithm>()),
            fields: vec![("data", offset_of!(RawAlgorithm, data))],
        },
        Layout {
            name: "cublasLtMatmulHeuristicResult_t",
            size: Some(size_of::<Candidate>()),
            fields: vec![
                ("algo", offset_of!(Candidate, algorithm)),
                ("workspaceSize", offset_of!(Candidate, workspace)),
                ("state", offset_of!(Candidate, state)),
                ("wavesCount", offset_of!(Candidate, waves)),
                ("reserved", offset_of!(Candidate, reserved)),
            ],
        },
    ]
}
