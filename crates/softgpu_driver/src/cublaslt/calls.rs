//! The functions of the library.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cpu::gemm::BlockRule;
use gpu::{DevicePointer, Gpu, StreamHandle};
use softgpu::HostWork;

use super::product::{Element, Product, Stored};
use crate::handles::Handles;
use crate::process::{Process, entered, process};

/// The version: 13.0.0 of the library, 13.0 of CUDA.
const VERSION: usize = 130_000;
const RUNTIME_VERSION: usize = 13_000;

/// A result of the library: 0 is success.
type Status = u32;

const SUCCESS: Status = 0;
const NOT_INITIALIZED: Status = 1;
const INVALID_VALUE: Status = 7;
const EXECUTION_FAILED: Status = 13;
const NOT_SUPPORTED: Status = 15;

/// Sums in fp32, and factors of the product in fp32.
const SUMS_IN_F32: c_uint = 68;
const F32: c_uint = 0;

/// The first word of the only algorithm.
const ALGORITHM: u64 = 1;

/// A matrix.
#[derive(Clone, Copy, Debug)]
struct Layout {
    element: c_uint,
    rows: u64,
    cols: u64,
    stride: i64,
    order: u32,
}

/// The order by rows.
const BY_ROW: u32 = 1;

/// All that callers have described.
#[derive(Debug, Default)]
pub struct Descriptions {
    /// Whether a and b are stored as their transposes.
    products: Handles<[u32; 2]>,
    layouts: Handles<Layout>,
    preferences: Handles<()>,
}

/// An algorithm, as callers see it.
#[repr(C)]
pub struct RawAlgorithm {
    data: [u64; 8],
}

/// An algorithm that fits a product, as callers see it.
#[repr(C)]
pub struct Candidate {
    algorithm: RawAlgorithm,
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

fn with<T>(call: impl FnOnce(&mut Descriptions) -> T) -> T {
    call(&mut sync::lock(&process().descriptions))
}

/// Writes a value where a caller asks for it.
///
/// # Safety
/// `to` is null or a place for a value.
unsafe fn put<T>(to: *mut T, value: T) -> Status {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: as the caller promises.
    unsafe { to.write(value) };
    SUCCESS
}

/// The value of an attribute of 32 bits.
///
/// # Safety
/// `from` is null or has `bytes` bytes.
unsafe fn word(from: *const c_void, bytes: usize) -> Option<u32> {
    if from.is_null() || bytes != size_of::<u32>() {
        return None;
    }
    // SAFETY: as the caller promises.
    Some(unsafe { from.cast::<u32>().read_unaligned() })
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    VERSION
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetCudartVersion() -> usize {
    RUNTIME_VERSION
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetStatusName(status: Status) -> *const c_char {
    let name = match status {
        SUCCESS => c"CUBLAS_STATUS_SUCCESS",
        NOT_INITIALIZED => c"CUBLAS_STATUS_NOT_INITIALIZED",
        INVALID_VALUE => c"CUBLAS_STATUS_INVALID_VALUE",
        EXECUTION_FAILED => c"CUBLAS_STATUS_EXECUTION_FAILED",
        NOT_SUPPORTED => c"CUBLAS_STATUS_NOT_SUPPORTED",
        _ => return std::ptr::null(),
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetStatusString(status: Status) -> *const c_char {
    let text = match status {
        SUCCESS => c"no error",
        NOT_INITIALIZED => c"no context on this thread",
        INVALID_VALUE => c"an argument that does not exist or fit",
        EXECUTION_FAILED => c"the GPU has failed, or does not have the memory or the stream",
        NOT_SUPPORTED => c"a product that the soft GPU does not have: matrices are by rows and dense, d is a b",
        _ => return std::ptr::null(),
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtCreate(handle: *mut u64) -> Status {
    if entered().is_err() {
        return NOT_INITIALIZED;
    }
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put(handle, 1) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtDestroy(handle: u64) -> Status {
    if handle == 1 { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescCreate(product: *mut u64, sums: c_uint, factors: c_uint) -> Status {
    if (sums, factors) != (SUMS_IN_F32, F32) {
        return NOT_SUPPORTED;
    }
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put(product, with(|all| all.products.add([0; 2]))) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulDescDestroy(product: u64) -> Status {
    removed(with(|all| all.products.remove(product).is_some()))
}

fn removed(was_there: bool) -> Status {
    if was_there { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    product: u64,
    attribute: c_uint,
    value: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: the interface asks for N bytes.
    let Some(value) = (unsafe { word(value, bytes) }) else { return INVALID_VALUE };
    let factor = match attribute {
        3 => 0,
        4 => 1,
        _ => return NOT_SUPPORTED,
    };
    // 0 is as it is stored, 1 is transposed.
    if value > 1 {
        return NOT_SUPPORTED;
    }
    removed(with(|all| all.products.get_mut(product).map(|stored| stored[factor] = value).is_some()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut u64,
    element: c_uint,
    rows: u64,
    cols: u64,
    stride: i64,
) -> Status {
    // By columns, until the caller sets another order.
    let made = Layout { element, rows, cols, stride, order: 0 };
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put(layout, with(|all| all.layouts.add(made))) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatrixLayoutDestroy(layout: u64) -> Status {
    removed(with(|all| all.layouts.remove(layout).is_some()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: u64,
    attribute: c_uint,
    value: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: the interface asks for N bytes.
    let Some(value) = (unsafe { word(value, bytes) }) else { return INVALID_VALUE };
    if attribute != 1 {
        return NOT_SUPPORTED;
    }
    removed(with(|all| all.layouts.get_mut(layout).map(|layout| layout.order = value).is_some()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut u64) -> Status {
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put(preference, with(|all| all.preferences.add(()))) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulPreferenceDestroy(preference: u64) -> Status {
    removed(with(|all| all.preferences.remove(preference).is_some()))
}

/// The only algorithm takes no workspace and cuts no sum: every limit of both holds.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: u64,
    attribute: c_uint,
    value: *const c_void,
    bytes: usize,
) -> Status {
    let is_known = match attribute {
        1 => bytes == size_of::<u64>(),
        3 => bytes == size_of::<u32>(),
        _ => return NOT_SUPPORTED,
    };
    removed(is_known && !value.is_null() && with(|all| all.preferences.get(preference).is_some()))
}

/// The product of these descriptions.
fn described(product: u64, layouts: [u64; 3]) -> Result<Product, Status> {
    let rule = if process().gpu.facts().capability.major >= 9 { BlockRule::BLOCKS16 } else { BlockRule::BLOCKS8 };
    let (stored, layouts) = with(|all| {
        let layouts = layouts.map(|layout| all.layouts.get(layout).copied());
        (all.products.get(product).copied(), layouts)
    });
    let (Some(stored), [Some(a), Some(b), Some(d)]) = (stored, layouts) else { return Err(INVALID_VALUE) };
    let is_dense = |layout: &Layout| layout.order == BY_ROW && u64::try_from(layout.stride) == Ok(layout.cols);
    if ![a, b, d].iter().all(is_dense) {
        return Err(NOT_SUPPORTED);
    }
    let [of_a, of_b, of_d] = [a, b, d].map(|layout| Element::of(layout.element));
    let (Some(factors), Some(result)) = (of_a.filter(|element| Some(*element) == of_b), of_d) else {
        return Err(NOT_SUPPORTED);
    };
    let stored = stored.map(|transposed| if transposed == 1 { Stored::Transposed } else { Stored::Plain });
    let shape = |layout: Layout, stored| match stored {
        Stored::Plain => (layout.rows, layout.cols),
        Stored::Transposed => (layout.cols, layout.rows),
    };
    let ((m, k), (k_of_b, n)) = (shape(a, stored[0]), shape(b, stored[1]));
    let sizes = [m, n, k].map(|size| usize::try_from(size).ok().filter(|size| *size < 1 << 20));
    let [Some(m), Some(n), Some(k)] = sizes else { return Err(NOT_SUPPORTED) };
    if k_of_b != k as u64 || (d.rows, d.cols) != (m as u64, n as u64) {
        return Err(INVALID_VALUE);
    }
    Ok(Product { sizes: [m, n, k], factors, result, stored, rule })
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: u64,
    product: u64,
    a: u64,
    b: u64,
    _c: u64,
    d: u64,
    preference: u64,
    most: c_int,
    candidates: *mut Candidate,
    count: *mut c_int,
) -> Status {
    if with(|all| all.preferences.get(preference).is_none()) || most < 1 {
        return INVALID_VALUE;
    }
    if let Err(status) = described(product, [a, b, d]) {
        return status;
    }
    let algorithm = RawAlgorithm { data: [ALGORITHM, 0, 0, 0, 0, 0, 0, 0] };
    let candidate = Candidate { algorithm, workspace: 0, state: SUCCESS, waves: 1.0, reserved: [0; 4] };
    // SAFETY: the interface asks for a place for at least one candidate.
    let first = unsafe { put(candidates, candidate) };
    // SAFETY: the interface asks for a place for their number.
    first.max(unsafe { put(count, 1) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoConfigGetAttribute(
    algorithm: *const RawAlgorithm,
    attribute: c_uint,
    value: *mut c_void,
    bytes: usize,
    written: *mut usize,
) -> Status {
    // SAFETY: the interface asks for an algorithm or null.
    let is_ours = unsafe { algorithm.as_ref() }.is_some_and(|algorithm| algorithm.data[0] == ALGORITHM);
    // The pieces of each sum.
    if !is_ours || attribute != 2 || bytes != size_of::<i32>() {
        return INVALID_VALUE;
    }
    // SAFETY: the interface asks for a place for N bytes.
    let first = unsafe { put(value.cast::<i32>(), 1) };
    // SAFETY: the interface asks for a place for a size.
    first.max(unsafe { put(written, size_of::<i32>()) })
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cublasLtMatmul(
    _handle: u64,
    product: u64,
    alpha: *const c_void,
    a: u64,
    a_layout: u64,
    b: u64,
    b_layout: u64,
    beta: *const c_void,
    _c: u64,
    _c_layout: u64,
    d: u64,
    d_layout: u64,
    algorithm: *const RawAlgorithm,
    _workspace: u64,
    _workspace_bytes: usize,
    stream: u64,
) -> Status {
    let Ok(process) = entered() else { return NOT_INITIALIZED };
    // SAFETY: the interface asks for an algorithm or null.
    let is_ours = unsafe { algorithm.as_ref() }.is_some_and(|algorithm| algorithm.data[0] == ALGORITHM);
    // SAFETY: the interface asks for two numbers of the host.
    let factors = unsafe { [word(alpha, 4), word(beta, 4)] }.map(|bits| bits.map(f32::from_bits));
    if !is_ours || factors != [Some(1.0), Some(0.0)] {
        return NOT_SUPPORTED;
    }
    let product = match described(product, [a_layout, b_layout, d_layout]) {
        Ok(product) => product,
        Err(status) => return status,
    };
    submit(process, product, [a, b, d].map(DevicePointer), StreamHandle(stream))
}

fn submit(process: &Process, product: Product, [a, b, d]: [DevicePointer; 3], stream: StreamHandle) -> Status {
    let [a_bytes, b_bytes, d_bytes] = product.bytes();
    let work = HostWork {
        call: "cublasLtMatmul",
        reads: vec![(a, a_bytes), (b, b_bytes)],
        writes: vec![(d, d_bytes)],
        compute: Box::new(move |read| vec![product.multiply(&read[0], &read[1])]),
    };
    process.gpu.submit_host_work(stream, work).map_or(EXECUTION_FAILED, |()| SUCCESS)
}
