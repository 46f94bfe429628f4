//! Everything that the thread of the control channel and the threads of the run both see.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use sync::lock;

use crate::failure::{ProcessFailure, StopSignal};
use crate::message::Message;

/// Called once, with the failure that ended the run.
pub(crate) type Callback = Box<dyn FnOnce(&ProcessFailure) + Send>;

/// The shared state, and its changes.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
}

/// See [`Shared`].
#[derive(Default)]
pub(crate) struct State {
    /// The first failure that this process heard of.
    pub(crate) failure: Option<ProcessFailure>,
    /// The first signal to stop.
    pub(crate) stop: Option<StopSignal>,
    pub(crate) callbacks: Vec<Callback>,
    /// Messages that the thread has not taken yet.
    pub(crate) outbox: Vec<(To, Message)>,
    /// Parcels by topic and sender, in the order in which they were sent.
    pub(crate) inbox: BTreeMap<(String, usize), VecDeque<Vec<u8>>>,
    /// Processes that said goodbye.
    pub(crate) left: BTreeSet<usize>,
    /// Whether everything is with the system.
    pub(crate) is_flushed: bool,
    /// How far this process wants to be done.
    pub(crate) ending: Ending,
    /// Whether the thread has ended.
    pub(crate) is_over: bool,
    /// Once the run has failed: when this process heard of it, and the processes that it still waits for. Process 0
    /// waits for a sign of life of each other one, and others wait for the end of process 0.
    pub(crate) awaited: Option<(Instant, BTreeSet<usize>)>,
}

/// The receivers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// Of process 0 all others, of others process 0.
    All,
    /// One process of those.
    One(usize),
}

/// See [`State::ending`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The run continues.
    #[default]
    Not,
    /// Goodbye, then the end once all that need this process are done.
    Goodbye,
    /// The end at once; queued messages are sent first.
    AtOnce,
}

impl Shared {
    /// Notes a failure; the first one counts. Returns whether it is the first.
    pub(crate) fn note_failure(&self, failure: &ProcessFailure) -> bool {
        let callbacks = {
            let mut state = lock(&self.state);
            if state.failure.is_some() {
                return false;
            }
            state.failure = Some(failure.clone());
            std::mem::take(&mut state.callbacks)
        };
        self.changed.notify_all();
        for callback in callbacks {
            callback(failure);
        }
        true
    }

    /// Notes a signal to stop; the first one counts. Returns whether it is the first.
    pub(crate) fn note_stop(&self, stop_signal: &StopSignal) -> bool {
        let mut state = lock(&self.state);
        let is_first = state.stop.is_none();
        state.stop.get_or_insert_with(|| stop_signal.clone());
        drop(state);
        self.changed.notify_all();
        is_first
    }
}
