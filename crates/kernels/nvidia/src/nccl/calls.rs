//! The calls of NCCL on communicators, with values and errors.
//!
//! Communicators are made by these calls alone, and their owner in [`super::communicator`] ends them, so a handle that
//! a call is given is valid.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};

use gpu::{DevicePointer, StreamHandle};

use super::communicator::{CollectiveError, Element, Progress};
use super::functions::{
    BF16, BYTES, CONFIG_VERSION, Config, DataType, F32, Functions, I64, IN_PROGRESS, MAGIC, NO_COPY_BLOCKS,
    RawCommunicator, RawId, SUCCESS, Status, Stream, UNDEFINED,
};

/// No call waits for other ranks; collectives of one domain move by copy engines where they can.
fn config() -> Config {
    Config {
        size: size_of::<Config>(),
        magic: MAGIC,
        version: CONFIG_VERSION,
        blocking: 0,
        cluster: UNDEFINED,
        fewest_blocks: UNDEFINED,
        most_blocks: UNDEFINED,
        network: null(),
        split_share: UNDEFINED,
        traffic_class: UNDEFINED,
        name: null(),
        collective_network: UNDEFINED,
        block_policy: NO_COPY_BLOCKS,
        shrink_share: UNDEFINED,
        multicast_blocks: UNDEFINED,
    }
}

pub(super) fn data_type(element: Element) -> DataType {
    match element {
        Element::Bytes => BYTES,
        Element::I64 => I64,
        Element::F32 => F32,
        Element::Bf16 => BF16,
    }
}

pub(super) fn address(pointer: DevicePointer) -> *mut c_void {
    pointer.0 as *mut c_void
}

pub(super) fn queue(stream: StreamHandle) -> Stream {
    Stream(stream.0 as *mut c_void)
}

pub(super) fn int(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

impl Functions {
    /// The library's version: 22807 for 2.28.7.
    pub(super) fn number(&self) -> Result<u32, CollectiveError> {
        let mut version = 0;
        // SAFETY: the call writes one int.
        self.checked("ncclGetVersion", None, unsafe { (self.version)(&mut version) })?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    /// Whether a call is done, or continues in the background.
    pub(super) fn progress(
        &self,
        call: &'static str,
        of: Option<RawCommunicator>,
        status: Status,
    ) -> Result<Progress, CollectiveError> {
        match status {
            SUCCESS => Ok(Progress::Done),
            IN_PROGRESS => Ok(Progress::Continues),
            failed => {
                // SAFETY: the call accepts any number and returns a constant text.
                let text = text(unsafe { (self.error_text)(failed) });
                let of = of.unwrap_or(RawCommunicator(null_mut()));
                // SAFETY: the communicator is valid or null, and the text lives until the next call.
                let detail = text_of_last_error(text, unsafe { (self.last_error)(of) });
                Err(CollectiveError { call, text: detail })
            }
        }
    }

    fn checked(&self, call: &'static str, of: Option<RawCommunicator>, status: Status) -> Result<(), CollectiveError> {
        self.progress(call, of, status).map(|_| ())
    }

    /// A name for a group that will meet.
    pub(super) fn new_id(&self) -> Result<RawId, CollectiveError> {
        let mut id = RawId { internal: [0; 128] };
        // SAFETY: the call writes 128 bytes.
        self.checked("ncclGetUniqueId", None, unsafe { (self.unique_id)(&mut id) })?;
        Ok(id)
    }

    /// Begins to meet the other ranks that have the name.
    pub(super) fn begin(&self, id: RawId, ranks: usize, rank: usize) -> Result<RawCommunicator, CollectiveError> {
        let (mut communicator, mut config) = (RawCommunicator(null_mut()), config());
        let (ranks, rank) = (int(ranks), int(rank));
        // SAFETY: the call writes one address and reads the settings, during the call.
        let status = unsafe { (self.init)(&mut communicator, ranks, id, rank, &mut config) };
        self.checked("ncclCommInitRankConfig", None, status)?;
        Ok(communicator)
    }

    /// The state of the work in the background.
    pub(super) fn poll(&self, communicator: RawCommunicator) -> Result<Progress, CollectiveError> {
        let mut state = SUCCESS;
        // SAFETY: the call writes one number.
        let status = unsafe { (self.async_error)(communicator, &mut state) };
        self.checked("ncclCommGetAsyncError", Some(communicator), status)?;
        self.progress("ncclCommGetAsyncError", Some(communicator), state)
    }

    /// Begins to end a communicator in order, together with the other ranks.
    pub(super) fn finish(&self, communicator: RawCommunicator) -> Result<Progress, CollectiveError> {
        // SAFETY: it is finished once.
        let status = unsafe { (self.finalize)(communicator) };
        self.progress("ncclCommFinalize", Some(communicator), status)
    }

    /// Frees a communicator that is finished.
    pub(super) fn free(&self, communicator: RawCommunicator) -> Result<(), CollectiveError> {
        // SAFETY: its owner gives it up.
        self.checked("ncclCommDestroy", None, unsafe { (self.destroy)(communicator) })
    }

    /// Cancels the work under way, and frees the communicator.
    pub(super) fn stop(&self, communicator: RawCommunicator) -> Result<(), CollectiveError> {
        // SAFETY: its owner gives it up.
        self.checked("ncclCommAbort", None, unsafe { (self.abort)(communicator) })
    }

    /// Calls from here on are submitted together by [`Functions::end_group`], by this thread.
    pub(super) fn start_group(&self) -> Result<(), CollectiveError> {
        // SAFETY: the call has no arguments.
        self.checked("ncclGroupStart", None, unsafe { (self.group_start)() })
    }

    pub(super) fn end_group(&self) -> Result<Progress, CollectiveError> {
        // SAFETY: the call has no arguments.
        self.progress("ncclGroupEnd", None, unsafe { (self.group_end)() })
    }
}

/// A text of the library, empty where there is none.
fn text(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library's texts end with a zero and live until its next call on this thread.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}

fn text_of_last_error(reason: String, last: *const std::ffi::c_char) -> String {
    let last = text(last);
    if last.is_empty() { reason } else { format!("{reason}: {last}") }
}
