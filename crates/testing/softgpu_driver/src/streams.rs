//! Streams, events and captures.

use std::ffi::c_uint;

use gpu::{DriverError, EventHandle, Gpu, StreamHandle};

use crate::context::{Context, entered};
use crate::memory::enter;
use crate::status::{INVALID_VALUE, NOT_READY, Status, code, of, put_result};

/// A stream that waits for no other one.
const NON_BLOCKING: c_uint = 1;
/// A stream's event or capture that is in the wrong state.
const ILLEGAL_STATE: Status = 401;

/// The result of a question about work.
fn ended(context: &Context, answer: Result<bool, DriverError>) -> Status {
    match answer {
        Ok(true) => of(context.end_copies()),
        Ok(false) => NOT_READY,
        Err(error) => code(&error),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut u64, flags: c_uint) -> Status {
    let context = enter!();
    if flags != NON_BLOCKING {
        return INVALID_VALUE;
    }
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put_result(stream, context.gpu.create_stream().map(|stream| stream.0)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: u64) -> Status {
    let context = enter!();
    let stream = StreamHandle(stream);
    // The driver lets the work of a destroyed stream end.
    let ended = context.gpu.synchronize(stream).and_then(|()| context.end_copies());
    of(ended.and(context.gpu.destroy_stream(stream)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: u64) -> Status {
    let context = enter!();
    of(context.gpu.synchronize(StreamHandle(stream)).and_then(|()| context.end_copies()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(stream: u64) -> Status {
    let context = enter!();
    ended(context, context.gpu.has_ended(StreamHandle(stream)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, flags: c_uint) -> Status {
    let context = enter!();
    if flags != 0 { INVALID_VALUE } else { of(context.gpu.wait(StreamHandle(stream), EventHandle(event))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut u64, flags: c_uint) -> Status {
    let context = enter!();
    if flags > 3 {
        return INVALID_VALUE;
    }
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put_result(event, context.gpu.create_event().map(|event| event.0)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: u64) -> Status {
    of(enter!().gpu.destroy_event(EventHandle(event)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: u64, stream: u64) -> Status {
    of(enter!().gpu.record(EventHandle(event), StreamHandle(stream)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: u64) -> Status {
    let context = enter!();
    ended(context, context.gpu.is_reached(EventHandle(event)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(ms: *mut f32, from: u64, to: u64) -> Status {
    let elapsed = enter!().gpu.elapsed_ms(EventHandle(from), EventHandle(to));
    // SAFETY: the interface asks for a place for a time.
    unsafe { put_result(ms, elapsed) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: u64, mode: c_uint) -> Status {
    let context = enter!();
    if mode > 2 {
        return INVALID_VALUE;
    }
    let begun = context.gpu.begin_capture(StreamHandle(stream));
    if begun.is_ok() {
        sync::lock(&context.captured).push(StreamHandle(stream));
    }
    of(begun)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> Status {
    let context = enter!();
    let stream = StreamHandle(stream);
    let was_captured = {
        let mut captured = sync::lock(&context.captured);
        let place = captured.iter().position(|other| *other == stream);
        place.map(|place| captured.remove(place)).is_some()
    };
    if !was_captured {
        return ILLEGAL_STATE;
    }
    let ended = context.gpu.end_capture(stream).map(|graph| {
        sync::lock(&context.graphs).insert(graph, 1);
        graph.0
    });
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put_result(graph, ended) }
}
