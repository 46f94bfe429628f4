//! Running linked programs on the weakest engine, and the order of events that follows.
//!
//! The engine has one queue per rank, in program order. A send is posted and does not block; a receive blocks until its
//! send is posted; a collective blocks until all of its members are at it. An engine that does more at once reaches
//! at least as far.
//!
//! One rank per pipeline index stands for all of its data- and tensor-parallel peers: they run the same program, so
//! each waits in a collective among them only until the others have come as far, which by induction they do.

use super::Event;
use super::collectives::Collectives;
use super::pairs::Transfers;
use crate::{Program, Rule, Violation};

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

/// How far each rank is.
struct Run<'a> {
    programs: &'a [Program],
    transfers: &'a Transfers,
    collectives: &'a Collectives,
    next: Vec<usize>,
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
    let num_ranks = programs.len();
    let of_rank = programs.iter().map(|program| Vec::with_capacity(program.instrs.len() * num_ranks)).collect();
    let clocks = Clocks { of_rank };
    let (next, clock) = (vec![0; num_ranks], vec![0; num_ranks]);
    let mut run = Run { programs, transfers, collectives, next, clocks, clock };
    let mut advanced = true;
    while std::mem::take(&mut advanced) {
        for rank in 0..num_ranks {
            while !run.ended(rank) && run.blocked_by(rank).is_none() {
                run.execute(Event { rank, index: run.next[rank] });
                advanced = true;
            }
        }
    }
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
        let sources = members.iter().map(|member| (member.rank, member.index.checked_sub(1)));
        let sources = sources.chain(self.transfers.send_of(event).map(|send| (send.rank, Some(send.index))));
        let num_ranks = self.programs.len();
        self.clock.fill(0);
        for (rank, index) in sources.filter_map(|(rank, index)| Some((rank, index?))) {
            let source = &self.clocks.of_rank[rank][index * num_ranks..(index + 1) * num_ranks];
            for (own, other) in self.clock.iter_mut().zip(source) {
                *own = (*own).max(*other);
            }
        }
        for member in members {
            self.clock[member.rank] = member.index as u32 + 1;
        }
        for member in members {
            self.clocks.of_rank[member.rank].extend_from_slice(&self.clock);
            self.next[member.rank] += 1;
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
