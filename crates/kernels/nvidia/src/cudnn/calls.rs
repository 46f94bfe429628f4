//! The calls of cuDNN with values and errors.
//!
//! Descriptors are made by these calls alone, and each owner destroys its own, so what a call is given is valid.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use gpu::StreamHandle;

use super::error::AttentionError;
use super::functions::{
    Attribute, AttributeType, Choice, Count, Functions, Kind, OF_ADDRESS, OF_CHARACTER, OF_DESCRIPTOR, OF_FLAG,
    OF_HANDLE, OF_NUMBER, RawDescriptor, RawHandle, SUCCESS, Status, Stream,
};

/// Bytes of the library's words for an error.
const TEXT_BYTES: usize = 1024;

/// A part of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Numbers(&'a [i64]),
    Flag(bool),
    Choice(AttributeType, Choice),
    Descriptors(&'a [RawDescriptor]),
    /// Addresses of the GPU or of the host.
    Addresses(&'a [u64]),
    Handle(RawHandle),
    Text(&'a str),
}

impl Functions {
    /// The library's version: 92801 for 9.28.1.
    pub(super) fn version(&self) -> usize {
        // SAFETY: the call may be made at any time.
        unsafe { (self.version)() }
    }

    fn checked(&self, call: &'static str, status: Status) -> Result<(), AttentionError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the call accepts any number.
        let name = unsafe { (self.status_text)(status) };
        let name = match name.is_null() {
            true => format!("status {}", status.0),
            // SAFETY: the library returns a constant text that ends with a zero.
            false => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
        };
        let mut words = vec![0u8; TEXT_BYTES];
        // SAFETY: the call writes a text of at most as many bytes, with its zero; one byte more stays a zero.
        unsafe { (self.last_error)(words.as_mut_ptr().cast(), TEXT_BYTES - 1) };
        let words = CStr::from_bytes_until_nul(&words).map(CStr::to_string_lossy).unwrap_or_default().into_owned();
        Err(AttentionError { call, status: status.0, text: format!("{name}: {}", words.trim()) })
    }

    /// Opens the library for the GPU whose context is that of the calling thread.
    pub(super) fn open_handle(&self) -> Result<RawHandle, AttentionError> {
        let mut handle = RawHandle(null_mut());
        // SAFETY: the call writes one address.
        self.checked("cudnnCreate", unsafe { (self.create)(&mut handle) })?;
        Ok(handle)
    }

    pub(super) fn close_handle(&self, handle: RawHandle) {
        // SAFETY: its owner gives it up. A failure leaks it.
        unsafe { (self.destroy)(handle) };
    }

    pub(super) fn create(&self, kind: Kind) -> Result<RawDescriptor, AttentionError> {
        let mut descriptor = RawDescriptor(null_mut());
        // SAFETY: the call writes one address.
        let status = unsafe { (self.create_descriptor)(kind, &mut descriptor) };
        self.checked("cudnnBackendCreateDescriptor", status)?;
        Ok(descriptor)
    }

    pub(super) fn destroy(&self, descriptor: RawDescriptor) {
        // SAFETY: its owner gives it up. A failure leaks it.
        unsafe { (self.destroy_descriptor)(descriptor) };
    }

    pub(super) fn finalize(&self, descriptor: RawDescriptor) -> Result<(), AttentionError> {
        // SAFETY: the descriptor exists.
        self.checked("cudnnBackendFinalize", unsafe { (self.finalize)(descriptor) })
    }

    pub(super) fn set(
        &self,
        descriptor: RawDescriptor,
        attribute: Attribute,
        value: Value<'_>,
    ) -> Result<(), AttentionError> {
        let of = |type_, count: usize, start: *const c_void| {
            // SAFETY: the call reads as many elements of the type, and refuses a type that is not the attribute's.
            let status = unsafe { (self.set)(descriptor, attribute, type_, Count(count as i64), start) };
            self.checked("cudnnBackendSetAttribute", status)
        };
        match value {
            Value::Numbers(numbers) => of(OF_NUMBER, numbers.len(), numbers.as_ptr().cast()),
            Value::Flag(flag) => of(OF_FLAG, 1, (&raw const flag).cast()),
            Value::Choice(type_, choice) => of(type_, 1, (&raw const choice.0).cast()),
            Value::Descriptors(all) => of(OF_DESCRIPTOR, all.len(), all.as_ptr().cast()),
            Value::Addresses(all) => of(OF_ADDRESS, all.len(), all.as_ptr().cast()),
            Value::Handle(handle) => of(OF_HANDLE, 1, (&raw const handle).cast()),
            Value::Text(text) => of(OF_CHARACTER, text.len(), text.as_ptr().cast()),
        }
    }

    /// A part that is one number.
    pub(super) fn number(&self, descriptor: RawDescriptor, attribute: Attribute) -> Result<i64, AttentionError> {
        let (mut number, mut count) = (0i64, Count(0));
        let place = (&raw mut number).cast();
        // SAFETY: the call writes one number and a count.
        let status = unsafe { (self.get)(descriptor, attribute, OF_NUMBER, Count(1), &mut count, place) };
        self.checked("cudnnBackendGetAttribute", status)?;
        Ok(number)
    }

    /// A part that is a list of values of an enumeration, `most` of them.
    pub(super) fn choices(
        &self,
        descriptor: RawDescriptor,
        (attribute, type_): (Attribute, AttributeType),
        most: usize,
    ) -> Result<Vec<Choice>, AttentionError> {
        let (mut choices, mut count) = (vec![0i32; most], Count(0));
        let place = choices.as_mut_ptr().cast();
        // SAFETY: the call writes at most as many values of four bytes, and a count.
        let status = unsafe { (self.get)(descriptor, attribute, type_, Count(most as i64), &mut count, place) };
        self.checked("cudnnBackendGetAttribute", status)?;
        let there = usize::try_from(count.0).unwrap_or(0);
        Ok(choices.into_iter().take(there).map(Choice).collect())
    }

    /// Writes a part that is a list of descriptors into `into`, which are of its kind and not finalized. Returns how
    /// many there are, written or not.
    pub(super) fn descriptors(
        &self,
        descriptor: RawDescriptor,
        attribute: Attribute,
        into: &[RawDescriptor],
    ) -> Result<usize, AttentionError> {
        let mut all = into.to_vec();
        let mut count = Count(0);
        let place = if all.is_empty() { null_mut() } else { all.as_mut_ptr().cast() };
        // SAFETY: the call fills the descriptors whose addresses are there, and writes a count.
        let status =
            unsafe { (self.get)(descriptor, attribute, OF_DESCRIPTOR, Count(all.len() as i64), &mut count, place) };
        self.checked("cudnnBackendGetAttribute", status)?;
        Ok(usize::try_from(count.0).unwrap_or(0))
    }

    /// Computes as work of `stream`.
    pub(super) fn execute(
        &self,
        handle: RawHandle,
        stream: StreamHandle,
        plan: RawDescriptor,
        pack: RawDescriptor,
    ) -> Result<(), AttentionError> {
        // SAFETY: the stream is one of the driver's, which are those of the runtime.
        let status = unsafe { (self.set_stream)(handle, Stream(stream.0 as usize as *mut c_void)) };
        self.checked("cudnnSetStream", status)?;
        // SAFETY: the memory of the GPU that the pack names is that of tensors of the plan's sizes and of its
        // workspace, as their owner promises, and that of the host is there until the call returns.
        let status = unsafe { (self.execute)(handle, plan, pack) };
        self.checked("cudnnBackendExecute", status)
    }
}
