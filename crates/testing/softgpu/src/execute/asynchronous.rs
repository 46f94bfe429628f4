//! The asynchronous operations of a warp, and its waits for them.

use gpu::TensorMap;

use super::block::BlockState;
use super::boxes::PlacedBox;
use super::bulk_copies::Source;
use super::fault::{Fault, FaultKind};
use super::local::Local;
use super::memory::Memory;
use super::phase_barriers::AwaitedPhase;
use super::register_order::RegisterOrder;
use super::registers::{LANES, Lanes, Registers, is_set, lanes_in};
use super::run::Run;
use super::shared::Shared;
use super::transfer::{addresses, place};
use super::warp::{Awaited, Step, Warp};
use super::warpgroups;
use crate::code::{
    Address, Asynchronous, BulkCopy, BulkGroup, Instruction, MAX_DIMS, Patience, Phase, PhaseKind, PhaseOperation, Row,
    TensorBox, WarpgroupProduct,
};
use crate::memory::windows::window_start;
use crate::ptx::Space;
use crate::tensor_maps::decode;

/// The alignment of a tensor map.
const MAP_ALIGNMENT: u64 = 64;
/// The alignment of consecutive bytes that are copied, and of their number.
const BULK_ALIGNMENT: u64 = 16;
/// Failed tests of a phase in a row before a warp waits for it.
const MAX_TESTS: u32 = 1000;

/// The tests of a phase that have failed in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tests {
    last: Option<(usize, AwaitedPhase)>,
    failed: u32,
}

impl Tests {
    /// Notes a test that has failed; returns how many came before it.
    fn fail(&mut self, test: (usize, AwaitedPhase)) -> u32 {
        let before = if self.last == Some(test) { self.failed } else { 0 };
        *self = Tests { last: Some(test), failed: before + 1 };
        before
    }
}

/// The memory that a warp sees.
fn memory_of<'a>(
    run: &'a mut Run<'_>,
    shared: &'a mut Shared,
    local: &'a mut Local,
    block: u32,
    warp: usize,
) -> Memory<'a> {
    Memory {
        global: run.global,
        last: &mut run.last,
        parameters: &run.launch.parameters,
        shared,
        local,
        checks: run.launch.checks,
        ranges: run.launch.ranges,
        order: run.launch.order,
        blocks: &mut run.blocks,
        block,
        warp,
    }
}

/// Places in shared memory.
fn shared_places(registers: &Registers, address: Address, lanes: Lanes) -> Result<[usize; LANES], Fault> {
    let addresses = addresses(registers, address);
    let mut places = [0; LANES];
    for lane in lanes_in(lanes) {
        match place(address.space, addresses[lane]) {
            (Space::Shared, offset) => places[lane] = usize::try_from(offset).unwrap_or(usize::MAX),
            _ => {
                let text = format!("address {:#x} is not in shared memory", addresses[lane]);
                return Err(Fault::of_lane(FaultKind::Access, lane, text));
            }
        }
    }
    Ok(places)
}

/// An access to registers, memory and mbarriers by a warp.
struct Scope<'a> {
    registers: &'a mut Registers,
    memory: Memory<'a>,
    barriers: &'a mut super::phase_barriers::PhaseBarriers,
    tests: &'a mut Tests,
    stores: &'a mut super::bulk_copies::Stores,
    lanes: Lanes,
    line: u32,
}

impl Warp {
    /// Runs an asynchronous operation, or a wait.
    ///
    /// # Errors
    /// A rule that does not hold.
    pub(super) fn asynchronous(
        &mut self,
        run: &mut Run<'_>,
        state: &mut BlockState,
        instruction: &Instruction,
        op: &Asynchronous,
        lanes: Lanes,
    ) -> Result<Step, Fault> {
        let line = run.launch.kernel.sources[instruction.source as usize].line;
        match op {
            Asynchronous::BarrierFence => {
                state.shared.depart(self.number);
                state.barriers.show(self.number);
            }
            Asynchronous::ProxyFence => state.shared.fence_proxy(self.number),
            Asynchronous::ProductFence => self.order(run.launch.kernel).fence(),
            Asynchronous::ProductCommit => self.order(run.launch.kernel).commit(),
            Asynchronous::ProductWait(open) => {
                let group = self.number / warpgroups::WARPS;
                let steps = &state.warpgroups[group];
                let (ended, products) = self.order(run.launch.kernel).wait(*open);
                if !steps.have_passed(products) {
                    return Ok(Step::Asks(Awaited::Warpgroup));
                }
                self.order(run.launch.kernel).end(ended);
                let agent = super::async_order::Agent::products(group);
                state.shared.observe(self.number, agent, ended);
            }
            Asynchronous::Product(product) => self.product(run, state, product, instruction.source, lanes)?,
            Asynchronous::ClusterArrive => state.cluster.arrive(self.number, state.shared.depart(self.number))?,
            Asynchronous::ClusterWait => {
                if !state.cluster.wait(self.number, self.live, &mut state.shared)? {
                    return Ok(Step::Asks(Awaited::Cluster));
                }
            }
            Asynchronous::MapToBlock(to, from, block) => {
                let blocks = self.registers.small[usize::from(*block)];
                if let Some(lane) = lanes_in(lanes).find(|lane| blocks[*lane] != 0) {
                    let text = format!("block {} of a cluster of one block", blocks[lane]);
                    return Err(Fault::of_lane(FaultKind::Invalid, lane, text));
                }
                let values = self.registers.values(*from);
                self.registers.write(*to, lanes, &values);
            }
            Asynchronous::Barrier(_) | Asynchronous::Copy(_) | Asynchronous::CopyGroup(_) => {
                return self.scoped(run, state, op, lanes, line);
            }
        }
        Ok(Step::Next)
    }

    fn scoped(
        &mut self,
        run: &mut Run<'_>,
        state: &mut BlockState,
        op: &Asynchronous,
        lanes: Lanes,
        line: u32,
    ) -> Result<Step, Fault> {
        let Warp { number, registers, local, tests, stores, .. } = self;
        let memory = memory_of(run, &mut state.shared, local, state.number, *number);
        let mut scope = Scope { registers, memory, barriers: &mut state.barriers, tests, stores, lanes, line };
        match op {
            Asynchronous::Barrier(op) => scope.barrier(op),
            Asynchronous::Copy(copy) => scope.copy(copy).map(|()| Step::Next),
            Asynchronous::CopyGroup(group) => scope.group(*group).map(|()| Step::Next),
            Asynchronous::BarrierFence
            | Asynchronous::ProxyFence
            | Asynchronous::Product(_)
            | Asynchronous::ProductFence
            | Asynchronous::ProductCommit
            | Asynchronous::ProductWait(_)
            | Asynchronous::ClusterArrive
            | Asynchronous::ClusterWait
            | Asynchronous::MapToBlock(..) => Ok(Step::Next),
        }
    }

    fn product(
        &mut self,
        run: &mut Run<'_>,
        state: &mut BlockState,
        product: &WarpgroupProduct,
        source: u32,
        lanes: Lanes,
    ) -> Result<(), Fault> {
        let (set, rule, kernel) = (run.set, run.launch.rule, run.launch.kernel);
        let warps = run.launch.shape.block.iter().product::<u32>().div_ceil(32) as usize;
        let Warp { number, registers, local, .. } = self;
        let order = self.order.get_or_insert_with(|| Box::new(RegisterOrder::new(kernel)));
        let steps = &mut state.warpgroups[*number / warpgroups::WARPS];
        let mut memory = memory_of(run, &mut state.shared, local, state.number, *number);
        let context = warpgroups::Context { registers, order, steps, memory: &mut memory, kernel, warps };
        let operands = warpgroups::begin(context, product, source)?;
        warpgroups::compute(set, &mut self.registers, &operands, product, rule, lanes)
    }

    /// Writes what copies to global memory have read, at the end of the block.
    ///
    /// # Errors
    /// A copy that reads memory of the block which is gone.
    pub(super) fn end_stores(&mut self, run: &mut Run<'_>, state: &mut BlockState) -> Result<(), Fault> {
        self.stores.end(&mut memory_of(run, &mut state.shared, &mut self.local, state.number, self.number))
    }
}

impl Scope<'_> {
    fn small(&self, row: Row) -> [u32; LANES] {
        self.registers.small[usize::from(row)]
    }

    fn barrier(&mut self, op: &PhaseOperation) -> Result<Step, Fault> {
        if let PhaseKind::Pending(to, state) = op.kind {
            let pending = self.registers.wide[usize::from(state)].map(|state| state & 0xffff_ffff);
            self.registers.write(crate::code::Slot::Small(to), self.lanes, &pending);
            return Ok(Step::Next);
        }
        let places = shared_places(self.registers, op.barrier, self.lanes)?;
        match op.kind {
            PhaseKind::Initialize(count) => {
                let counts = self.small(count);
                for lane in lanes_in(self.lanes) {
                    self.barriers.initialize(&mut self.memory, places[lane], counts[lane], self.line, lane)?;
                }
            }
            PhaseKind::Invalidate => {
                for lane in lanes_in(self.lanes) {
                    self.barriers.invalidate(&mut self.memory, places[lane], lane)?;
                }
            }
            PhaseKind::ExpectBytes(bytes) => {
                let bytes = self.small(bytes);
                for lane in lanes_in(self.lanes) {
                    self.barriers.expect(&self.memory, places[lane], bytes[lane], lane)?;
                }
            }
            PhaseKind::Arrive { state, count, bytes } => {
                let (counts, bytes) = (count.map(|row| self.small(row)), bytes.map(|row| self.small(row)));
                // Before the warp's next time begins, which comes after all that its other lanes have done.
                lanes_in(self.lanes).try_for_each(|lane| self.barriers.check(&self.memory, places[lane], lane))?;
                let departed = self.memory.shared.depart(self.memory.warp);
                let mut states = [0; LANES];
                for lane in lanes_in(self.lanes) {
                    if let Some(bytes) = bytes {
                        self.barriers.expect(&self.memory, places[lane], bytes[lane], lane)?;
                    }
                    let count = counts.map_or(1, |counts| counts[lane]);
                    states[lane] = self.barriers.arrive(&mut self.memory, places[lane], count, &departed, lane)?;
                }
                self.registers.write(state, self.lanes, &states);
            }
            PhaseKind::Wait { to, phase, patience } => return self.wait(&places, to, phase, patience),
            PhaseKind::Pending(..) => {}
        }
        Ok(Step::Next)
    }

    /// Asks whether phases have ended. A test that fails has other warps continue; copies that a phase counts come when
    /// it is asked for again.
    fn wait(&mut self, places: &[usize; LANES], to: Row, phase: Phase, patience: Patience) -> Result<Step, Fault> {
        let awaited: [AwaitedPhase; LANES] = match phase {
            Phase::Parity(row) => self.small(row).map(AwaitedPhase::Parity),
            Phase::Of(row) => {
                self.registers.wide[usize::from(row)].map(|state| AwaitedPhase::Number((state >> 32) as u32))
            }
        };
        let mut ended = self.ended(places, &awaited)?;
        if let Some(first) = lanes_in(self.lanes & !ended).next() {
            let failed = self.tests.fail((places[first], awaited[first]));
            if failed > 0 {
                for lane in lanes_in(self.lanes & !ended) {
                    self.barriers.let_come(&mut self.memory, places[lane])?;
                }
                ended = self.ended(places, &awaited)?;
            }
            let is_patient = match patience {
                Patience::Try => failed > 0,
                Patience::Test => failed > MAX_TESTS,
            };
            if is_patient && ended != self.lanes {
                return Ok(Step::Asks(Awaited::Phase(places[first])));
            }
        }
        self.registers.write_predicate(to, self.lanes, ended);
        if ended == self.lanes {
            *self.tests = Tests::default();
            return Ok(Step::Next);
        }
        Ok(Step::Yields)
    }

    fn ended(&mut self, places: &[usize; LANES], awaited: &[AwaitedPhase; LANES]) -> Result<Lanes, Fault> {
        let mut ended = 0;
        let mut last = None;
        for lane in lanes_in(self.lanes) {
            let asked = (places[lane], awaited[lane]);
            let is_same = last == Some(asked) && lane > 0 && is_set(self.lanes, lane - 1);
            let has_ended = if is_same {
                is_set(ended, lane - 1)
            } else {
                self.barriers.has_ended(&mut self.memory, places[lane], awaited[lane], lane)?
            };
            ended |= Lanes::from(has_ended) << lane;
            last = Some(asked);
        }
        Ok(ended)
    }

    fn copy(&mut self, copy: &BulkCopy) -> Result<(), Fault> {
        match copy {
            BulkCopy::LoadBox { to, from, barrier, blocks } => {
                let (to, barrier) = (self.places(*to)?, self.places(*barrier)?);
                if let Some(blocks) = blocks.map(|row| self.small(row)) {
                    self.check_blocks(&blocks)?;
                }
                for lane in lanes_in(self.lanes) {
                    let placed = self.placed(from, to[lane], lane)?;
                    let range = placed.range();
                    let source = Source::Box(Box::new(placed));
                    self.check_inside(range.clone(), lane)?;
                    self.barriers.begin_load(&mut self.memory, barrier[lane], source, range, self.line, lane)?;
                }
            }
            BulkCopy::StoreBox { to, from } => {
                let from = self.places(*from)?;
                for lane in lanes_in(self.lanes) {
                    let placed = self.placed(to, from[lane], lane)?;
                    let range = placed.range();
                    let to = Source::Box(Box::new(placed));
                    self.check_inside(range.clone(), lane)?;
                    self.stores.begin(&mut self.memory, to, range, self.line, lane)?;
                }
            }
            BulkCopy::Load { to, from, bytes, barrier } => {
                let (to, barrier) = (self.places(*to)?, self.places(*barrier)?);
                let (from, bytes) = (addresses(self.registers, *from), self.small(*bytes));
                for lane in lanes_in(self.lanes) {
                    let range = self.consecutive(to[lane], from[lane], bytes[lane], lane)?;
                    let source = Source::Bytes(from[lane]);
                    self.barriers.begin_load(&mut self.memory, barrier[lane], source, range, self.line, lane)?;
                }
            }
            BulkCopy::Store { to, from, bytes } => {
                let (from, to) = (self.places(*from)?, addresses(self.registers, *to));
                let bytes = self.small(*bytes);
                for lane in lanes_in(self.lanes) {
                    let range = self.consecutive(from[lane], to[lane], bytes[lane], lane)?;
                    self.stores.begin(&mut self.memory, Source::Bytes(to[lane]), range, self.line, lane)?;
                }
            }
        }
        Ok(())
    }

    fn places(&self, address: Address) -> Result<[usize; LANES], Fault> {
        shared_places(self.registers, address, self.lanes)
    }

    fn check_blocks(&self, blocks: &[u32; LANES]) -> Result<(), Fault> {
        match lanes_in(self.lanes).find(|lane| blocks[*lane] & 0xffff != 1) {
            None => Ok(()),
            Some(lane) => {
                let text = format!("a copy to blocks {:#x} of a cluster of one block", blocks[lane] & 0xffff);
                Err(Fault::of_lane(FaultKind::Invalid, lane, text))
            }
        }
    }

    fn check_inside(&self, range: std::ops::Range<usize>, lane: usize) -> Result<(), Fault> {
        let size = self.memory.shared.bytes.len();
        if range.end <= size {
            return Ok(());
        }
        Err(super::local::outside("shared memory of the block", range.start as u64, range.len(), size, lane))
    }

    fn consecutive(
        &self,
        shared: usize,
        global: u64,
        bytes: u32,
        lane: usize,
    ) -> Result<std::ops::Range<usize>, Fault> {
        if !(shared as u64 | global | u64::from(bytes)).is_multiple_of(BULK_ALIGNMENT) || bytes == 0 {
            let text = format!(
                "a copy of {bytes} bytes between {shared:#x} of shared memory and {global:#x}: all must be multiples of {BULK_ALIGNMENT}"
            );
            return Err(Fault::of_lane(FaultKind::Misaligned, lane, text));
        }
        let range = shared..shared.saturating_add(bytes as usize);
        self.check_inside(range.clone(), lane)?;
        Ok(range)
    }

    fn placed(&mut self, from: &TensorBox, shared: usize, lane: usize) -> Result<PlacedBox, Fault> {
        let address = addresses(self.registers, from.map)[lane];
        let refuse = |kind: FaultKind, text: String| Err(Fault::of_lane(kind, lane, text));
        if !address.is_multiple_of(MAP_ALIGNMENT) {
            return refuse(
                FaultKind::Misaligned,
                format!("the tensor map at {address:#x} must be at a multiple of 64"),
            );
        }
        let bytes = self.memory.read_unaligned(Space::Generic, address, TensorMap::BYTES, lane)?;
        let Some(tiles) = bytes.first_chunk().and_then(decode) else {
            let place = if address >= window_start(Space::Param) { "an argument" } else { "memory" };
            return refuse(FaultKind::Invalid, format!("the 128 bytes at {address:#x}, {place}, are not a tensor map"));
        };
        if tiles.dims.len() != usize::from(from.dims) {
            let (dims, got) = (tiles.dims.len(), from.dims);
            return refuse(FaultKind::Invalid, format!("a tensor map of {dims} dims with an instruction for {got}"));
        }
        let mut first = [0; MAX_DIMS];
        for (first, row) in first.iter_mut().zip(&from.coordinates[..usize::from(from.dims)]) {
            *first = i64::from(self.small(*row)[lane] as i32);
        }
        PlacedBox::new(tiles, first, shared, lane)
    }

    fn group(&mut self, group: BulkGroup) -> Result<(), Fault> {
        self.stores.group(&mut self.memory, self.lanes, group)
    }
}
