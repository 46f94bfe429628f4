//! The event clock: when every instruction of a linked step starts and ends, given what passes and transfers take.

use spec::Unit;
use spec::unit::UnitKind;

use crate::link::{Event, Wait};
use crate::{Instr, PassKind, StepGraph};

/// How long the passes of one unit take, in any common measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTimes {
    /// Forward.
    pub forward: u64,
    /// Computing again what the forward pass did not keep.
    pub recompute: u64,
    /// Backward of the input.
    pub backward_input: u64,
    /// Backward of the weights.
    pub backward_weight: u64,
}

impl PassTimes {
    fn of(&self, kind: PassKind) -> u64 {
        match kind {
            PassKind::Forward => self.forward,
            PassKind::Recompute => self.recompute,
            PassKind::BackwardInput => self.backward_input,
            PassKind::BackwardWeight => self.backward_weight,
        }
    }

    /// All passes of a microbatch together.
    pub fn sum(&self) -> u64 {
        self.forward + self.recompute + self.backward_input + self.backward_weight
    }
}

/// How long everything takes that a rank computes or sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitTimes {
    /// The embedding.
    pub embedding: PassTimes,
    /// One layer.
    pub layer: PassTimes,
    /// The head with the loss.
    pub head: PassTimes,
    /// An activation, or its gradient, from one pipeline rank to the next.
    pub transfer: u64,
}

impl UnitTimes {
    fn of(&self, unit: Unit) -> PassTimes {
        match unit.kind() {
            UnitKind::Table => PassTimes::default(),
            UnitKind::Embedding => self.embedding,
            UnitKind::Layer => self.layer,
            UnitKind::Head => self.head,
        }
    }

    /// Time of an instruction on the queue that computes. Transfers have a queue of their own; reductions, norm and optimizer come after
    /// the pipeline and are not timed.
    fn compute(&self, instr: Instr) -> Option<u64> {
        instr.pass().map(|pass| self.of(pass.unit).of(pass.kind))
    }
}

/// When the instructions of a step run: the longest path through its graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTimes {
    /// Per pipeline rank and instruction: start and end.
    pub ranks: Vec<Vec<(u64, u64)>>,
    bubble: Bubble,
}

/// What a step takes beside what it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bubble {
    /// What the rank computes that computes most.
    pub busy: u64,
    /// The longest time that a rank takes from the start of its first pass to the end of its last.
    pub span: u64,
    /// The time from the first start on any rank to the norm, which waits for all ranks.
    pub until_norm: u64,
}

impl Bubble {
    /// Share of the slowest rank's time in which it does not compute, as in Qi et al. (Zero Bubble Pipeline Parallelism, section 5.1):
    /// `(cost - m (TF + TB + TW)) / cost`. Steps follow each other without a barrier.
    pub fn rate(&self) -> f64 {
        idle_share(self.busy, self.span)
    }

    /// The same where every step ends with a global norm: all ranks wait for the last one.
    pub fn rate_with_norm(&self) -> f64 {
        idle_share(self.busy, self.until_norm)
    }
}

fn idle_share(busy: u64, time: u64) -> f64 {
    if time == 0 { 0.0 } else { time.saturating_sub(busy) as f64 / time as f64 }
}

impl StepTimes {
    /// Times of a linked step. A rank computes in the order of its program; what it sends goes on a queue of its own, one after the other, and
    /// arrives when its transfer ends; a receive and a collective wait.
    pub fn new(graph: &StepGraph, times: &UnitTimes) -> StepTimes {
        let ranks = graph.programs().iter().map(|program| Vec::with_capacity(program.instrs.len())).collect();
        let num_ranks = graph.programs().len();
        let mut clock = Clock { graph, times, ranks, now: vec![0; num_ranks], sending: vec![0; num_ranks] };
        let mut advanced = true;
        while std::mem::take(&mut advanced) {
            for rank in 0..num_ranks {
                while clock.step(rank) {
                    advanced = true;
                }
            }
        }
        let bubble = bubble(graph, times, &clock.ranks);
        StepTimes { ranks: clock.ranks, bubble }
    }

    /// How well the ranks are used.
    pub fn bubble(&self) -> Bubble {
        self.bubble
    }
}

struct Clock<'a> {
    graph: &'a StepGraph,
    times: &'a UnitTimes,
    ranks: Vec<Vec<(u64, u64)>>,
    /// When each rank has ended what it computes.
    now: Vec<u64>,
    /// When each rank's queue of transfers is empty.
    sending: Vec<u64>,
}

impl Clock<'_> {
    /// Times the next instruction of a rank; `false` where there is none, or where it waits for one that is not timed.
    fn step(&mut self, rank: usize) -> bool {
        let event = Event { rank, index: self.ranks[rank].len() };
        let Some(instr) = self.graph.programs()[rank].instrs.get(event.index) else { return false };
        let now = self.now[rank];
        let (start, end) = match (self.graph.wait(event), self.graph.receive_of(event)) {
            (Wait::Send(send), _) => match self.ranks[send.rank].get(send.index) {
                Some((_, arrival)) => (now, now.max(*arrival)),
                None => return false,
            },
            (Wait::Members(members), _) => {
                let is_there = |member: &Event| self.ranks[member.rank].len() >= member.index;
                if !members.iter().all(is_there) {
                    return false;
                }
                let latest = members.iter().map(|member| self.reached(*member)).max().unwrap_or(now);
                (now, now.max(latest))
            }
            (Wait::Nothing, Some(_)) => {
                let start = now.max(self.sending[rank]);
                self.sending[rank] = start + self.times.transfer;
                self.ranks[rank].push((start, start + self.times.transfer));
                return true;
            }
            (Wait::Nothing, None) => (now, now + self.times.compute(*instr).unwrap_or(0)),
        };
        self.ranks[rank].push((start, end));
        self.now[rank] = end;
        true
    }

    /// When a rank comes to an instruction of which all before are timed.
    fn reached(&self, event: Event) -> u64 {
        match self.ranks[event.rank].get(event.index) {
            Some((start, _)) => *start,
            None => self.now[event.rank],
        }
    }
}

fn bubble(graph: &StepGraph, times: &UnitTimes, ranks: &[Vec<(u64, u64)>]) -> Bubble {
    let mut bubble = Bubble { busy: 0, span: 0, until_norm: 0 };
    let (mut first, mut last) = (u64::MAX, 0);
    for (program, placed) in graph.programs().iter().zip(ranks) {
        let timed = program.instrs.iter().zip(placed).filter(|(instr, _)| times.compute(**instr).is_some());
        let passes: Vec<(u64, u64)> = timed.map(|(_, placed)| *placed).collect();
        let (Some(start), Some(end)) = (passes.first().map(|pass| pass.0), passes.last().map(|pass| pass.1)) else {
            continue;
        };
        bubble.busy = bubble.busy.max(passes.iter().map(|(start, end)| end - start).sum());
        bubble.span = bubble.span.max(end - start);
        (first, last) = (first.min(start), last.max(end));
    }
    bubble.until_norm = last.saturating_sub(first);
    bubble
}
