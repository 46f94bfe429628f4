//! The times of a rank in one step: of its own work, without waits for other ranks, and of its calls of each group.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::take;
use std::rc::Rc;
use std::time::{Duration, Instant};

use device::{Communicator, DeviceError, Reduction, Stream, SumTree, Tensor};
use mesh::Rank;
use program::{Instr, PeerGroup};

use crate::engine::Communicators;
use crate::worker::Worker;

/// Collectives of each group whose times are kept in a step: enough for a comparison, and few enough to be sent.
const KEPT_CALLS: usize = 32;

/// Work of a rank that waits for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Tokens are loaded.
    Load,
    /// Forward passes.
    Forward,
    /// Recomputation and backward passes.
    Backward,
    /// Everything else: copies of gradients and parameters, the optimizer.
    Update,
}

impl Work {
    /// All of it, in the order of [`WorkTimes::own_ns`].
    pub const ALL: [Work; 4] = [Work::Load, Work::Forward, Work::Backward, Work::Update];

    fn of(instr: Instr) -> Work {
        match instr {
            Instr::Load { .. } => Work::Load,
            Instr::Forward { .. } => Work::Forward,
            Instr::Recompute { .. } | Instr::BackwardInput { .. } | Instr::BackwardWeight { .. } => Work::Backward,
            Instr::SendAct { .. }
            | Instr::RecvAct { .. }
            | Instr::SendGrad { .. }
            | Instr::RecvGrad { .. }
            | Instr::GatherParams { .. }
            | Instr::FreeParams { .. }
            | Instr::ReduceGrads { .. }
            | Instr::SumTied
            | Instr::GradNorm
            | Instr::OptimizerStep { .. }
            | Instr::FetchState { .. }
            | Instr::OffloadState { .. }
            | Instr::OffloadActs { .. }
            | Instr::FetchActs { .. }
            | Instr::Save { .. } => Work::Update,
        }
    }

    /// For messages.
    pub fn name(self) -> &'static str {
        match self {
            Work::Load => "loading tokens",
            Work::Forward => "forward passes",
            Work::Backward => "backward passes",
            Work::Update => "the update",
        }
    }
}

/// Collectives of one group in a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTimes {
    /// All of them.
    pub count: u64,
    /// Nanoseconds of the first ones, in their order, which is the same on all members.
    pub first_ns: Vec<u64>,
}

/// The times of a rank in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkTimes {
    pub rank: Rank,
    /// Counted from 1.
    pub step: u32,
    /// Nanoseconds of its own work, in the order of [`Work::ALL`].
    pub own_ns: [u64; Work::ALL.len()],
    /// Its collectives, by the index of the group in [`PeerGroup::ALL`].
    pub calls: BTreeMap<usize, CallTimes>,
    /// Nanoseconds in which it waited for what a stage sent, by that stage.
    pub received_ns: BTreeMap<usize, u64>,
}

impl WorkTimes {
    /// Of the step that has just ended on `rank`.
    pub(crate) fn of_step(worker: &Worker<'_>, rank: Rank) -> WorkTimes {
        let mut own_ns = [0; Work::ALL.len()];
        for (instr, issued) in worker.position.program.instrs.iter().zip(&worker.state.issued) {
            if let Some(issued) = issued {
                let own = issued.returned.saturating_duration_since(issued.began).saturating_sub(issued.waited);
                own_ns[Work::of(*instr) as usize] += nanoseconds(own);
            }
        }
        let Calls { calls, received_ns, .. } = take(&mut *worker.ports.calls.0.borrow_mut());
        WorkTimes { rank, step: worker.position.step + 1, own_ns, calls, received_ns }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The calls of the groups of a rank since they were taken last.
#[derive(Debug, Default)]
struct Calls {
    /// Time in calls of all groups since it was read last.
    waited: Duration,
    calls: BTreeMap<usize, CallTimes>,
    received_ns: BTreeMap<usize, u64>,
}

/// Measures the calls of the groups of a rank.
#[derive(Clone, Debug, Default)]
pub struct CallClock(Rc<RefCell<Calls>>);

impl CallClock {
    /// The same groups, whose calls are measured.
    pub(crate) fn timed(&self, communicators: Communicators) -> Communicators {
        communicators.wrapped(|which, inner| -> Box<dyn Communicator> {
            match inner.size() {
                0 | 1 => inner,
                _ => Box::new(TimedGroup { inner, which, clock: self.clone() }),
            }
        })
    }

    /// Time in calls since it was read last.
    pub(crate) fn take_waited(&self) -> Duration {
        take(&mut self.0.borrow_mut().waited)
    }

    /// Forgets the calls before a step.
    pub(crate) fn restart(&self) {
        *self.0.borrow_mut() = Calls::default();
    }
}

struct TimedGroup {
    inner: Box<dyn Communicator>,
    which: PeerGroup,
    clock: CallClock,
}

impl TimedGroup {
    /// Makes a call, and returns its time, too.
    fn waiting(
        &self,
        call: impl FnOnce(&dyn Communicator) -> Result<(), DeviceError>,
    ) -> (Result<(), DeviceError>, Duration) {
        let began = Instant::now();
        let done = call(&*self.inner);
        let time = began.elapsed();
        self.clock.0.borrow_mut().waited += time;
        (done, time)
    }

    fn collective(&self, call: impl FnOnce(&dyn Communicator) -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        let (done, time) = self.waiting(call);
        if let Some(index) = self.which.index() {
            let mut all = self.clock.0.borrow_mut();
            let calls = all.calls.entry(index).or_default();
            calls.count += 1;
            if calls.first_ns.len() < KEPT_CALLS {
                calls.first_ns.push(nanoseconds(time));
            }
        }
        done
    }
}

impl Communicator for TimedGroup {
    fn size(&self) -> usize {
        self.inner.size()
    }

    fn position(&self) -> usize {
        self.inner.position()
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.collective(|inner| inner.all_reduce(stream, x, reduction))
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        self.collective(|inner| inner.reduce_scatter(stream, x, tree))
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.collective(|inner| inner.all_gather(stream, x))
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.collective(|inner| inner.all_to_all(stream, from, to))
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.collective(|inner| inner.shift(stream, from, to))
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.waiting(|inner| inner.send(stream, to, tag, x)).0
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        let (done, time) = self.waiting(|inner| inner.receive(stream, from, tag, x));
        if self.which == PeerGroup::PIPELINE {
            *self.clock.0.borrow_mut().received_ns.entry(from).or_default() += nanoseconds(time);
        }
        done
    }
}
