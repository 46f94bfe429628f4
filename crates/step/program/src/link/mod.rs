//! Programs linked into one graph of events: sends are paired with receives, collectives across pipeline ranks are
//! merged.

mod collectives;
mod order;
mod pairs;

use crate::{Instr, Program, Violation, Waits};

pub(crate) use order::StreamOrder;

/// An instruction of a program in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event {
    /// Pipeline index of the program.
    pub rank: usize,
    /// Index in the program.
    pub index: usize,
}

/// The events that an event waits for, in addition to those before it on its rank. Derived from effects; the one source
/// for the verifier, simulators and executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait<'a> {
    /// Nothing: it starts when its rank reaches it.
    Nothing,
    /// A receive waits for its send.
    Send(Event),
    /// A collective waits for all of its members, itself included.
    Members(&'a [Event]),
}

/// Linked programs of one step. It exists only if sends and receives match, collectives match, and the step ends.
#[derive(Clone, Debug)]
pub struct StepGraph {
    programs: Vec<Program>,
    transfers: pairs::Transfers,
    collectives: collectives::Collectives,
    clocks: order::Clocks,
}

impl StepGraph {
    /// The graph of programs, in order of their pipeline index; or these programs, with all violations of `pairs` and
    /// `collectives`, or, where there are none, of `progress`.
    pub(crate) fn of(programs: Vec<Program>) -> Result<StepGraph, (Vec<Program>, Vec<Violation>)> {
        let (transfers, mut violations) = pairs::pair(&programs);
        let (collectives, mismatches) = collectives::join(&programs);
        violations.extend(mismatches);
        let clocks = match violations.is_empty() {
            true => order::run(&programs, &transfers, &collectives),
            false => Err(violations),
        };
        match clocks {
            Ok(clocks) => Ok(StepGraph { programs, transfers, collectives, clocks }),
            Err(violations) => Err((programs, violations)),
        }
    }

    /// The programs by pipeline index.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The instruction of an event.
    pub fn instr(&self, event: Event) -> Instr {
        self.programs[event.rank].instrs[event.index]
    }

    /// The events that an event waits for.
    pub fn wait(&self, event: Event) -> Wait<'_> {
        match (self.transfers.send_of(event), self.collectives.members(event)) {
            (Some(send), _) => Wait::Send(send),
            (None, Some(members)) => Wait::Members(members),
            (None, None) => Wait::Nothing,
        }
    }

    /// The receive of a send.
    pub fn receive_of(&self, send: Event) -> Option<Event> {
        self.transfers.receive_of(send)
    }

    /// Whether the event receives.
    pub fn is_receive(&self, event: Event) -> bool {
        self.transfers.send_of(event).is_some()
    }

    /// Whether `first` has ended before `second` starts, on any engine that issues in program order.
    pub fn happens_before(&self, first: Event, second: Event) -> bool {
        self.clocks.happens_before(first, second)
    }

    /// The order of events on an engine with a queue for each stream, where each rank waits as `waits` has it for its
    /// index.
    pub(crate) fn stream_order(&self, waits: &[Waits]) -> StreamOrder {
        order::run_streams(&self.programs, &self.transfers, &self.collectives, waits)
    }

    /// The first event of `rank` before which `event` has happened: only from there on may `rank` reuse what `event`
    /// read.
    pub fn first_after(&self, event: Event, rank: usize) -> Option<usize> {
        self.clocks.first_after(event, rank, self.programs[rank].instrs.len())
    }
}
