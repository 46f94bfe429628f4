//! The event clock: when every instruction of a linked step starts and ends, given what passes and transfers take.

use config::{GradientReduction, PerClass};
use device::Stream;

use crate::link::{Event, Wait};
use crate::next_gathers::{UpdatedGathers, next_gathers};
use crate::passes::STAGED_UNITS;
use crate::quick_hash::{QuickMap, ValueMap};
use crate::settled::{last_end, settled};
use crate::{Instr, Pass, PassKind, Program, RankView, StepGraph, UnitPasses, run_in_turns};

/// How long the passes of one unit take, in any common measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTimes {
    pub forward: u64,
    /// Recomputing what the forward pass did not keep.
    pub recompute: u64,
    pub backward_input: u64,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitTimes {
    /// The passes of one unit; nothing for the table.
    pub units: PerClass<PassTimes>,
    /// An activation, or its gradient, from one pipeline rank to the next.
    pub transfer: u64,
}

/// The durations of instructions on an engine, and the streams that run next to the computing one.
pub trait Durations {
    /// Time of an instruction on the rank at `view`: of a send, until what is sent is there; of a receive, nothing.
    fn of(&self, view: &RankView, instr: Instr) -> u64;

    /// The engine's queues.
    fn queues(&self) -> Queues;
}

/// Which streams of an engine have a queue of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Gathers and reductions.
    pub reduce: Queue,
    /// Sends. Receives wait in the program's order.
    pub transfer: Queue,
    /// Copies from and to memory of the host: each way has a queue.
    pub copies: Queue,
    /// Gathers of parameters that were updated in shards.
    pub updated_gathers: UpdatedGathers,
    /// When ranks update.
    pub updates: Updates,
    /// Thousandths by which computing takes longer while a reduction is under way next to it: both use the memory and
    /// the multiprocessors.
    pub contention_per_mille: u64,
}

/// Where the instructions of a stream wait for their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// In line with what computes, which waits until they have ended.
    Compute,
    /// In a line of their own.
    Own,
    /// In line with what computes, after the last pass of the step; only of reductions that are taken once a step.
    /// Where there are others, as [`Queue::Compute`].
    Last,
}

/// Transfers have a queue of their own; reductions, norm and optimizer, which mostly come after the pipeline, take no
/// time.
impl Durations for UnitTimes {
    fn of(&self, _: &RankView, instr: Instr) -> u64 {
        match (instr.pass(), instr) {
            (Some(pass), _) => self.units.of(pass.unit).of(pass.kind),
            (None, Instr::SendAct { .. } | Instr::SendGrad { .. }) => self.transfer,
            (None, _) => 0,
        }
    }

    fn queues(&self) -> Queues {
        Queues {
            reduce: Queue::Compute,
            transfer: Queue::Own,
            copies: Queue::Own,
            updated_gathers: UpdatedGathers::AfterUpdate,
            updates: Updates::AfterNorm,
            contention_per_mille: 0,
        }
    }
}

/// When ranks update their parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Updates {
    /// After the norm of all gradients, for which all ranks wait.
    AfterNorm,
    /// When a rank has its own gradients. The norm is made during the next step, and takes back an update that it would
    /// have changed (Qi et al., Zero Bubble Pipeline Parallelism, section 4).
    BeforeNorm,
}

/// When the instructions of a step run: the longest path through its graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTimes {
    /// Per pipeline rank and instruction: when it starts to wait or to run, and when it ends.
    pub ranks: Vec<Vec<(u64, u64)>>,
    /// When each rank has ended the step before.
    pub begins: Vec<u64>,
    bubble: Bubble,
}

/// The time of a step that is not computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bubble {
    /// Computing time of the rank that computes longest.
    pub busy: u64,
    /// The longest time that a rank takes from the start of its first pass to the end of its last.
    pub span: u64,
    /// The time from the first start on any rank to the norm, which waits for all ranks.
    pub until_norm: u64,
}

impl Bubble {
    /// Share of the slowest rank's time in which it does not compute, as in Qi et al. (Zero Bubble Pipeline
    /// Parallelism, section 5.1): `(cost - m (TF + TB + TW)) / cost`. Steps follow each other without a barrier.
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
    /// Times of a linked step. A rank issues in the order of its program; what has a queue of its own goes there one
    /// after the other, and what reads its result waits for it; a receive waits for its send, a collective for its
    /// members. All ranks begin together where the norm is a barrier; otherwise the step follows others like it.
    pub fn new(graph: &StepGraph, durations: &dyn Durations) -> StepTimes {
        let run = |begins: &[u64]| Clock::run(graph, durations, begins);
        let from_rest = vec![0; graph.programs().len()];
        let (begins, ranks) = match durations.queues().updates {
            Updates::AfterNorm => (from_rest.clone(), run(&from_rest)),
            Updates::BeforeNorm => settled(from_rest, run),
        };
        let bubble = bubble(graph, &ranks);
        StepTimes { ranks, begins, bubble }
    }

    /// The time from a step to the next: that of the slowest rank from the end of the step before to its own.
    pub fn period(&self) -> u64 {
        let took = self.ranks.iter().zip(&self.begins).map(|(placed, begin)| last_end(placed).saturating_sub(*begin));
        took.max().unwrap_or(0)
    }

    /// How well the ranks are used.
    pub fn bubble(&self) -> Bubble {
        self.bubble
    }

    /// When the last instruction ends.
    pub fn end(&self) -> u64 {
        self.ranks.iter().flatten().map(|(_, end)| *end).max().unwrap_or(0)
    }
}

/// How far a rank's queues are.
#[derive(Clone, Debug, Default)]
struct Lines {
    /// When the rank has ended what it computes.
    compute: u64,
    /// When its queue of transfers is empty.
    transfer: u64,
    /// When its queue of reductions is empty.
    reduce: u64,
    /// When its queue of copies from memory of the host is empty.
    fetch: u64,
    /// When its queue of copies to memory of the host is empty.
    offload: u64,
    /// When each copy of optimizer state to memory of the host ends, in order.
    offloaded: Vec<u64>,
    /// Copies of optimizer state from memory of the host so far.
    fetched: usize,
    /// The unit's passes that the rank is in.
    unit_passes: Option<UnitPasses>,
    /// When the copies to memory of the host have ended whose bytes these passes may write to, and the next: those
    /// that were issued before the passes before them.
    copied: [u64; 2],
    /// When values are there that the queues of reductions and of copies make.
    made: ValueMap<u64>,
    /// Reductions that are deferred, and what each takes.
    put_off: Vec<(usize, u64)>,
    /// Times of gathers that belong to the start of the step, by instruction.
    gathered: QuickMap<usize, (u64, u64)>,
}

impl Lines {
    /// A rank that has ended the step before at `begin`.
    fn free_from(begin: u64) -> Lines {
        Lines { compute: begin, transfer: begin, reduce: begin, fetch: begin, offload: begin, ..Lines::default() }
    }

    /// The same with the gathers of the step before, in the queue of reductions.
    fn beginning_with_gathers(program: &Program, durations: &dyn Durations, begin: u64) -> Lines {
        let mut lines = Lines::free_from(begin);
        for gather in next_gathers(program, durations) {
            let time = (begin + gather.time.0, begin + gather.time.1);
            lines.reduce = time.1;
            lines.made.insert(gather.parameters, time.1);
            lines.gathered.insert(gather.index, time);
        }
        lines
    }

    /// Notes when the values are there that an instruction makes.
    fn note_made(&mut self, instr: Instr, view: &RankView, end: u64) {
        let effects = instr.effects(view);
        for value in effects.assigns.iter().chain(effects.accumulates.iter()) {
            self.made.insert(value, end);
        }
    }

    /// When the memory of the next copy from the host is free: that of the copy [`STAGED_UNITS`] before.
    fn staging_free(&self) -> u64 {
        let before = self.fetched.checked_sub(STAGED_UNITS);
        before.and_then(|before| self.offloaded.get(before)).copied().unwrap_or(0)
    }

    /// When the copies have ended whose bytes one of these passes may write to.
    fn copied_before(&self, unit_passes: UnitPasses) -> u64 {
        let [before, last] = self.copied;
        if self.unit_passes == Some(unit_passes) { before } else { last }
    }

    /// Notes that one of these passes begins.
    fn begin_passes(&mut self, unit_passes: UnitPasses) {
        if self.unit_passes != Some(unit_passes) {
            self.unit_passes = Some(unit_passes);
            self.copied = [self.copied[1], self.offload];
        }
    }

    /// When what computes and what was deferred is done.
    fn all_done(&self) -> u64 {
        self.compute + self.put_off.iter().map(|(_, duration)| duration).sum::<u64>()
    }
}

struct Clock<'a> {
    graph: &'a StepGraph,
    durations: &'a dyn Durations,
    queues: Queues,
    ranks: Vec<Vec<(u64, u64)>>,
    lines: Vec<Lines>,
}

impl Clock<'_> {
    /// The times of all instructions of ranks that have ended the step before at `begins`.
    fn run(graph: &StepGraph, durations: &dyn Durations, begins: &[u64]) -> Vec<Vec<(u64, u64)>> {
        let ranks = graph.programs().iter().map(|program| Vec::with_capacity(program.instrs.len())).collect();
        let queues = durations.queues();
        let lines = graph.programs().iter().zip(begins).map(|(program, begin)| match queues.updated_gathers {
            UpdatedGathers::AfterUpdate => Lines::free_from(*begin),
            UpdatedGathers::OverlappedWithNextStep => Lines::beginning_with_gathers(program, durations, *begin),
        });
        let mut clock = Clock { graph, durations, queues, ranks, lines: lines.collect() };
        run_in_turns(graph.programs().len(), |rank| clock.step(rank));
        clock.ranks
    }

    /// Times the next instruction of a rank; `false` where there is none, or where it waits for one that is not timed.
    fn step(&mut self, rank: usize) -> bool {
        let event = Event { rank, index: self.ranks[rank].len() };
        let program = &self.graph.programs()[rank];
        let Some(instr) = program.instrs.get(event.index) else { return false };
        if let Some(time) = self.lines[rank].gathered.get(&event.index) {
            self.ranks[rank].push(*time);
            return true;
        }
        let duration = self.durations.of(&program.view, *instr);
        let queue = self.queue(event);
        let reached = self.reached(event);
        if queue == Queue::Last {
            self.ranks[rank].push((reached, reached));
            self.lines[rank].put_off.push((event.index, duration));
            return true;
        }
        let (start, end) = match self.graph.wait(event) {
            Wait::Send(send) => match self.ranks[send.rank].get(send.index) {
                Some((_, arrival)) => (reached, reached.max(*arrival)),
                None => return false,
            },
            Wait::Members(_) if *instr == Instr::GradNorm && self.queues.updates == Updates::BeforeNorm => {
                (reached, reached + duration)
            }
            Wait::Members(members) => {
                let is_there = |member: &Event| self.ranks[member.rank].len() >= member.index;
                if !members.iter().all(is_there) {
                    return false;
                }
                let all = members.iter().map(|member| self.reached(*member)).max().unwrap_or(reached);
                (reached, all.max(reached) + duration)
            }
            Wait::Nothing => (reached, reached + self.contended(rank, *instr, reached, duration)),
        };
        self.ranks[rank].push((start, end));
        if awaits_reductions(*instr) {
            self.catch_up(rank);
        }
        let lines = &mut self.lines[rank];
        if let Some(unit_passes) = instr.pass().and_then(Pass::unit_passes) {
            lines.begin_passes(unit_passes);
        }
        match (queue, instr.stream()) {
            (Queue::Compute | Queue::Last, _) => lines.compute = end,
            (Queue::Own, Stream::Transfer) => lines.transfer = end,
            (Queue::Own, Stream::Offload) => {
                lines.offload = end;
                match is_copy_of_state(*instr) {
                    true => lines.offloaded.push(end),
                    false => lines.note_made(*instr, &program.view, end),
                }
            }
            (Queue::Own, Stream::Fetch) => {
                lines.fetch = end;
                lines.fetched += usize::from(is_copy_of_state(*instr));
                lines.note_made(*instr, &program.view, end);
            }
            (Queue::Own, Stream::Compute | Stream::Reduce | Stream::Io | Stream::Shift) => {
                lines.reduce = end;
                lines.note_made(*instr, &program.view, end);
            }
        }
        true
    }

    /// Gives the reductions that were deferred their times, one after the other after the last pass.
    fn catch_up(&mut self, rank: usize) {
        let lines = &mut self.lines[rank];
        let mut now = lines.compute;
        for (index, duration) in std::mem::take(&mut lines.put_off) {
            self.ranks[rank][index] = (now, now + duration);
            now += duration;
        }
    }

    fn queue(&self, event: Event) -> Queue {
        let instr = self.graph.instr(event);
        match instr.stream() {
            Stream::Compute | Stream::Io | Stream::Shift => Queue::Compute,
            Stream::Reduce if self.queues.reduce == Queue::Last => {
                let once = self.graph.programs()[event.rank].view.zero.reduction() == GradientReduction::Step;
                let is_reduction = matches!(instr, Instr::ReduceGrads { .. });
                if once && is_reduction { Queue::Last } else { Queue::Compute }
            }
            Stream::Reduce => self.queues.reduce,
            // A receive holds up what follows it in any case.
            Stream::Transfer if matches!(instr, Instr::RecvAct { .. } | Instr::RecvGrad { .. }) => Queue::Compute,
            Stream::Transfer => self.queues.transfer,
            Stream::Fetch | Stream::Offload => self.queues.copies,
        }
    }

    /// When an instruction of which all before are timed is at the head of its queue, with all that it reads.
    fn reached(&self, event: Event) -> u64 {
        if let Some((start, _)) = self.ranks[event.rank].get(event.index) {
            return *start;
        }
        let (instr, lines) = (self.graph.instr(event), &self.lines[event.rank]);
        let own = match (self.queue(event), instr.stream()) {
            (Queue::Compute | Queue::Last, _) if awaits_reductions(instr) => lines.all_done(),
            (Queue::Compute | Queue::Last, _) => {
                instr.pass().and_then(Pass::unit_passes).map_or(0, |unit_passes| lines.copied_before(unit_passes))
            }
            (Queue::Own, Stream::Transfer) => lines.transfer,
            (Queue::Own, Stream::Fetch) if is_copy_of_state(instr) => lines.fetch.max(lines.staging_free()),
            (Queue::Own, Stream::Fetch) => lines.fetch,
            (Queue::Own, Stream::Offload) => lines.offload,
            (Queue::Own, Stream::Compute | Stream::Reduce | Stream::Io | Stream::Shift) => lines.reduce,
        };
        let at_head = lines.compute.max(own);
        if lines.made.is_empty() || lines.reduce.max(lines.fetch).max(lines.offload) <= at_head {
            return at_head;
        }
        let effects = instr.effects(&self.graph.programs()[event.rank].view);
        let needed = effects.reads.iter().chain(effects.accumulates.iter());
        needed.filter_map(|value| lines.made.get(&value)).fold(at_head, |latest, made| latest.max(*made))
    }

    /// The duration of a pass that begins at `start`, while reductions run until the end of their queue.
    fn contended(&self, rank: usize, instr: Instr, start: u64, duration: u64) -> u64 {
        let beside = self.lines[rank].reduce.saturating_sub(start);
        if instr.pass().is_none() || beside == 0 {
            return duration;
        }
        let slow = 1000 + self.queues.contention_per_mille;
        let done_beside = (beside * 1000 / slow).min(duration);
        duration - done_beside + done_beside * slow / 1000
    }
}

/// Whether an instruction reads gradients that were reduced.
fn awaits_reductions(instr: Instr) -> bool {
    matches!(instr, Instr::SumTied | Instr::GradNorm)
}

/// Whether an instruction copies optimizer state from or to memory of the host.
fn is_copy_of_state(instr: Instr) -> bool {
    matches!(instr, Instr::FetchState { .. } | Instr::OffloadState { .. })
}

fn bubble(graph: &StepGraph, ranks: &[Vec<(u64, u64)>]) -> Bubble {
    let mut bubble = Bubble { busy: 0, span: 0, until_norm: 0 };
    let (mut first, mut last) = (u64::MAX, 0);
    for (program, placed) in graph.programs().iter().zip(ranks) {
        let timed = program.instrs.iter().zip(placed).filter(|(instr, _)| instr.pass().is_some());
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
