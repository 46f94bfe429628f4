//! The calls of cuBLASLt with values and errors.
//!
//! Descriptions, layouts and preferences are made by these calls alone, and each owner destroys its own, so what a call
//! is given is valid.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use gpu::{DevicePointer, StreamHandle};

use super::functions::{
    AlgorithmAttribute, Candidate, ComputeType, Count, DataType, Description, DescriptionAttribute, Functions,
    MatrixLayout, NOT_SUPPORTED, Preference, PreferenceAttribute, RawAlgorithm, RawHandle, SUCCESS, Status, Stream,
    Stride,
};
use super::library::ProductError;

impl Functions {
    /// The library's version: 131000 for 13.10.0.
    pub(super) fn versions(&self) -> (usize, usize) {
        // SAFETY: the call may be made at any time.
        let library = unsafe { (self.version)() };
        // SAFETY: as above.
        (library, unsafe { (self.runtime_version)() })
    }

    fn checked(&self, call: &'static str, status: Status) -> Result<(), ProductError> {
        if status == SUCCESS {
            return Ok(());
        }
        let (name, text) = (self.text(self.status_name, status), self.text(self.status_text, status));
        Err(ProductError { call, status: status.0, text: format!("{name}: {text}") })
    }

    fn text(&self, call: unsafe extern "C" fn(Status) -> *const c_char, status: Status) -> String {
        // SAFETY: the call accepts any number.
        let text = unsafe { call(status) };
        if text.is_null() {
            return format!("status {}", status.0);
        }
        // SAFETY: the library returns a constant text that ends with a zero.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Opens the library for the GPU whose context is that of the calling thread.
    pub(super) fn open_handle(&self) -> Result<RawHandle, ProductError> {
        let mut handle = RawHandle(null_mut());
        // SAFETY: the call writes one address.
        self.checked("cublasLtCreate", unsafe { (self.create)(&mut handle) })?;
        Ok(handle)
    }

    pub(super) fn close_handle(&self, handle: RawHandle) {
        // SAFETY: its owner gives it up. A failure leaks it.
        unsafe { (self.destroy)(handle) };
    }

    pub(super) fn description(&self, sums: ComputeType, factors: DataType) -> Result<Description, ProductError> {
        let mut description = Description(null_mut());
        // SAFETY: the call writes one address.
        let status = unsafe { (self.create_description)(&mut description, sums, factors) };
        self.checked("cublasLtMatmulDescCreate", status)?;
        Ok(description)
    }

    /// Sets a part of a description by its bytes, as many as the attribute has.
    pub(super) fn describe(
        &self,
        description: Description,
        attribute: DescriptionAttribute,
        value: &[u8],
    ) -> Result<(), ProductError> {
        // SAFETY: the call reads the bytes, and refuses a size that is not the attribute's.
        let status =
            unsafe { (self.set_description)(description, attribute, value.as_ptr().cast::<c_void>(), value.len()) };
        self.checked("cublasLtMatmulDescSetAttribute", status)
    }

    pub(super) fn destroy_description(&self, description: Description) {
        // SAFETY: its owner gives it up. A failure leaks it.
        unsafe { (self.destroy_description)(description) };
    }

    pub(super) fn layout(
        &self,
        element: DataType,
        (rows, columns, stride): (u64, u64, i64),
    ) -> Result<MatrixLayout, ProductError> {
        let mut layout = MatrixLayout(null_mut());
        // SAFETY: the call writes one address.
        let status = unsafe { (self.create_layout)(&mut layout, element, Count(rows), Count(columns), Stride(stride)) };
        self.checked("cublasLtMatrixLayoutCreate", status)?;
        Ok(layout)
    }

    pub(super) fn destroy_layout(&self, layout: MatrixLayout) {
        // SAFETY: its owner gives it up. A failure leaks it.
        unsafe { (self.destroy_layout)(layout) };
    }

    pub(super) fn preference(&self) -> Result<Preference, ProductError> {
        let mut preference = Preference(null_mut());
        // SAFETY: the call writes one address.
        self.checked("cublasLtMatmulPreferenceCreate", unsafe { (self.create_preference)(&mut preference) })?;
        Ok(preference)
    }

    /// Sets a limit by its bytes, as many as the attribute has.
    pub(super) fn prefer(
        &self,
        preference: Preference,
        attribute: PreferenceAttribute,
        value: &[u8],
    ) -> Result<(), ProductError> {
        // SAFETY: the call reads the bytes, and refuses a size that is not the attribute's.
        let status =
            unsafe { (self.set_preference)(preference, attribute, value.as_ptr().cast::<c_void>(), value.len()) };
        self.checked("cublasLtMatmulPreferenceSetAttribute", status)
    }

    pub(super) fn destroy_preference(&self, preference: Preference) {
        // SAFETY: its owner gives it up. A failure leaks it.
        unsafe { (self.destroy_preference)(preference) };
    }

    /// Up to `most` algorithms, the fastest by the library's estimate first; none where no algorithm fits.
    pub(super) fn search(
        &self,
        handle: RawHandle,
        description: Description,
        [a, b, d]: [MatrixLayout; 3],
        preference: Preference,
        most: usize,
    ) -> Result<Vec<Candidate>, ProductError> {
        let (mut all, mut count) = (vec![Candidate::default(); most], 0);
        let asked = c_int::try_from(most).unwrap_or(c_int::MAX);
        // SAFETY: all are valid; the call writes up to `most` candidates and their number.
        let status = unsafe {
            (self.candidates)(handle, description, a, b, d, d, preference, asked, all.as_mut_ptr(), &mut count)
        };
        if status == NOT_SUPPORTED {
            return Ok(vec![]);
        }
        self.checked("cublasLtMatmulAlgoGetHeuristic", status)?;
        all.truncate(usize::try_from(count).unwrap_or(0));
        all.retain(|candidate| candidate.state == SUCCESS.0);
        Ok(all)
    }

    /// A part of an algorithm: of 32 bits.
    pub(super) fn part(&self, algorithm: &RawAlgorithm, part: AlgorithmAttribute) -> Result<u32, ProductError> {
        let (mut value, mut written): (u32, usize) = (0, 0);
        let place = (&raw mut value).cast();
        // SAFETY: the part is of 32 bits, which the call writes, and the number of bytes.
        let status = unsafe { (self.algorithm_part)(algorithm, part, place, size_of::<u32>(), &mut written) };
        self.checked("cublasLtMatmulAlgoConfigGetAttribute", status)?;
        Ok(value)
    }

    /// Multiplies as work of a stream: `[a, b, d]`, the factor of what d had, a workspace and its size.
    pub(super) fn submit(
        &self,
        (handle, description): (RawHandle, Description),
        [(a, a_layout), (b, b_layout), (d, d_layout)]: [(DevicePointer, MatrixLayout); 3],
        kept: f32,
        algorithm: &RawAlgorithm,
        (workspace, workspace_bytes): (DevicePointer, usize),
        stream: StreamHandle,
    ) -> Result<(), ProductError> {
        let one = 1.0f32;
        let address = |pointer: DevicePointer| pointer.0 as *mut c_void;
        let stream = Stream(stream.0 as *mut c_void);
        // SAFETY: all are valid; both factors live during the call. Matrices are addresses of the GPU, which the host
        // does not read.
        let status = unsafe {
            (self.multiply)(
                handle,
                description,
                (&raw const one).cast(),
                address(a),
                a_layout,
                address(b),
                b_layout,
                (&raw const kept).cast(),
                address(d),
                d_layout,
                address(d),
                d_layout,
                algorithm,
                address(workspace),
                workspace_bytes,
                stream,
            )
        };
        self.checked("cublasLtMatmul", status)
    }
}
