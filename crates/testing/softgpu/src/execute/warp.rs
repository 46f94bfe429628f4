//! A warp: lanes that run the same instruction, apart where they have gone different ways.

use super::async_copies::AsyncCopies;
use super::asynchronous::Tests;
use super::barriers::Wait;
use super::block::BlockState;
use super::bulk_copies::Stores;
use super::fault::{Fault, FaultKind};
use super::local::Local;
use super::memory::Memory;
use super::register_order::RegisterOrder;
use super::registers::{LANES, Lanes, Registers, lanes_in};
use super::run::{Launch, Run};
use super::{atomics, matrix, shuffle, transfer};
use crate::code::{Instruction, Kernel, Op, Reach, Row, Terminator};

/// State of 32 lanes that run together.
#[derive(Debug)]
pub struct Warp {
    pub(super) number: usize,
    pub(super) registers: Registers,
    pub(super) local: Local,
    copies: AsyncCopies,
    /// Copies to global memory.
    pub(super) stores: Stores,
    /// Tests of phases.
    pub(super) tests: Tests,
    /// The order of registers, in kernels with products of warpgroups.
    pub(super) order: Option<Box<RegisterOrder>>,
    /// Lanes that have not ended.
    pub(super) live: Lanes,
    /// Groups of lanes, each at a place of its own.
    groups: Vec<Group>,
}

/// Something that a warp waits for and asks for again in each turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A phase of the mbarrier at a place.
    Phase(usize),
    /// The barrier of its cluster.
    Cluster,
    /// The other warps of its warpgroup, to run the same products.
    Warpgroup,
}

/// Lanes at one place.
#[derive(Clone, Copy, Debug)]
struct Group {
    lanes: Lanes,
    block: usize,
    /// The next instruction.
    at: usize,
    waits: Waiting,
}

/// The reason why lanes wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// Nothing.
    Ready,
    /// Other lanes of the warp, to run the next instruction together.
    Lanes(Lanes),
    /// A barrier of the block.
    Barrier(Wait),
    /// Something that is asked for again in each turn.
    Asked(Awaited),
}

/// How far a warp has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All lanes have ended.
    Ended,
    /// It waits for other warps.
    AtBarrier(Wait),
    /// It waits for something that is asked for again in each turn, at a source.
    Asks(Awaited, u32),
    /// Its turn is over.
    Paused,
}

/// The next step after an instruction.
pub(super) enum Step {
    Next,
    Waits,
    /// Other warps are to be run before the next instruction.
    Yields,
    /// Something has not come yet, and is asked for again in the next turn.
    Asks(Awaited),
}

impl Warp {
    /// A warp in front of the first instruction.
    pub fn new(number: usize, registers: Registers, live: Lanes, local_bytes: usize) -> Warp {
        let group = Group { lanes: live, block: 0, at: 0, waits: Waiting::Ready };
        Warp {
            number,
            registers,
            local: Local::new(local_bytes),
            copies: AsyncCopies::default(),
            stores: Stores::default(),
            tests: Tests::default(),
            order: None,
            live,
            groups: vec![group],
        }
    }

    /// The same warp, whose registers are checked against products of warpgroups.
    #[must_use]
    pub fn with_order(mut self, kernel: &Kernel) -> Warp {
        self.order = Some(Box::new(RegisterOrder::new(kernel)));
        self
    }

    /// Lets the warp continue after the barrier at which it waits.
    pub fn release(&mut self) {
        for group in &mut self.groups {
            group.waits = Waiting::Ready;
            group.at += 1;
        }
    }

    /// Runs up to about `turn` instructions.
    pub fn run(&mut self, run: &mut Run<'_>, state: &mut BlockState, turn: u64) -> Result<Progress, Fault> {
        let kernel = run.launch.kernel;
        let mut turn_left = turn;
        for group in self.groups.iter_mut().filter(|group| matches!(group.waits, Waiting::Asked(_))) {
            group.waits = Waiting::Ready;
        }
        while turn_left > 0 {
            let Some(group) = self.next_group(kernel) else { return self.stalled(kernel) };
            self.run_group(run, state, group, &mut turn_left)?;
        }
        Ok(Progress::Paused)
    }

    /// Takes the group that is run next, joined by all that are at its place.
    fn next_group(&mut self, kernel: &Kernel) -> Option<Group> {
        let is_ready = |group: &Group| group.waits == Waiting::Ready;
        let key = |group: &Group| (kernel.blocks[group.block].order, group.at);
        let ready = |groups: &[Group]| groups.iter().filter(|group| is_ready(group)).copied().min_by_key(key);
        let mut next = match ready(&self.groups) {
            Some(next) => next,
            None => {
                // Lanes that have ended are waited for no longer.
                let live = self.live;
                let satisfied = self.groups.iter_mut().find(|group| match group.waits {
                    Waiting::Lanes(members) => members & live & !group.lanes == 0,
                    Waiting::Ready | Waiting::Barrier(_) | Waiting::Asked(_) => false,
                })?;
                satisfied.waits = Waiting::Ready;
                *satisfied
            }
        };
        next.lanes = 0;
        self.groups.retain(|group| {
            let joins = group.at == next.at && group.block == next.block && is_ready(group);
            next.lanes |= if joins { group.lanes } else { 0 };
            !joins
        });
        Some(next)
    }

    /// No group is ready.
    fn stalled(&mut self, kernel: &Kernel) -> Result<Progress, Fault> {
        let Some(first) = self.groups.first().copied() else { return Ok(Progress::Ended) };
        let source = kernel.instructions[first.at].source;
        let asking = self.groups.iter().find_map(|group| match group.waits {
            Waiting::Asked(awaited) => Some(Progress::Asks(awaited, kernel.instructions[group.at].source)),
            Waiting::Ready | Waiting::Lanes(_) | Waiting::Barrier(_) => None,
        });
        if let Some(asking) = asking {
            return Ok(asking);
        }
        let is_at_one_place = self.groups.iter().all(|group| group.at == first.at);
        if let (Waiting::Barrier(wait), true) = (first.waits, is_at_one_place) {
            self.groups = vec![Group { lanes: self.live, ..first }];
            return Ok(Progress::AtBarrier(wait));
        }
        let mut text = String::from("lanes wait for others that do not come:");
        for group in &self.groups {
            let line = kernel.sources[kernel.instructions[group.at].source as usize].line;
            text += &format!(" lanes {:#010x} at PTX line {line}", group.lanes);
            if let Waiting::Lanes(members) = group.waits {
                text += &format!(" for lanes {:#010x}", members & self.live & !group.lanes);
            }
            text += ";";
        }
        let lane = first.lanes.trailing_zeros() as usize;
        let text = text.trim_end_matches(';').to_string();
        Err(Fault { kind: FaultKind::Barrier, text, lane: Some(lane), source: Some(source) })
    }

    /// Runs one group until it ends, waits, parts, or others are to be run first.
    fn run_group(
        &mut self,
        run: &mut Run<'_>,
        state: &mut BlockState,
        mut group: Group,
        turn_left: &mut u64,
    ) -> Result<(), Fault> {
        let kernel = run.launch.kernel;
        loop {
            let block = &kernel.blocks[group.block];
            while group.at < block.end {
                let instructions = &kernel.instructions[group.at..block.end];
                let ran = self.run_arithmetic(run, group.lanes, instructions)?;
                group.at += ran;
                let Some(instruction) = instructions.get(ran) else { break };
                let step = self.step(run, state, instruction, &mut group);
                match step.map_err(|fault| Fault { source: fault.source.or(Some(instruction.source)), ..fault })? {
                    Step::Next => {
                        group.at += 1;
                        state.steps += 1;
                    }
                    Step::Waits => {
                        self.groups.push(group);
                        return Ok(());
                    }
                    Step::Yields => {
                        group.at += 1;
                        *turn_left = 0;
                        self.groups.push(group);
                        return Ok(());
                    }
                    Step::Asks(awaited) => {
                        group.waits = Waiting::Asked(awaited);
                        self.groups.push(group);
                        return Ok(());
                    }
                }
            }
            let ran = (block.end - block.first) as u64 + 1;
            *turn_left = turn_left.saturating_sub(ran);
            run.counts[group.block] += 1;
            run.left = run.left.checked_sub(ran).ok_or_else(|| endless(block.source, run.launch))?;
            let Some(next) = self.follow(kernel, &group) else { return Ok(()) };
            group.block = next;
            group.at = kernel.blocks[next].first;
            let order = kernel.blocks[next].order;
            let must_yield = |other: &Group| other.waits == Waiting::Ready && kernel.blocks[other.block].order <= order;
            if *turn_left == 0 || self.groups.iter().any(must_yield) {
                self.groups.push(group);
                return Ok(());
            }
        }
    }

    /// Runs the leading instructions that need no other lane and no memory; returns their number.
    fn run_arithmetic(&mut self, run: &Run<'_>, lanes: Lanes, instructions: &[Instruction]) -> Result<usize, Fault> {
        let Some(order) = &mut self.order else { return Ok(run.set.run(&mut self.registers, lanes, instructions)) };
        for (index, instruction) in instructions.iter().enumerate() {
            let with_source = |fault: Fault| Fault { source: fault.source.or(Some(instruction.source)), ..fault };
            order.check(run.launch.kernel, instruction).map_err(with_source)?;
            if run.set.run(&mut self.registers, lanes, std::slice::from_ref(instruction)) == 0 {
                return Ok(index);
            }
        }
        Ok(instructions.len())
    }

    /// The order of registers.
    pub(super) fn order(&mut self, kernel: &Kernel) -> &mut RegisterOrder {
        self.order.get_or_insert_with(|| Box::new(RegisterOrder::new(kernel)))
    }

    /// The block after the group's; `None` where its lanes have ended or parted.
    fn follow(&mut self, kernel: &Kernel, group: &Group) -> Option<usize> {
        let ready =
            |lanes: Lanes, block: usize| Group { lanes, block, at: kernel.blocks[block].first, waits: Waiting::Ready };
        match &kernel.blocks[group.block].terminator {
            Terminator::Next(next) => Some(*next),
            Terminator::Branch { predicate, taken, next } => {
                let jumping = self.registers.lanes_of(*predicate) & group.lanes;
                if jumping == 0 {
                    return Some(*next);
                }
                if jumping == group.lanes {
                    return Some(*taken);
                }
                self.groups.push(ready(jumping, *taken));
                self.groups.push(ready(group.lanes & !jumping, *next));
                None
            }
            Terminator::Switch { index, targets } => {
                let index = &self.registers.small[usize::from(*index)];
                for (number, target) in targets.iter().enumerate() {
                    let jumping = lanes_in(group.lanes)
                        .filter(|lane| index[*lane] as usize == number)
                        .fold(0, |all, lane| all | 1 << lane);
                    if jumping != 0 {
                        self.groups.push(ready(jumping, *target));
                    }
                }
                None
            }
            Terminator::Exit { unless: None } => {
                self.live &= !group.lanes;
                None
            }
            Terminator::Exit { unless: Some((predicate, next)) } => {
                let ending = self.registers.lanes_of(*predicate) & group.lanes;
                self.live &= !ending;
                if ending != group.lanes {
                    self.groups.push(ready(group.lanes & !ending, *next));
                }
                None
            }
        }
    }

    /// Runs an instruction that is more than arithmetic.
    fn step(
        &mut self,
        run: &mut Run<'_>,
        state: &mut BlockState,
        instruction: &Instruction,
        group: &mut Group,
    ) -> Result<Step, Fault> {
        let lanes = match instruction.guard {
            Some(guard) => group.lanes & self.registers.lanes_of(guard),
            None => group.lanes,
        };
        if lanes == 0 {
            return Ok(Step::Next);
        }
        match &instruction.op {
            Op::ActiveMask(to) => self.registers.small_of(lanes, *to, [*to; 4], |_, _, _, _| lanes),
            Op::Trap => return Err(Fault::of_lane(FaultKind::Trap, lanes.trailing_zeros() as usize, "trap")),
            Op::Fence(Reach::Gpu) => run.blocks.fence(),
            Op::Clock(to) => {
                let now = run.launch.limits.warp_instructions - run.left;
                self.registers.write(*to, lanes, &[now; LANES]);
            }
            Op::Asynchronous(op) => return self.asynchronous(run, state, instruction, op, lanes),
            Op::Fence(Reach::Block) | Op::Nothing | Op::Arithmetic(_) => {}
            Op::Barrier { .. } => return self.barrier(state, instruction, group, lanes),
            Op::Shuffle(_)
            | Op::Vote(_)
            | Op::Reduce { .. }
            | Op::Match { .. }
            | Op::Elect { .. }
            | Op::WarpBarrier(_) => {
                return self.together(state, instruction, group);
            }
            Op::MatrixProduct(product) => {
                matrix::check_all(lanes)?;
                run.set.multiply(&mut self.registers, product, run.launch.rule);
            }
            Op::Load(_)
            | Op::Store(_)
            | Op::Atomic(_)
            | Op::LoadFragments(_)
            | Op::StoreFragments(_)
            | Op::AsyncCopy(_)
            | Op::CopyGroup(_) => self.access(run, state, &instruction.op, lanes)?,
        }
        Ok(Step::Next)
    }

    /// Runs an instruction that uses memory.
    fn access(&mut self, run: &mut Run<'_>, state: &mut BlockState, op: &Op, lanes: Lanes) -> Result<(), Fault> {
        let registers = &mut self.registers;
        let kernel = run.launch.kernel;
        let mut memory = Memory {
            global: run.global,
            last: &mut run.last,
            parameters: &run.launch.parameters,
            shared: &mut state.shared,
            local: &mut self.local,
            checks: run.launch.checks,
            ranges: run.launch.ranges,
            order: run.launch.order,
            blocks: &mut run.blocks,
            block: state.number,
            warp: self.number,
        };
        match op {
            Op::Load(op) => transfer::load(registers, &mut memory, &mut run.runs, kernel, lanes, op),
            Op::Store(op) => transfer::store(registers, &mut memory, &mut run.runs, kernel, lanes, op),
            Op::Atomic(op) => atomics::atomic(registers, &mut memory, lanes, op),
            Op::LoadFragments(op) => {
                matrix::check_all(lanes)?;
                matrix::load_fragments(registers, &mut memory, op)
            }
            Op::StoreFragments(op) => {
                matrix::check_all(lanes)?;
                matrix::store_fragments(registers, &mut memory, op)
            }
            Op::AsyncCopy(op) => self.copies.start(registers, &mut memory, lanes, op),
            Op::CopyGroup(op) => self.copies.group(&mut memory, lanes, *op),
            Op::Arithmetic(_)
            | Op::Shuffle(_)
            | Op::Vote(_)
            | Op::Reduce { .. }
            | Op::Match { .. }
            | Op::ActiveMask(_)
            | Op::Elect { .. }
            | Op::WarpBarrier(_)
            | Op::Barrier { .. }
            | Op::MatrixProduct(_)
            | Op::Asynchronous(_)
            | Op::Clock(_)
            | Op::Fence(_)
            | Op::Nothing
            | Op::Trap => Ok(()),
        }
    }

    /// Runs an instruction that lanes run together, or waits for them.
    fn together(
        &mut self,
        state: &mut BlockState,
        instruction: &Instruction,
        group: &mut Group,
    ) -> Result<Step, Fault> {
        // Lanes that wait here already come along.
        self.groups.retain(|other| {
            let joins = other.at == group.at && matches!(other.waits, Waiting::Lanes(_));
            group.lanes |= if joins { other.lanes } else { 0 };
            !joins
        });
        let lanes = match instruction.guard {
            Some(guard) => group.lanes & self.registers.lanes_of(guard),
            None => group.lanes,
        };
        let members = self.members(&instruction.op, lanes)?;
        if members & self.live & !lanes != 0 {
            group.waits = Waiting::Lanes(members);
            return Ok(Step::Waits);
        }
        let registers = &mut self.registers;
        match &instruction.op {
            Op::Shuffle(op) => shuffle::shuffle(registers, lanes, op),
            Op::Vote(op) => shuffle::vote(registers, lanes, op),
            Op::Reduce { op, is_signed, to, from, .. } => {
                atomics::reduce(registers, lanes, *op, *is_signed, *to, *from)
            }
            Op::Match { is_all, to, found, from, .. } => {
                shuffle::matching(registers, lanes, *is_all, *to, *found, *from);
            }
            Op::Elect { to, is_elected, .. } => shuffle::elect(registers, lanes, *to, *is_elected),
            Op::WarpBarrier(_) => state.shared.synchronize(&[self.number], &[]),
            Op::Arithmetic(_)
            | Op::Load(_)
            | Op::Store(_)
            | Op::Atomic(_)
            | Op::ActiveMask(_)
            | Op::Barrier { .. }
            | Op::MatrixProduct(_)
            | Op::LoadFragments(_)
            | Op::StoreFragments(_)
            | Op::AsyncCopy(_)
            | Op::CopyGroup(_)
            | Op::Asynchronous(_)
            | Op::Clock(_)
            | Op::Fence(_)
            | Op::Nothing
            | Op::Trap => {}
        }
        Ok(Step::Next)
    }

    /// The lanes that an instruction names, which must be the same in all lanes and hold those that run it.
    fn members(&self, op: &Op, lanes: Lanes) -> Result<Lanes, Fault> {
        let row: Row = match op {
            Op::Shuffle(op) => op.members,
            Op::Vote(op) => op.members,
            Op::Reduce { members, .. } | Op::Match { members, .. } | Op::Elect { members, .. } => *members,
            Op::WarpBarrier(members) => *members,
            Op::Arithmetic(_)
            | Op::Load(_)
            | Op::Store(_)
            | Op::Atomic(_)
            | Op::ActiveMask(_)
            | Op::Barrier { .. }
            | Op::MatrixProduct(_)
            | Op::LoadFragments(_)
            | Op::StoreFragments(_)
            | Op::AsyncCopy(_)
            | Op::CopyGroup(_)
            | Op::Asynchronous(_)
            | Op::Clock(_)
            | Op::Fence(_)
            | Op::Nothing
            | Op::Trap => return Ok(lanes),
        };
        let row = &self.registers.small[usize::from(row)];
        let first = lanes.trailing_zeros() as usize;
        let members = row[first % 32];
        for lane in lanes_in(lanes) {
            if row[lane] != members {
                let text = format!("lane {first} names lanes {members:#010x}, lane {lane} {:#010x}", row[lane]);
                return Err(Fault::of_lane(FaultKind::Invalid, lane, text));
            }
            if members >> lane & 1 == 0 {
                let text = format!("lane {lane} is not among the lanes {members:#010x} that the instruction names");
                return Err(Fault::of_lane(FaultKind::Invalid, lane, text));
            }
        }
        Ok(members)
    }

    fn barrier(
        &mut self,
        state: &mut BlockState,
        instruction: &Instruction,
        group: &mut Group,
        lanes: Lanes,
    ) -> Result<Step, Fault> {
        let Op::Barrier { id, threads, is_arrival, is_aligned } = instruction.op else { return Ok(Step::Next) };
        let first = lanes.trailing_zeros() as usize % LANES;
        let value = |row: Row| self.registers.small[usize::from(row)][first];
        let wait = Wait::new(value(id), threads.map(value), instruction.source, is_aligned)?;
        if is_arrival {
            state.arrivals[wait.id].push(state.shared.depart(self.number));
            return Ok(Step::Next);
        }
        if lanes != group.lanes {
            let text = format!("only lanes {lanes:#010x} of {:#010x} run the barrier", group.lanes);
            return Err(Fault::of_lane(FaultKind::Barrier, first, text));
        }
        group.waits = Waiting::Barrier(wait);
        Ok(Step::Waits)
    }
}

fn endless(source: u32, launch: &Launch<'_>) -> Fault {
    let text = format!("more than {} instructions of warps", launch.limits.warp_instructions);
    Fault { source: Some(source), ..Fault::new(FaultKind::Endless, text) }
}
