//! Streams, events, code and memory by handle: each is destroyed after its last use, by whichever thread that is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gpu::{DriverError, DriverErrorKind};
use sync::lock;

use super::calls::entry::Api;
use super::calls::memory::{Pinned, Range};
use super::context::Context;
use super::functions::{Event, ExecutableGraph, Graph, Module, Stream};

/// A thing of the driver that is destroyed.
pub(super) trait Destroy: Copy {
    /// Its noun in messages.
    const NOUN: &'static str;

    /// Its number, which no other live thing of its kind has.
    fn number(self) -> u64;

    /// Destroys it.
    fn destroy(self, api: &Api) -> Result<(), DriverError>;
}

/// A thing, and the context that it lives in.
pub(super) struct Owned<T: Destroy> {
    raw: T,
    context: Arc<Context>,
    state: State,
    one_at_a_time: Mutex<()>,
}

/// Whether a thing is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    Destroyed,
}

impl<T: Destroy> Owned<T> {
    /// The thing, valid as long as this lives.
    pub(super) fn raw(&self) -> T {
        self.raw
    }

    /// Runs `action` while no other thread runs one on this thing.
    pub(super) fn alone<R>(&self, action: impl FnOnce(T) -> R) -> R {
        let _guard = lock(&self.one_at_a_time);
        action(self.raw)
    }

    fn destroy(&mut self) -> Result<(), DriverError> {
        match self.state {
            State::Destroyed => Ok(()),
            State::Live => {
                self.state = State::Destroyed;
                self.raw.destroy(self.context.enter()?)
            }
        }
    }
}

impl<T: Destroy> Drop for Owned<T> {
    fn drop(&mut self) {
        // `Registry::remove` reports the failure where it is the last user.
        let _ = self.destroy();
    }
}

/// All live things of a kind, by number.
pub(super) struct Registry<T: Destroy> {
    live: Mutex<BTreeMap<u64, Arc<Owned<T>>>>,
}

impl<T: Destroy> Default for Registry<T> {
    fn default() -> Registry<T> {
        Registry { live: Mutex::new(BTreeMap::new()) }
    }
}

impl<T: Destroy> Registry<T> {
    /// Adds a thing, and returns its number.
    pub(super) fn add(&self, raw: T, context: &Arc<Context>) -> u64 {
        let number = raw.number();
        let owned = Owned { raw, context: context.clone(), state: State::Live, one_at_a_time: Mutex::new(()) };
        lock(&self.live).insert(number, Arc::new(owned));
        number
    }

    /// The thing with a number, kept alive by its user.
    pub(super) fn get(&self, call: &'static str, number: u64) -> Result<Arc<Owned<T>>, DriverError> {
        lock(&self.live).get(&number).cloned().ok_or_else(|| unknown::<T>(call, number))
    }

    /// The thing with the greatest number up to `number`.
    pub(super) fn last_up_to(&self, number: u64) -> Option<T> {
        lock(&self.live).range(..=number).next_back().map(|(_, owned)| owned.raw)
    }

    /// Destroys the thing with a number, once no other thread uses it.
    pub(super) fn remove(&self, call: &'static str, number: u64) -> Result<(), DriverError> {
        let removed = lock(&self.live).remove(&number).ok_or_else(|| unknown::<T>(call, number))?;
        Arc::into_inner(removed).map_or(Ok(()), |mut last| last.destroy())
    }
}

fn unknown<T: Destroy>(call: &'static str, number: u64) -> DriverError {
    let text = format!("{} {number:#x} does not exist here, or was destroyed", T::NOUN);
    DriverError { call, kind: DriverErrorKind::InvalidArgument, text }
}

impl Destroy for Stream {
    const NOUN: &'static str = "stream";

    fn number(self) -> u64 {
        self.0 as u64
    }

    fn destroy(self, api: &Api) -> Result<(), DriverError> {
        api.destroy_stream(self)
    }
}

impl Destroy for Event {
    const NOUN: &'static str = "event";

    fn number(self) -> u64 {
        self.0 as u64
    }

    fn destroy(self, api: &Api) -> Result<(), DriverError> {
        api.destroy_event(self)
    }
}

impl Destroy for Module {
    const NOUN: &'static str = "module";

    fn number(self) -> u64 {
        self.0 as u64
    }

    fn destroy(self, api: &Api) -> Result<(), DriverError> {
        api.unload(self)
    }
}

impl Destroy for ExecutableGraph {
    const NOUN: &'static str = "graph";

    fn number(self) -> u64 {
        self.0 as u64
    }

    fn destroy(self, api: &Api) -> Result<(), DriverError> {
        api.destroy_graph(self)
    }
}

impl Destroy for Graph {
    const NOUN: &'static str = "description of graph";

    fn number(self) -> u64 {
        self.0 as u64
    }

    fn destroy(self, api: &Api) -> Result<(), DriverError> {
        api.destroy_original(self)
    }
}

impl Destroy for Range {
    const NOUN: &'static str = "memory at";

    fn number(self) -> u64 {
        self.address
    }

    fn destroy(self, api: &Api) -> Result<(), DriverError> {
        api.unmap(self)
    }
}

impl Destroy for Pinned {
    const NOUN: &'static str = "pinned memory";

    fn number(self) -> u64 {
        Pinned::number(self)
    }

    fn destroy(self, api: &Api) -> Result<(), DriverError> {
        api.free_pinned(self)
    }
}
