//! A step in time, simulated or measured: the same type, so that one can be compared with the other.

use std::collections::BTreeMap;

use mesh::{Axis, AxisSet, Mesh, Rank};
use program::{Event, Family, Instr, PassKind, StepGraph, StepTimes, TransferDirection, Wait};

/// Instructions of a step with their times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// One per process: ranks, or pipeline ranks that stand for all of their stage.
    pub ranks: Vec<RankTrace>,
    /// Sends with their receives, as places in `ranks`.
    pub messages: Vec<(Event, Event)>,
}

/// The instructions of one rank with their times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTrace {
    pub number: usize,
    pub name: String,
    /// In the order of its program.
    pub instrs: Vec<TimedInstr>,
}

/// An instruction with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedInstr {
    /// The instruction.
    pub instr: Instr,
    /// When it starts, or starts to wait.
    pub start_ns: u64,
    /// When it ends.
    pub end_ns: u64,
}

/// When one rank's instructions started and ended, in nanoseconds and in the order of its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTimes {
    pub number: usize,
    pub name: String,
    /// Which pipeline rank's program it ran.
    pub pp: usize,
    /// Which of the pipelines it is part of: those that send to each other have the same number.
    pub pipeline: usize,
    /// Start and end of every instruction.
    pub times: Vec<(u64, u64)>,
}

impl RankTimes {
    /// Rank `number` of `mesh`, named by its place there, with the `times` of its instructions.
    pub fn of_rank(mesh: &Mesh, number: usize, times: Vec<(u64, u64)>) -> RankTimes {
        let coord = mesh.coord(Rank(number));
        let (dp, tp, pp) = (coord.position(AxisSet::DATA), coord.along(Axis::Tp), coord.along(Axis::Pp));
        let cp = match (mesh.sizes().cp, coord.along(Axis::Cp)) {
            (1, _) => String::new(),
            (_, cp) => format!(" cp {cp},"),
        };
        let name = format!("rank {number}: dp {dp},{cp} tp {tp}, pp {pp}");
        RankTimes { number, name, pp, pipeline: coord.position(AxisSet::of(Axis::Pp).complement()), times }
    }
}

impl Trace {
    /// The trace of ranks that ran the programs of `graph`.
    pub fn new(graph: &StepGraph, ranks: &[RankTimes]) -> Trace {
        let places: BTreeMap<(usize, usize), usize> =
            ranks.iter().enumerate().map(|(place, rank)| ((rank.pp, rank.pipeline), place)).collect();
        let mut messages = vec![];
        for (place, rank) in ranks.iter().enumerate() {
            for index in 0..rank.times.len() {
                let Wait::Send(send) = graph.wait(Event { rank: rank.pp, index }) else { continue };
                let from = places.get(&(send.rank, rank.pipeline));
                messages.extend(from.map(|from| (Event { rank: *from, ..send }, Event { rank: place, index })));
            }
        }
        let ranks = ranks.iter().map(|rank| {
            let instrs = graph.programs()[rank.pp].instrs.iter().zip(&rank.times);
            let timed = instrs.map(|(&instr, &(start_ns, end_ns))| TimedInstr { instr, start_ns, end_ns });
            RankTrace { number: rank.number, name: rank.name.clone(), instrs: timed.collect() }
        });
        Trace { ranks: ranks.collect(), messages }
    }

    /// The trace of a simulated step by stages: one rank for each pipeline coordinate, whose peers do the same.
    pub fn of_stages(graph: &StepGraph, times: &StepTimes) -> Trace {
        let rank = |(pp, times): (usize, &Vec<(u64, u64)>)| {
            let (name, times) = (format!("pp {pp}"), times.clone());
            RankTimes { number: pp, name, pp, pipeline: 0, times }
        };
        Trace::new(graph, &times.ranks.iter().enumerate().map(rank).collect::<Vec<_>>())
    }

    /// When the last instruction ends.
    pub fn end_ns(&self) -> u64 {
        self.ranks.iter().flat_map(|rank| &rank.instrs).map(|timed| timed.end_ns).max().unwrap_or(0)
    }
}

/// The kind of a block of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockKind {
    /// Forward of a stage.
    Forward,
    /// Recomputation for a backward pass.
    Recompute,
    /// Backward of inputs and weights.
    Backward,
    /// Backward of inputs alone.
    BackwardInput,
    /// Backward of weights alone.
    BackwardWeight,
    /// Norm and update.
    Optimizer,
    /// Gathers, reductions and sends that take time of their own.
    Communication,
}

impl BlockKind {
    /// All of them, in the order of a legend.
    pub const ALL: [BlockKind; 7] = [
        BlockKind::Forward,
        BlockKind::Recompute,
        BlockKind::Backward,
        BlockKind::BackwardInput,
        BlockKind::BackwardWeight,
        BlockKind::Communication,
        BlockKind::Optimizer,
    ];

    /// The word in a legend.
    pub fn name(self) -> &'static str {
        match self {
            BlockKind::Forward => "forward",
            BlockKind::Recompute => "recompute",
            BlockKind::Backward => "backward",
            BlockKind::BackwardInput => "backward of inputs",
            BlockKind::BackwardWeight => "backward of weights",
            BlockKind::Communication => "communication",
            BlockKind::Optimizer => "norm and update",
        }
    }
}

/// Neighbouring instructions of one kind and microbatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Their kind.
    pub kind: BlockKind,
    /// Their microbatch, if they have one.
    pub microbatch: Option<u32>,
    /// Start of the first.
    pub start_ns: u64,
    /// End of the last.
    pub end_ns: u64,
}

/// How long a rank communicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Communication {
    /// Gathers, reductions and sends, together.
    pub all_ns: u64,
    /// The part of it in which the rank does not compute.
    pub exposed_ns: u64,
}

impl Communication {
    /// The exposed part, 0 where there is no communication.
    pub fn exposed_share(&self) -> f64 {
        if self.all_ns == 0 { 0.0 } else { self.exposed_ns as f64 / self.all_ns as f64 }
    }
}

/// Parts of a line, merged and in order.
fn merged(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    let mut merged: Vec<(u64, u64)> = vec![];
    for (start, end) in spans {
        match merged.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            Some(_) | None => merged.push((start, end)),
        }
    }
    merged
}

impl RankTrace {
    /// How long the rank communicates, and how much of that nothing hides.
    pub fn communication(&self) -> Communication {
        let of = |is_wanted: fn(BlockKind) -> bool| {
            let spans = self.instrs.iter().filter(|timed| kind_of(timed.instr).is_some_and(is_wanted));
            merged(spans.map(|timed| (timed.start_ns, timed.end_ns)).collect())
        };
        let communicates = of(|kind| kind == BlockKind::Communication);
        let computes = of(|kind| kind != BlockKind::Communication);
        let all_ns = communicates.iter().map(|(start, end)| end - start).sum();
        let hidden_ns: u64 = communicates
            .iter()
            .flat_map(|(start, end)| {
                let first = computes.partition_point(|(_, until)| until <= start);
                let hiding = computes[first..].iter().take_while(move |(from, _)| from < end);
                hiding.map(move |(from, until)| end.min(until) - start.max(from))
            })
            .sum();
        Communication { all_ns, exposed_ns: all_ns - hidden_ns }
    }

    /// The rank's instructions that take time, neighbours of a stream joined. Waiting is what is between blocks.
    pub fn blocks(&self) -> Vec<Block> {
        let communicates = |timed: &&TimedInstr| kind_of(timed.instr) == Some(BlockKind::Communication);
        let (communicating, computing): (Vec<&TimedInstr>, Vec<&TimedInstr>) =
            self.instrs.iter().partition(communicates);
        let mut blocks = in_line(&computing);
        blocks.extend(in_line(&communicating));
        blocks.sort_by_key(|block| block.start_ns);
        blocks
    }
}

/// Blocks of instructions of one stream.
fn in_line(instrs: &[&TimedInstr]) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![];
    for timed in instrs.iter().filter(|timed| timed.end_ns > timed.start_ns) {
        let Some(kind) = kind_of(timed.instr) else { continue };
        let microbatch = timed.instr.microbatch().map(|microbatch| microbatch.0);
        let block = Block { kind, microbatch, start_ns: timed.start_ns, end_ns: timed.end_ns };
        match blocks.last_mut() {
            // Across a wait nothing is joined: the gap is what a drawing is looked at for.
            Some(last) if last.microbatch == microbatch && block.start_ns <= last.end_ns => {
                match joined(last.kind, kind) {
                    Some(together) => {
                        (last.kind, last.end_ns) = (together, last.end_ns.max(block.end_ns));
                    }
                    None => blocks.push(block),
                }
            }
            Some(_) | None => blocks.push(block),
        }
    }
    blocks
}

/// Blocks by what a drawing shows as one: backward passes go with what is recomputed for them. Where layers take turns
/// at these two that are shorter than `thin_ns`, all that is recomputed is put in front, as long as it takes.
pub(crate) fn passes(blocks: &[Block], thin_ns: u64) -> Vec<Vec<Block>> {
    let (beside, computing): (Vec<Block>, Vec<Block>) =
        blocks.iter().partition(|block| block.kind == BlockKind::Communication);
    let passes = computing.chunk_by(|one, next| {
        let has = |kind| one.kind == kind || next.kind == kind;
        let take_turns = has(BlockKind::Recompute) && !has(BlockKind::Forward) && !has(BlockKind::BackwardWeight);
        take_turns && one.microbatch == next.microbatch && one.end_ns >= next.start_ns
    });
    let drawn = |pass: &[Block]| match pass.iter().any(|block| block.end_ns - block.start_ns < thin_ns) {
        true => recomputed_first(pass),
        false => pass.to_vec(),
    };
    passes.map(drawn).chain(beside.into_iter().map(|block| vec![block])).collect()
}

fn recomputed_first(pass: &[Block]) -> Vec<Block> {
    let (again, once): (Vec<Block>, Vec<Block>) = pass.iter().partition(|block| block.kind == BlockKind::Recompute);
    let (Some(first), Some(last), Some(kind)) = (again.first(), pass.last(), all_joined(&once)) else {
        return pass.to_vec();
    };
    let start_ns = pass[0].start_ns;
    let turn_ns = start_ns + again.iter().map(|block| block.end_ns - block.start_ns).sum::<u64>();
    let again = Block { start_ns, end_ns: turn_ns, ..*first };
    vec![again, Block { kind, start_ns: turn_ns, end_ns: last.end_ns, ..*first }]
}

/// The kind of all of these together, if they have one.
fn all_joined(blocks: &[Block]) -> Option<BlockKind> {
    let (first, rest) = blocks.split_first()?;
    rest.iter().try_fold(first.kind, |kind, next| joined(kind, next.kind))
}

fn kind_of(instr: Instr) -> Option<BlockKind> {
    match instr.family() {
        Family::Pass(pass) => Some(match pass.kind {
            PassKind::Forward => BlockKind::Forward,
            PassKind::Recompute => BlockKind::Recompute,
            PassKind::BackwardInput => BlockKind::BackwardInput,
            PassKind::BackwardWeight => BlockKind::BackwardWeight,
        }),
        Family::Transfer { direction: TransferDirection::Send, .. }
        | Family::Gather { .. }
        | Family::Reduce { .. }
        | Family::CopyState { .. }
        | Family::CopyActs { .. } => Some(BlockKind::Communication),
        Family::Update { .. } => Some(BlockKind::Optimizer),
        // These mostly wait, as receives do.
        Family::SumTied | Family::GradNorm | Family::Transfer { direction: TransferDirection::Receive, .. } => None,
        Family::Load { .. } | Family::Bookkeeping { .. } => None,
    }
}

/// The kind of two neighbours together.
fn joined(one: BlockKind, next: BlockKind) -> Option<BlockKind> {
    use BlockKind::{Backward, BackwardInput, BackwardWeight, Communication, Forward, Optimizer, Recompute};
    match (one, next) {
        (Forward, Forward) => Some(Forward),
        (Recompute, Recompute) => Some(Recompute),
        (Communication, Communication) => Some(Communication),
        (Optimizer, Optimizer) => Some(Optimizer),
        (BackwardInput, BackwardInput) => Some(BackwardInput),
        (BackwardWeight, BackwardWeight) => Some(BackwardWeight),
        (Backward | BackwardInput | BackwardWeight, Backward | BackwardInput | BackwardWeight) => Some(Backward),
        (Forward | Recompute | Communication | Optimizer | Backward | BackwardInput | BackwardWeight, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use config::{Microbatch, Unit};
    use program::Instr;

    use super::*;

    #[test]
    fn neighbours_are_joined_and_waits_are_not() {
        let (unit, microbatch) = (Unit::Layer(0), Microbatch(3));
        let timed = |instr, start_ns, end_ns| TimedInstr { instr, start_ns, end_ns };
        let instrs = vec![
            timed(Instr::Forward { unit, microbatch }, 0, 5),
            timed(Instr::Forward { unit: Unit::Layer(1), microbatch }, 5, 9),
            timed(Instr::Recompute { unit, microbatch }, 9, 12),
            timed(Instr::RecvGrad { unit, microbatch }, 12, 20),
            timed(Instr::BackwardInput { unit, microbatch }, 20, 23),
            timed(Instr::BackwardWeight { unit, microbatch }, 23, 26),
        ];
        let blocks = RankTrace { number: 0, name: "pp 0".into(), instrs }.blocks();
        let found: Vec<(BlockKind, u64, u64)> =
            blocks.iter().map(|block| (block.kind, block.start_ns, block.end_ns)).collect();
        assert_eq!(
            found,
            [(BlockKind::Forward, 0, 9), (BlockKind::Recompute, 9, 12), (BlockKind::Backward, 20, 26)],
            "the wait for the gradient stays visible"
        );
    }

    #[test]
    fn communication_during_computing_is_hidden() {
        let (unit, by, microbatch) = (Unit::Layer(0), Unit::Layer(0), Microbatch(0));
        let timed = |instr, start_ns, end_ns| TimedInstr { instr, start_ns, end_ns };
        let reduce = Instr::ReduceGrads { unit, by, axes: program::GradientAxes::new([]) };
        let instrs = vec![
            timed(Instr::BackwardWeight { unit, microbatch }, 0, 10),
            timed(Instr::BackwardWeight { unit, microbatch }, 10, 20),
            timed(reduce, 5, 12),
            timed(Instr::GatherParams { unit }, 8, 25),
            timed(Instr::OptimizerStep { unit }, 30, 40),
            timed(reduce, 38, 50),
        ];
        let rank = RankTrace { number: 0, name: "pp 0".into(), instrs };
        assert_eq!(rank.communication(), Communication { all_ns: 32, exposed_ns: 5 + 10 });
        let silent = RankTrace { instrs: vec![], ..rank };
        assert_eq!(silent.communication().exposed_share(), 0.0);
    }

    #[test]
    fn what_is_computed_again_is_drawn_in_one_piece() {
        let block = |kind, start_ns, end_ns| Block { kind, microbatch: Some(3), start_ns, end_ns };
        let (forward, again, backward) = (BlockKind::Forward, BlockKind::Recompute, BlockKind::Backward);
        let beside = block(BlockKind::Communication, 5, 30);
        let blocks = [
            block(forward, 0, 4),
            block(again, 4, 6),
            beside,
            block(backward, 6, 10),
            block(again, 10, 12),
            block(BlockKind::BackwardInput, 12, 16),
            block(BlockKind::BackwardWeight, 16, 18),
            block(backward, 20, 24),
        ];
        let alone = |index: usize| vec![blocks[index]];
        let merged = vec![block(again, 4, 8), block(backward, 8, 16)];
        assert_eq!(passes(&blocks, 3), [alone(0), merged, alone(6), alone(7), alone(2)]);
        let turns = [1, 3, 4, 5].map(|index: usize| blocks[index]).to_vec();
        assert_eq!(passes(&blocks, 2), [alone(0), turns, alone(6), alone(7), alone(2)], "wide enough to be seen");
    }
}
