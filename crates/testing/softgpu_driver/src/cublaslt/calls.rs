//! The functions of the library.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Arc, LazyLock, Mutex};

use gpu::{
    BiasForm, DevicePointer, FactorForm, MatrixElement, MatrixPlaces, MatrixProduct, ProductAlgorithm,
    ProductLibrary as _, ProductLimits, ResultForm, StreamHandle, SumForm,
};
use soft_products::SoftProducts;

use crate::context::entered;
use crate::handles::Handles;

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

/// An end that adds a bias, and one that adds nothing.
const END_WITH_BIAS: u32 = 4;
const PLAIN_END: u32 = 1;

/// Schemes of pieces of sums: none, and pieces in the type of sums, added in a step of their own.
const NO_REDUCTION: u32 = 0;
const REDUCTION_OF_SUMS: u32 = 2;

/// A matrix by columns.
#[derive(Clone, Copy, Debug)]
struct Layout {
    element: c_uint,
    rows: u64,
    cols: u64,
    stride: i64,
}

/// A product.
#[derive(Clone, Copy, Debug)]
struct Description {
    /// Whether the factors are stored as their transposes.
    transposed: [u32; 2],
    end: u32,
    bias: u64,
}

/// Limits of a search.
#[derive(Clone, Copy, Debug)]
struct Preference {
    workspace: u64,
    /// A mask of schemes.
    reductions: u32,
}

/// All that callers have described.
#[derive(Debug, Default)]
struct Descriptions {
    products: Handles<Description>,
    layouts: Handles<Layout>,
    preferences: Handles<Preference>,
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

static DESCRIPTIONS: LazyLock<Mutex<Descriptions>> = LazyLock::new(Mutex::default);

fn with<T>(call: impl FnOnce(&mut Descriptions) -> T) -> T {
    call(&mut sync::lock(&DESCRIPTIONS))
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

/// The value of an attribute of 64 bits.
///
/// # Safety
/// `from` is null or has `bytes` bytes.
unsafe fn long(from: *const c_void, bytes: usize) -> Option<u64> {
    if from.is_null() || bytes != size_of::<u64>() {
        return None;
    }
    // SAFETY: as the caller promises.
    Some(unsafe { from.cast::<u64>().read_unaligned() })
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
        NOT_SUPPORTED => c"a product that the soft GPU does not have",
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
    unsafe { put(product, with(|all| all.products.add(Description { transposed: [0; 2], end: PLAIN_END, bias: 0 }))) }
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
    let (short, long) = unsafe { (word(value, bytes), long(value, bytes)) };
    let change: Box<dyn Fn(&mut Description)> = match (attribute, short, long) {
        // 0 is as it is stored, 1 is transposed.
        (3 | 4, Some(transposed @ (0 | 1)), _) => {
            Box::new(move |product| product.transposed[attribute as usize - 3] = transposed)
        }
        (7, Some(end @ (PLAIN_END | END_WITH_BIAS)), _) => Box::new(move |product| product.end = end),
        (8, _, Some(bias)) => Box::new(move |product| product.bias = bias),
        (3 | 4 | 7 | 8, None, _) => return INVALID_VALUE,
        _ => return NOT_SUPPORTED,
    };
    removed(with(|all| all.products.get_mut(product).map(change).is_some()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut u64,
    element: c_uint,
    rows: u64,
    cols: u64,
    stride: i64,
) -> Status {
    let made = Layout { element, rows, cols, stride };
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put(layout, with(|all| all.layouts.add(made))) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatrixLayoutDestroy(layout: u64) -> Status {
    removed(with(|all| all.layouts.remove(layout).is_some()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut u64) -> Status {
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put(preference, with(|all| all.preferences.add(Preference { workspace: 0, reductions: 7 }))) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulPreferenceDestroy(preference: u64) -> Status {
    removed(with(|all| all.preferences.remove(preference).is_some()))
}

/// Every alignment is enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: u64,
    attribute: c_uint,
    value: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: the interface asks for N bytes.
    let (short, long) = unsafe { (word(value, bytes), long(value, bytes)) };
    let change: Box<dyn Fn(&mut Preference)> = match (attribute, short, long) {
        (1, _, Some(workspace)) => Box::new(move |limits| limits.workspace = workspace),
        (3, Some(reductions), _) => Box::new(move |limits| limits.reductions = reductions),
        (5..=8, Some(alignment), _) if alignment.is_power_of_two() => Box::new(|_| {}),
        (1 | 3 | 5..=8, ..) => return INVALID_VALUE,
        _ => return NOT_SUPPORTED,
    };
    removed(with(|all| all.preferences.get_mut(preference).map(change).is_some()))
}

/// The library of products of the thread's GPU.
///
/// # Errors
/// A thread without one, by the driver's number.
fn library() -> Result<SoftProducts, crate::status::Status> {
    Ok(SoftProducts::new(Arc::clone(&entered()?.gpu)))
}

fn element(number: c_uint) -> Option<MatrixElement> {
    match number {
        0 => Some(MatrixElement::F32),
        2 => Some(MatrixElement::F16),
        14 => Some(MatrixElement::Bf16),
        _ => None,
    }
}

/// The product of these descriptions, by rows, and its bias. The interface's matrices are by columns: its first factor
/// is b, and its second one a.
fn described(product: u64, layouts: [u64; 3], write: ResultForm) -> Result<(MatrixProduct, DevicePointer), Status> {
    let (product, layouts) = with(|all| {
        let layouts = layouts.map(|layout| all.layouts.get(layout).copied());
        (all.products.get(product).copied(), layouts)
    });
    let (Some(product), [Some(b), Some(a), Some(d)]) = (product, layouts) else { return Err(INVALID_VALUE) };
    let [of_a, of_b, of_d] = [a, b, d].map(|layout| element(layout.element));
    let (Some(factors), Some(result)) = (of_a.filter(|element| Some(*element) == of_b), of_d) else {
        return Err(NOT_SUPPORTED);
    };
    let form = |transposed| if transposed == 1 { FactorForm::Transposed } else { FactorForm::Plain };
    let [of_b, of_a] = product.transposed.map(form);
    // Rows and columns of a matrix by rows as it is multiplied.
    let shape = |layout: Layout, form| match form {
        FactorForm::Plain => (layout.cols, layout.rows),
        FactorForm::Transposed => (layout.rows, layout.cols),
    };
    let ((m, k), (k_of_b, n)) = (shape(a, of_a), shape(b, of_b));
    let strides = [a, b, d].map(|layout| u64::try_from(layout.stride).ok().filter(|stride| *stride >= layout.rows));
    let [Some(a_stride), Some(b_stride), Some(d_stride)] = strides else { return Err(INVALID_VALUE) };
    if k_of_b != k || (d.cols, d.rows) != (m, n) {
        return Err(INVALID_VALUE);
    }
    let bias = if product.end == END_WITH_BIAS { BiasForm::Present } else { BiasForm::Absent };
    let dense = MatrixProduct::dense([m, n, k], [factors, result], [of_a, of_b]);
    let product_by_rows = MatrixProduct { strides: [a_stride, b_stride, d_stride], write, bias, ..dense };
    Ok((product_by_rows, DevicePointer(product.bias)))
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
    let Some(limits) = with(|all| all.preferences.get(preference).copied()) else { return INVALID_VALUE };
    let Some(most) = usize::try_from(most).ok().filter(|most| *most > 0) else { return INVALID_VALUE };
    let product = match described(product, [a, b, d], ResultForm::Assigned) {
        Ok((product, _)) => product,
        Err(status) => return status,
    };
    let sums = if limits.reductions & REDUCTION_OF_SUMS != 0 { SumForm::Split } else { SumForm::Unbroken };
    let workspace_bytes = usize::try_from(limits.workspace).unwrap_or(usize::MAX);
    let Ok(library) = library() else { return NOT_INITIALIZED };
    let Ok(found) = library.algorithms(&product, ProductLimits { workspace_bytes, sums, most }) else {
        return EXECUTION_FAILED;
    };
    if found.is_empty() {
        return NOT_SUPPORTED;
    }
    for (index, algorithm) in found.iter().enumerate() {
        let (words, workspace) = (algorithm.words, algorithm.workspace_bytes);
        let algorithm = RawAlgorithm { data: words };
        let candidate = Candidate { algorithm, workspace, state: SUCCESS, waves: 1.0, reserved: [0; 4] };
        // SAFETY: the interface asks for places for as many candidates as the caller wants.
        let status = unsafe { put(candidates.wrapping_add(index), candidate) };
        if status != SUCCESS {
            return status;
        }
    }
    // SAFETY: the interface asks for a place for their number.
    unsafe { put(count, found.len() as c_int) }
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
    let Some(words) = unsafe { algorithm.as_ref() }.map(|algorithm| algorithm.data) else { return INVALID_VALUE };
    let splits = words[1] as u32;
    let part = match attribute {
        2 => splits,
        3 if splits > 1 => REDUCTION_OF_SUMS,
        3 => NO_REDUCTION,
        _ => return NOT_SUPPORTED,
    };
    if bytes != size_of::<u32>() {
        return INVALID_VALUE;
    }
    // SAFETY: the interface asks for a place for N bytes.
    let first = unsafe { put(value.cast::<u32>(), part) };
    // SAFETY: the interface asks for a place for a size.
    first.max(unsafe { put(written, size_of::<u32>()) })
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
    c: u64,
    c_layout: u64,
    d: u64,
    d_layout: u64,
    algorithm: *const RawAlgorithm,
    workspace: u64,
    workspace_bytes: usize,
    stream: u64,
) -> Status {
    let Ok(library) = library() else { return NOT_INITIALIZED };
    // SAFETY: the interface asks for an algorithm or null.
    let Some(words) = unsafe { algorithm.as_ref() }.map(|algorithm| algorithm.data) else { return INVALID_VALUE };
    // SAFETY: the interface asks for two numbers of the host.
    let factors = unsafe { [word(alpha, 4), word(beta, 4)] }.map(|bits| bits.map(f32::from_bits));
    let write = match factors {
        [Some(1.0), Some(0.0)] => ResultForm::Assigned,
        [Some(1.0), Some(1.0)] if (c, c_layout) == (d, d_layout) => ResultForm::Accumulated,
        _ => return NOT_SUPPORTED,
    };
    // The first factor is b.
    let (product, bias) = match described(product, [a_layout, b_layout, d_layout], write) {
        Ok(described) => described,
        Err(status) => return status,
    };
    let places = MatrixPlaces { a: DevicePointer(b), b: DevicePointer(a), d: DevicePointer(d), bias };
    let algorithm = ProductAlgorithm { words, workspace_bytes, splits: words[1] as u32 };
    let submitted = library.multiply(StreamHandle(stream), &product, &algorithm, places, DevicePointer(workspace));
    submitted.map_or(EXECUTION_FAILED, |()| SUCCESS)
}
