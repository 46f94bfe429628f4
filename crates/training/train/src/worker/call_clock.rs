//! The times of the calls of the groups of a rank.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::take;
use std::rc::Rc;
use std::time::{Duration, Instant};

use device::{Call, Communicator, DeviceError, Operation, Stream};
use program::PeerGroup;

use crate::engine::Communicators;

/// Collectives of each group whose times are kept in a step: enough for a comparison, and few enough to be sent.
const KEPT_CALLS: usize = 32;

/// Collectives of one group in a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTimes {
    /// All of them.
    pub count: u64,
    /// Nanoseconds of the first ones, in their order, which is the same on all members.
    pub first_ns: Vec<u64>,
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The calls of the groups of a rank since they were taken last.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Time in calls of all groups since it was read last.
    waited: Duration,
    pub(crate) calls: BTreeMap<usize, CallTimes>,
    pub(crate) received_ns: BTreeMap<usize, u64>,
}

/// Measures the calls of the groups of a rank.
#[derive(Clone, Debug, Default)]
pub struct CallClock(Rc<RefCell<Calls>>);

impl CallClock {
    /// The same groups, whose calls are measured.
    pub(crate) fn timed(&self, communicators: Communicators) -> Communicators {
        let groups: Vec<PeerGroup> = communicators.groups().collect();
        communicators.wrapped(|which, inner| -> Box<dyn Communicator> {
            let index = groups.iter().position(|other| *other == which);
            match inner.size() {
                0 | 1 => inner,
                _ => Box::new(TimedGroup { inner, which, index, clock: self.clone() }),
            }
        })
    }

    /// Time in calls since it was read last.
    pub(crate) fn take_waited(&self) -> Duration {
        take(&mut self.0.borrow_mut().waited)
    }

    /// The calls since they were taken last.
    pub(crate) fn take(&self) -> Calls {
        take(&mut *self.0.borrow_mut())
    }

    /// Forgets the calls before a step.
    pub(crate) fn restart(&self) {
        *self.0.borrow_mut() = Calls::default();
    }
}

struct TimedGroup {
    inner: Box<dyn Communicator>,
    which: PeerGroup,
    /// Its number among the groups of the run; none of the world.
    index: Option<usize>,
    clock: CallClock,
}

impl TimedGroup {
    fn note(&self, call: Call, time: Duration) {
        let mut all = self.clock.0.borrow_mut();
        all.waited += time;
        if let Call::Receive { from, .. } = call
            && self.which == PeerGroup::PIPELINE
        {
            *all.received_ns.entry(from).or_default() += nanoseconds(time);
        }
        if call.operation() != Operation::PointToPoint
            && let Some(index) = self.index
        {
            let calls = all.calls.entry(index).or_default();
            calls.count += 1;
            if calls.first_ns.len() < KEPT_CALLS {
                calls.first_ns.push(nanoseconds(time));
            }
        }
    }
}

impl Communicator for TimedGroup {
    fn size(&self) -> usize {
        self.inner.size()
    }

    fn position(&self) -> usize {
        self.inner.position()
    }

    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        let began = Instant::now();
        let done = self.inner.call(stream, call);
        self.note(call, began.elapsed());
        done
    }
}
