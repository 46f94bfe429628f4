//! Running linked programs on the weakest engine, and the order of events that follows.
//!
//! The engine has one queue per rank, in program order. A send is posted and does not block; a receive blocks until its
//! send is posted; a collective blocks until all of its members are at it. An engine that does more at once reaches
//! at least as far.
//!
//! One rank per pipeline index stands for all of its data- and tensor-parallel peers: they run the same program, so
//! each waits in a collective among them only until the others have come as far, which by induction they do.

use device::Stream;

use super::Event;
use super::collectives::Collectives;
use super::pairs::Transfers;
use crate::{Program, Rule, Violation, Waits, run_in_turns};

/// A vector clock per event: how many events of each rank have ended when it ends, itself included.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    /// Per rank: the clocks of its events one after the other.
    of_rank: Vec<Vec<u32>>,
}

impl Clocks {
    fn at(&self, event: Event, rank: usize) -> usize {
        self.of_rank[event.rank][event.index * self.of_rank.len() + rank] as usize
    }

    pub(super) fn happens_before(&self, first: Event, second: Event) -> bool {
        first != second && self.at(second, first.rank) > first.index
    }

    /// Clocks grow along a rank, so the first event after is found by bisection.
    pub(super) fn first_after(&self, event: Event, rank: usize, len: usize) -> Option<usize> {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low.midpoint(high);
            if self.happens_before(event, Event { rank, index: middle }) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        (low < len).then_some(low)
    }
}

/// The events of its own rank that an event comes after.
#[derive(Clone, Copy)]
enum Before<'a> {
    /// The whole program up to it: the engine has one queue.
    Program,
    /// Its stream up to it, and what it waits for: the engine has a queue for each stream.
    Stream(&'a [Waits]),
}

/// The order of events on an engine with a queue for each stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamOrder {
    /// Only transfers count.
    clocks: Clocks,
    /// Per rank and stream: indices of its instructions.
    indices: Vec<[Vec<u32>; Stream::COUNT]>,
}

impl StreamOrder {
    /// The first event of `rank` before which the transfer has happened: whoever reuses what it read waits for that
    /// event.
    pub(crate) fn first_after(&self, transfer: Event, rank: usize) -> Option<usize> {
        let of_stream = |indices: &Vec<u32>| {
            let is_before = |index: &u32| !self.clocks.happens_before(transfer, Event { rank, index: *index as usize });
            indices.get(indices.partition_point(is_before)).map(|index| *index as usize)
        };
        self.indices[rank].iter().filter_map(of_stream).min()
    }
}

/// How far each rank is.
struct Run<'a> {
    programs: &'a [Program],
    transfers: &'a Transfers,
    collectives: &'a Collectives,
    before: Before<'a>,
    next: Vec<usize>,
    /// Per rank and stream: the last instruction.
    last: Vec<[Option<usize>; Stream::COUNT]>,
    clocks: Clocks,
    /// Of the event that is executed.
    clock: Vec<u32>,
}

/// Runs all programs to their ends and returns the order.
///
/// # Errors
/// A cycle of ranks that wait for each other.
pub(super) fn run(
    programs: &[Program],
    transfers: &Transfers,
    collectives: &Collectives,
) -> Result<Clocks, Vec<Violation>> {
    ordered(programs, transfers, collectives, Before::Program)
}

/// The order of programs that [`run`] runs to their ends, on an engine with a queue for each stream. It does more at
/// once, so it ends, too.
pub(super) fn run_streams(
    programs: &[Program],
    transfers: &Transfers,
    collectives: &Collectives,
    waits: &[Waits],
) -> StreamOrder {
    let no_clocks = |_| Clocks { of_rank: vec![vec![]; programs.len()] };
    let clocks = ordered(programs, transfers, collectives, Before::Stream(waits)).unwrap_or_else(no_clocks);
    let indices = programs.iter().map(|program| {
        let mut indices: [Vec<u32>; Stream::COUNT] = Default::default();
        for (index, instr) in program.instrs.iter().enumerate() {
            indices[instr.stream().index()].push(index as u32);
        }
        indices
    });
    StreamOrder { clocks, indices: indices.collect() }
}

fn ordered(
    programs: &[Program],
    transfers: &Transfers,
    collectives: &Collectives,
    before: Before<'_>,
) -> Result<Clocks, Vec<Violation>> {
    let num_ranks = programs.len();
    let of_rank = programs.iter().map(|program| Vec::with_capacity(program.instrs.len() * num_ranks)).collect();
    let clocks = Clocks { of_rank };
    let (next, clock) = (vec![0; num_ranks], vec![0; num_ranks]);
    let last = vec![[None; Stream::COUNT]; num_ranks];
    let mut run = Run { programs, transfers, collectives, before, next, last, clocks, clock };
    run_in_turns(num_ranks, |rank| {
        let may_run = !run.ended(rank) && run.blocked_by(rank).is_none();
        if may_run {
            run.execute(Event { rank, index: run.next[rank] });
        }
        may_run
    });
    match (0..num_ranks).find(|rank| !run.ended(*rank)) {
        None => Ok(run.clocks),
        Some(stuck) => Err(vec![Violation::new(Rule::Progress, run.cycle(stuck))]),
    }
}

impl Run<'_> {
    fn ended(&self, rank: usize) -> bool {
        self.next[rank] == self.programs[rank].instrs.len()
    }

    /// The rank that the next instruction of `rank` waits for, or `None` if it can run.
    fn blocked_by(&self, rank: usize) -> Option<usize> {
        let event = Event { rank, index: self.next[rank] };
        let send = self.transfers.send_of(event).filter(|send| self.next[send.rank] <= send.index);
        let members = self.collectives.members(event).unwrap_or(&[]);
        let late = || members.iter().find(|member| self.next[member.rank] != member.index);
        send.as_ref().or_else(late).map(|other| other.rank)
    }

    /// Executes an event that can run; a collective for all of its members.
    fn execute(&mut self, event: Event) {
        let own = [event];
        let members = self.collectives.members(event).unwrap_or(&own);
        self.clock.fill(0);
        for member in members {
            self.join_before(*member);
        }
        if let Some(send) = self.transfers.send_of(event) {
            self.join(send);
        }
        for member in members {
            self.count(*member);
        }
        for member in members {
            self.clocks.of_rank[member.rank].extend_from_slice(&self.clock);
            let stream = self.stream(*member).index();
            self.last[member.rank][stream] = Some(member.index);
            self.next[member.rank] += 1;
        }
    }

    fn stream(&self, event: Event) -> Stream {
        self.programs[event.rank].instrs[event.index].stream()
    }

    /// Adds the clock of an event that has been executed.
    fn join(&mut self, source: Event) {
        let num_ranks = self.programs.len();
        let source = &self.clocks.of_rank[source.rank][source.index * num_ranks..(source.index + 1) * num_ranks];
        for (own, other) in self.clock.iter_mut().zip(source) {
            *own = (*own).max(*other);
        }
    }

    /// Adds what has happened before `event` on its rank.
    fn join_before(&mut self, event: Event) {
        let Event { rank, index } = event;
        match self.before {
            Before::Program => {
                if let Some(index) = index.checked_sub(1) {
                    self.join(Event { rank, index });
                }
            }
            Before::Stream(waits) => {
                let on_stream = self.last[rank][self.stream(event).index()];
                for index in waits[rank].of(index).chain(on_stream) {
                    self.join(Event { rank, index });
                }
            }
        }
    }

    /// Counts `event` on its rank's clock.
    fn count(&mut self, event: Event) {
        let counts = match self.before {
            Before::Program => true,
            // Other streams do not keep in step with transfers, so one number could not say how far both are.
            Before::Stream(_) => self.stream(event) == Stream::Transfer,
        };
        if counts {
            self.clock[event.rank] = event.index as u32 + 1;
        }
    }

    /// Follows from rank to awaited rank until one comes again; every rank on the way is blocked, for an ended rank
    /// has posted all of its sends.
    fn cycle(&self, stuck: usize) -> String {
        let mut path = vec![];
        let mut rank = stuck;
        while !path.contains(&rank) {
            path.push(rank);
            match self.blocked_by(rank) {
                Some(other) if !self.ended(other) => rank = other,
                _ => break,
            }
        }
        let start = path.iter().position(|on_path| *on_path == rank).unwrap_or(0);
        let lines = path[start..].iter().map(|&rank| {
            let index = self.next[rank];
            let other = self.blocked_by(rank).unwrap_or(rank);
            format!(
                "pipeline rank {rank} waits at instruction {index}, `{}`, for pipeline rank {other}",
                self.programs[rank].instrs[index]
            )
        });
        lines.collect::<Vec<_>>().join("; ")
    }
}
