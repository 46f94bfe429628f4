//! Work of libraries that are not kernels, and points that a stream may wait for before another stream has them: what
//! stands in for products and collectives of NVIDIA's libraries.

use std::sync::Arc;

use gpu::{DriverError, DriverErrorKind, Gpu as _, StreamHandle};

use crate::soft_gpu::SoftGpu;
use crate::state::{State, invalid};
use crate::streams::{Clock, HostWork, Point, Queue, Work};

/// Pieces of work that run before other threads may submit some.
const WORK_OF_AN_ADVANCE: usize = 8;

/// A point that streams wait for, and that some stream will have. It is kept once, or broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise(Point);

impl SoftGpu {
    /// Runs some of the work that may run now, as other GPUs do by themselves.
    pub fn advance(&self) {
        let mut state = sync::lock(&self.state);
        for _ in 0..WORK_OF_AN_ADVANCE {
            if !state.run_any() {
                return;
            }
        }
    }

    /// Submits work that a function of the host computes, in the order of the stream.
    ///
    /// # Errors
    /// Memory that is not allocated; a stream that does not exist; an earlier failure.
    pub fn submit_host_work(&self, stream: StreamHandle, work: HostWork) -> Result<(), DriverError> {
        {
            let state = sync::lock(&self.state);
            for (pointer, bytes) in work.reads.iter().chain(&work.writes) {
                SoftGpu::check_range(&state, work.call, *pointer, *bytes)?;
            }
        }
        self.submit(work.call, stream, Work::Host(Arc::new(work)))
    }

    /// A point that no stream has yet. While there are such, who waits for the end of a stream waits for other threads.
    ///
    /// # Errors
    /// An earlier failure.
    pub fn promise(&self) -> Result<Promise, DriverError> {
        let mut state = sync::lock(&self.state);
        state.check("promise")?;
        let point = state.points.add();
        state.promised.insert(point);
        Ok(Promise(point))
    }

    /// Lets `stream` begin what follows after a promised point.
    ///
    /// # Errors
    /// A stream that does not exist, or that is captured; an earlier failure.
    pub fn wait_for_promise(&self, stream: StreamHandle, Promise(point): Promise) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        if state.captures.iter().any(|capture| capture.has_stream(stream)) {
            return Err(invalid("wait_for_promise", format!("stream {} is being captured", stream.0)));
        }
        state.submit("wait_for_promise", stream, Work::Wait(point))
    }

    /// A kernel of `stream` that runs until a promised point, and then does `end`.
    ///
    /// # Errors
    /// A stream that does not exist, or that is captured; memory that is not allocated; an earlier failure.
    pub fn submit_remote(
        &self,
        stream: StreamHandle,
        Promise(until): Promise,
        end: Option<HostWork>,
    ) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        for (pointer, bytes) in end.iter().flat_map(|work| &work.writes) {
            SoftGpu::check_range(&state, "submit_remote", *pointer, *bytes)?;
        }
        if state.captures.iter().any(|capture| capture.has_stream(stream)) {
            return Err(invalid("submit_remote", format!("stream {} is being captured", stream.0)));
        }
        state.submit("submit_remote", stream, Work::Remote { until, end: end.map(Arc::new) })
    }

    /// A stream that has no hardware queue: of work that stands in for other GPUs.
    ///
    /// # Errors
    /// An earlier failure.
    pub fn create_outside_stream(&self) -> Result<StreamHandle, DriverError> {
        let mut state = sync::lock(&self.state);
        state.check("create_outside_stream")?;
        let handle = StreamHandle(state.handle());
        state.streams.insert(handle, Queue::default());
        state.dealt.keep_outside(handle);
        Ok(handle)
    }

    /// Takes memory without an address, as libraries take it for buffers of their own.
    ///
    /// # Errors
    /// [`DriverErrorKind::OutOfMemory`].
    pub fn take_memory(&self, bytes: u64) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        let free = self.free_bytes(&state);
        if bytes > free {
            let text = format!("{bytes} bytes for a library; {free} of {} are free", self.facts().memory_bytes);
            return Err(DriverError { call: "take_memory", kind: DriverErrorKind::OutOfMemory, text });
        }
        state.taken_bytes += bytes;
        Ok(())
    }

    /// Gives back memory of [`SoftGpu::take_memory`].
    pub fn give_memory_back(&self, bytes: u64) {
        let mut state = sync::lock(&self.state);
        state.taken_bytes = state.taken_bytes.saturating_sub(bytes);
    }

    /// The point is where the work of `stream` so far has ended.
    ///
    /// # Errors
    /// A stream that does not exist, or that is captured; an earlier failure: the promise is broken then. One that is
    /// kept or broken already.
    pub fn keep_promise(&self, Promise(point): Promise, stream: StreamHandle) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        take(&mut state, "keep_promise", point)?;
        let submitted = if state.captures.iter().any(|capture| capture.has_stream(stream)) {
            Err(invalid("keep_promise", format!("stream {} is being captured", stream.0)))
        } else {
            state.submit("keep_promise", stream, Work::Record(point))
        };
        if submitted.is_err() {
            state.points.reach(point, Clock::default());
        }
        submitted
    }

    /// Whether a stream has come to a point. Who asks has not waited for it: work that is submitted afterwards has no
    /// order with what came before.
    ///
    /// # Errors
    /// An earlier failure.
    pub fn has_come(&self, Promise(point): Promise) -> Result<bool, DriverError> {
        let mut state = sync::lock(&self.state);
        state.check("has_come")?;
        Ok(state.points.reached(point).is_some())
    }

    /// Lets streams continue that wait for a point, without an order with any work.
    ///
    /// # Errors
    /// A promise that is kept or broken already.
    pub fn break_promise(&self, Promise(point): Promise) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        take(&mut state, "break_promise", point)?;
        state.points.reach(point, Clock::default());
        Ok(())
    }
}

fn take(state: &mut State, call: &'static str, point: Point) -> Result<(), DriverError> {
    if state.promised.remove(&point) { Ok(()) } else { Err(invalid(call, "the promise was kept or broken before")) }
}
