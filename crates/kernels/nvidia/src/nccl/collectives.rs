//! The collectives and messages of NCCL: the declaration of each function, and its call with values and errors.
//!
//! The handle that a call is given is that of a communicator that its owner has not ended. Buffers are addresses of the
//! GPU, which the host does not read.

use std::ffi::{c_int, c_void};

use gpu::{DevicePointer, StreamHandle};

use super::calls::{address, data_type, int, queue};
use super::communicator::{CollectiveError, Communicator, Element, Progress};
use super::functions::{DataType, Functions, RawCommunicator, Reduction, SUM, Status, Stream};
use crate::table::functions;

functions! {
    /// See the module.
    Collectives {
        all_reduce = "ncclAllReduce": (
            *const c_void, *mut c_void, usize, DataType, Reduction, RawCommunicator, Stream
        ) -> Status;
        reduce_scatter = "ncclReduceScatter": (
            *const c_void, *mut c_void, usize, DataType, Reduction, RawCommunicator, Stream
        ) -> Status;
        all_gather = "ncclAllGather": (*const c_void, *mut c_void, usize, DataType, RawCommunicator, Stream) -> Status;
        send = "ncclSend": (*const c_void, usize, DataType, c_int, RawCommunicator, Stream) -> Status;
        receive = "ncclRecv": (*mut c_void, usize, DataType, c_int, RawCommunicator, Stream) -> Status;
    }
}

/// The arguments of a call on buffers, in the library's types.
struct Arguments {
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: DataType,
    communicator: RawCommunicator,
    stream: Stream,
}

impl Communicator {
    /// Submits a call on buffers.
    fn submit(
        &self,
        name: &'static str,
        (from, to): (DevicePointer, DevicePointer),
        (count, element): (usize, Element),
        stream: StreamHandle,
        call: impl FnOnce(&Collectives, Arguments) -> Status,
    ) -> Result<Progress, CollectiveError> {
        self.with(name, |functions, communicator| {
            let (kind, stream) = (data_type(element), queue(stream));
            let arguments = Arguments { from: address(from), to: address(to), count, kind, communicator, stream };
            functions.progress(name, Some(communicator), call(&self.library.collectives, arguments))
        })
    }

    /// `to[count]` of every rank becomes the sum of all `from[count]`, in an order of the library's choice.
    ///
    /// # Errors
    /// An earlier failure of this communicator.
    pub fn all_reduce(
        &self,
        places: (DevicePointer, DevicePointer),
        amount: (usize, Element),
        stream: StreamHandle,
    ) -> Result<Progress, CollectiveError> {
        self.submit("ncclAllReduce", places, amount, stream, |calls, it| {
            // SAFETY: see the module.
            unsafe { (calls.all_reduce)(it.from, it.to, it.count, it.kind, SUM, it.communicator, it.stream) }
        })
    }

    /// `to[count]` becomes this rank's piece of the sum of all `from[ranks, count]`.
    ///
    /// # Errors
    /// An earlier failure of this communicator.
    pub fn reduce_scatter(
        &self,
        places: (DevicePointer, DevicePointer),
        amount: (usize, Element),
        stream: StreamHandle,
    ) -> Result<Progress, CollectiveError> {
        self.submit("ncclReduceScatter", places, amount, stream, |calls, it| {
            // SAFETY: see the module.
            unsafe { (calls.reduce_scatter)(it.from, it.to, it.count, it.kind, SUM, it.communicator, it.stream) }
        })
    }

    /// `to[ranks, count]` becomes all ranks' `from[count]`.
    ///
    /// # Errors
    /// An earlier failure of this communicator.
    pub fn all_gather(
        &self,
        places: (DevicePointer, DevicePointer),
        amount: (usize, Element),
        stream: StreamHandle,
    ) -> Result<Progress, CollectiveError> {
        self.submit("ncclAllGather", places, amount, stream, |calls, it| {
            // SAFETY: see the module.
            unsafe { (calls.all_gather)(it.from, it.to, it.count, it.kind, it.communicator, it.stream) }
        })
    }

    /// Submits the messages that `messages` makes as one call: none of them waits for the end of another one.
    ///
    /// The communicator is locked from the first message to the end. The library keeps a group's job in the
    /// communicator, and a poll or an abort of another thread would free it meanwhile.
    ///
    /// # Errors
    /// An earlier failure of this communicator, or the first error of a message.
    pub fn together(
        &self,
        messages: impl FnOnce(&Messages<'_>) -> Result<(), CollectiveError>,
    ) -> Result<Progress, CollectiveError> {
        self.with("ncclGroupEnd", |functions, communicator| {
            functions.start_group()?;
            let made = messages(&Messages { functions, calls: &self.library.collectives, communicator });
            let ended = functions.end_group();
            made?;
            ended
        })
    }
}

/// Messages of one call: see [`Communicator::together`].
pub struct Messages<'a> {
    functions: &'a Functions,
    calls: &'a Collectives,
    communicator: RawCommunicator,
}

impl Messages<'_> {
    /// Sends `count` elements to `peer`, which receives them.
    ///
    /// # Errors
    /// An earlier failure of the communicator.
    pub fn send(
        &self,
        from: DevicePointer,
        (count, element): (usize, Element),
        peer: usize,
        stream: StreamHandle,
    ) -> Result<(), CollectiveError> {
        let (from, kind, stream) = (address(from), data_type(element), queue(stream));
        // SAFETY: see the module.
        let status = unsafe { (self.calls.send)(from, count, kind, int(peer), self.communicator, stream) };
        self.functions.progress("ncclSend", Some(self.communicator), status).map(|_| ())
    }

    /// Receives `count` elements from `peer`, which sends them.
    ///
    /// # Errors
    /// An earlier failure of the communicator.
    pub fn receive(
        &self,
        to: DevicePointer,
        (count, element): (usize, Element),
        peer: usize,
        stream: StreamHandle,
    ) -> Result<(), CollectiveError> {
        let (to, kind, stream) = (address(to), data_type(element), queue(stream));
        // SAFETY: see the module.
        let status = unsafe { (self.calls.receive)(to, count, kind, int(peer), self.communicator, stream) };
        self.functions.progress("ncclRecv", Some(self.communicator), status).map(|_| ())
    }
}
