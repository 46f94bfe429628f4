//! The second bound on time: a layout's schedule, cell by cell, on the cluster. `docs/planner.md` proves that no step
//! is shorter.
//!
//! The bound has cells of its own because the clock of `program` ([`program::StepTimes`]) times instructions, which
//! exist only after a step was compiled and linked. For bloom-176b with tp 8, pp 12 and 1F1B on 384 A100, 54 layouts
//! took 2.3 ms each here, and 124.5 ms by the clock, of which compiling and linking took 83.9 ms: 54 times as long for
//! bounds that are 96 % of the step's time on average, and 75 % at least. A layout is simulated only where its bound
//! does not decide.
//!
//! The two share [`run_in_turns`], queues and prices. `tests/search.rs` holds them together over random clusters: no
//! bound is longer than the clock's time, and both are equal where a stage has one rank, so that nothing is reduced.

use config::{GradientReduction, Parallelism, Stage, Tied, Unit, ZeroStage};
use program::{Cell, CellKind, Durations, Partner, PassKind, Queue, Queues, UpdatedGathers, Updates, run_in_turns};
use sim::StepCosts;
use train::StepOrder;

use super::gathers::gathers;
use super::parameters::ParameterUnits;

/// The time of an event that has not happened yet.
const NEVER: u64 = u64::MAX;

/// A unit's part of a backward cell, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct UnitBackward {
    again: u64,
    input: u64,
    weight: u64,
    /// Reducing the gradients that it makes.
    reduce: u64,
}

/// The cells of a stage, in nanoseconds.
#[derive(Clone, Debug)]
struct StageCells {
    forward: u64,
    /// Reducing the gradients that a forward cell makes, which are the head's.
    reduce_forward: u64,
    /// Units in the order in which they run backward.
    backward: Vec<UnitBackward>,
}

/// How far a rank is.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// Cells that have been run.
    cells: usize,
    /// When it has ended what it computes.
    compute: u64,
    /// When its queue of transfers is empty.
    transfer: u64,
    /// When its queue of reductions is empty.
    reduce: u64,
    /// How long it has computed, and reduced, in all.
    busy: u64,
    reduced: u64,
}

/// A layout in time.
pub(super) struct Pipeline<'a> {
    order: &'a StepOrder<'a>,
    parameters: ParameterUnits,
    parallelism: &'a Parallelism,
    costs: &'a StepCosts,
    queues: Queues,
    num_microbatches: usize,
    stages: Vec<StageCells>,
    lines: Vec<Line>,
    /// When what a stage makes of a microbatch is where it is needed: its output and the gradient of its input, by
    /// stage, then by microbatch.
    outputs: Vec<u64>,
    input_grads: Vec<u64>,
}

impl<'a> Pipeline<'a> {
    /// The layout of an order with what its instructions cost.
    pub(super) fn new(
        order: &'a StepOrder<'a>,
        parallelism: &'a Parallelism,
        num_microbatches: usize,
        costs: &'a StepCosts,
    ) -> Pipeline<'a> {
        let num_stages = order.stages.num_stages();
        let not_yet = vec![NEVER; num_stages * num_microbatches];
        let mut pipeline = Pipeline {
            order,
            parameters: ParameterUnits::new(order.model()),
            parallelism,
            costs,
            queues: costs.queues(),
            num_microbatches,
            stages: vec![],
            lines: vec![Line::default(); order.schedule.ranks.len()],
            outputs: not_yet.clone(),
            input_grads: not_yet,
        };
        pipeline.stages = (0..num_stages).map(|stage| pipeline.cells(stage)).collect();
        let first_gathers = (0..pipeline.lines.len()).map(|rank| pipeline.first_gathers_ns(rank)).collect::<Vec<_>>();
        pipeline.lines.iter_mut().zip(first_gathers).for_each(|(line, ns)| line.reduce = ns);
        pipeline
    }

    /// Nanoseconds that no step is shorter than: those of its cells, transfers, reductions, norm and update, where
    /// nothing slows what is computed next to it.
    pub(super) fn least_ns(mut self) -> u64 {
        run_in_turns(self.lines.len(), |rank| self.step(rank));
        let norm_start_ns = match self.queues.updates {
            Updates::AfterNorm => Some(self.norm_start_ns()),
            Updates::BeforeNorm => None,
        };
        let end_ns = |rank: usize| self.update_end_ns(rank, norm_start_ns.unwrap_or_else(|| self.busy_ns(rank)));
        (0..self.lines.len()).map(end_ns).max().unwrap_or(0)
    }

    fn units(&self, stage: usize) -> impl DoubleEndedIterator<Item = Unit> + use<> {
        self.order.stages.units(Stage(stage as u32))
    }

    fn cells(&self, stage: usize) -> StageCells {
        let ns = |unit: Unit, pass| self.costs.pass(unit, pass).whole_ns;
        let by_weights = |unit: Unit| UnitBackward {
            again: ns(unit, PassKind::Recompute),
            input: ns(unit, PassKind::BackwardInput),
            weight: ns(unit, PassKind::BackwardWeight),
            reduce: match (unit, self.parallelism.zero.reduction()) {
                (Unit::Head, GradientReduction::Microbatch) => 0,
                (_, GradientReduction::Step | GradientReduction::Microbatch) => self.reduce_ns(unit),
            },
        };
        let has_head = self.units(stage).next_back() == Some(Unit::Head);
        StageCells {
            forward: self.units(stage).map(|unit| ns(unit, PassKind::Forward)).sum(),
            reduce_forward: match self.parallelism.zero.reduction() {
                GradientReduction::Microbatch if has_head => self.reduce_ns(Unit::Head),
                GradientReduction::Microbatch | GradientReduction::Step => 0,
            },
            backward: self.units(stage).rev().map(by_weights).collect(),
        }
    }

    /// Reducing all gradients that a unit makes once.
    fn reduce_ns(&self, by: Unit) -> u64 {
        self.parameters.read_by(by).map(|unit| self.costs.state(unit).reduce_ns).sum()
    }

    /// Runs the next cell of a rank; `false` where there is none, or where it waits for one that has not been run.
    fn step(&mut self, rank: usize) -> bool {
        let mut line = self.lines[rank];
        let Some(&cell) = self.order.schedule.ranks[rank].get(line.cells) else { return false };
        let Some(arrival) = self.arrival(cell) else { return false };
        let stage = cell.stage.0 as usize;
        match cell.kind {
            CellKind::F => {
                let ns = self.stages[stage].forward;
                line.busy += ns;
                line.compute = line.compute.max(arrival) + ns;
                self.send(&mut line, cell, stage + 1);
                self.reduce(&mut line, self.stages[stage].reduce_forward);
            }
            CellKind::B | CellKind::I | CellKind::W => self.run_backward(&mut line, cell, arrival),
        }
        line.cells += 1;
        self.lines[rank] = line;
        true
    }

    /// When the input of a cell is there; `None` while that is not known.
    fn arrival(&self, cell: Cell) -> Option<u64> {
        let (stage, microbatch) = (cell.stage.0 as usize, cell.microbatch.0 as usize);
        let at = |made: &[u64], stage: usize| made.get(stage * self.num_microbatches + microbatch).copied();
        let there = match cell.kind {
            CellKind::F if stage == 0 => Some(0),
            CellKind::F => at(&self.outputs, stage - 1),
            // The last stage's own forward cell makes its gradient.
            CellKind::B | CellKind::I => at(&self.input_grads, stage + 1).or(Some(0)),
            CellKind::W => Some(0),
        };
        there.filter(|there| *there != NEVER)
    }

    /// Units one after the other; what the first recomputes, it computes before the gradient is there.
    fn run_backward(&mut self, line: &mut Line, cell: Cell, arrival: u64) {
        let stage = cell.stage.0 as usize;
        let is_last = cell.microbatch.0 as usize + 1 == self.num_microbatches;
        let reduces = match self.parallelism.zero.reduction() {
            GradientReduction::Step => is_last,
            GradientReduction::Microbatch => true,
        };
        let mut arrival = Some(arrival);
        let num_units = self.stages[stage].backward.len();
        for unit in 0..num_units {
            let UnitBackward { again, input, weight, reduce } = self.stages[stage].backward[unit];
            if cell.kind != CellKind::W {
                line.busy += again + input;
                line.compute = (line.compute + again).max(arrival.take().unwrap_or(0)) + input;
            }
            if cell.kind != CellKind::I {
                line.busy += weight;
                line.compute += weight;
            }
            if unit + 1 == num_units && cell.kind != CellKind::W && stage > 0 {
                self.send(line, cell, stage - 1);
            }
            if reduces && cell.kind != CellKind::I {
                self.reduce(line, reduce);
            }
        }
    }

    /// Hands what a cell made to the stage that reads it, if there is one.
    fn send(&mut self, line: &mut Line, cell: Cell, to_stage: usize) {
        let stage_map = &self.order.schedule.stage_map;
        let stage = cell.stage.0 as usize;
        let Some(&to) = stage_map.get(to_stage) else { return };
        let from = stage_map[stage];
        let transfer_ns = if from == to { 0 } else { self.costs.transfer_ns(from, to) };
        let arrival = match self.queues.transfer {
            Queue::Own if from != to => {
                line.transfer = line.transfer.max(line.compute) + transfer_ns;
                line.transfer
            }
            Queue::Own | Queue::Compute | Queue::Last => {
                line.compute += transfer_ns;
                line.busy += transfer_ns;
                line.compute
            }
        };
        let made = if to_stage > stage { &mut self.outputs } else { &mut self.input_grads };
        made[stage * self.num_microbatches + cell.microbatch.0 as usize] = arrival;
    }

    fn reduce(&self, line: &mut Line, ns: u64) {
        line.reduced += ns;
        match self.reductions() {
            Queue::Own => line.reduce = line.reduce.max(line.compute) + ns,
            Queue::Compute => line.compute += ns,
            Queue::Last => {}
        }
    }

    /// Where reductions wait: what is taken once a microbatch is not deferred.
    fn reductions(&self) -> Queue {
        match (self.queues.reduce, self.parallelism.zero.reduction()) {
            (Queue::Last, GradientReduction::Microbatch) => Queue::Compute,
            (queue, GradientReduction::Microbatch | GradientReduction::Step) => queue,
        }
    }

    /// All gathers of parameters for the passes of a rank.
    fn gathers_ns(&self, rank: usize) -> u64 {
        let gathers = gathers(self.order, &self.parameters, self.parallelism, rank).into_iter();
        gathers.map(|(unit, number)| number as u64 * self.costs.state(unit).gather_ns).sum()
    }

    /// How long a rank is busy until it has its sums of gradients, whatever others do.
    fn busy_ns(&self, rank: usize) -> u64 {
        let (Line { busy, reduced, .. }, gathers_ns) = (self.lines[rank], self.gathers_ns(rank));
        match self.reductions() {
            Queue::Own => busy.max(gathers_ns + reduced),
            Queue::Compute | Queue::Last => busy + reduced + gathers_ns,
        }
    }

    /// When all ranks have their sums of gradients.
    fn norm_start_ns(&self) -> u64 {
        let ready = |rank: usize| {
            let Line { compute, reduce, busy, reduced, .. } = self.lines[rank];
            let gathers_ns = self.gathers_ns(rank);
            match self.reductions() {
                Queue::Own => compute.max(reduce).max(gathers_ns + reduced),
                Queue::Compute => compute.max(busy + reduced + gathers_ns),
                Queue::Last => (compute + reduced).max(busy + reduced + gathers_ns),
            }
        };
        let all: Vec<u64> = (0..self.lines.len()).map(ready).collect();
        let tied_ns = match self.order.model().tied() {
            Tied::Yes => {
                let stage_map = &self.order.schedule.stage_map;
                let ends = [stage_map.first(), stage_map.last()].into_iter().flatten().map(|rank| all[*rank]);
                ends.max().unwrap_or(0) + self.costs.tied_ns(self.tied_partner())
            }
            Tied::No => 0,
        };
        all.into_iter().max().unwrap_or(0).max(tied_ns)
    }

    /// The ranks with which the rank of the embedding sums the gradients of a tied table.
    fn tied_partner(&self) -> Partner {
        match self.order.schedule.stage_map.as_slice() {
            [embedding, .., head] if embedding != head => Partner::Ends { embedding: *embedding, head: *head },
            _ => Partner::None,
        }
    }

    /// The start of the queue of reductions: the gathers of the previous step, where these are deferred until then.
    fn first_gathers_ns(&self, rank: usize) -> u64 {
        match (self.parallelism.zero, self.queues.updated_gathers) {
            (ZeroStage::One | ZeroStage::Two { .. }, UpdatedGathers::OverlappedWithNextStep) => {
                self.held(rank).into_iter().map(|unit| self.costs.state(unit).gather_ns).sum()
            }
            (ZeroStage::Off | ZeroStage::Three { .. }, _)
            | (ZeroStage::One | ZeroStage::Two { .. }, UpdatedGathers::AfterUpdate) => 0,
        }
    }

    /// When a rank has updated what it holds, and gathered it where it was updated in shards.
    fn update_end_ns(&self, rank: usize, norm_start_ns: u64) -> u64 {
        let held = self.held(rank);
        let norm_end_ns = norm_start_ns + self.costs.norm_ns(held.iter().copied());
        let (mut compute, mut gathered) = (norm_end_ns, norm_end_ns);
        for unit in held {
            let state = self.costs.state(unit);
            compute += state.update_ns;
            match (self.parallelism.zero, self.queues.updated_gathers, self.queues.reduce) {
                (ZeroStage::Off | ZeroStage::Three { .. }, _, _) | (_, UpdatedGathers::OverlappedWithNextStep, _) => {}
                (ZeroStage::One | ZeroStage::Two { .. }, UpdatedGathers::AfterUpdate, Queue::Own) => {
                    gathered = gathered.max(compute) + state.gather_ns;
                }
                (ZeroStage::One | ZeroStage::Two { .. }, UpdatedGathers::AfterUpdate, Queue::Compute | Queue::Last) => {
                    compute += state.gather_ns
                }
            }
        }
        compute.max(gathered)
    }

    /// The units whose parameters a rank has, the table first.
    fn held(&self, rank: usize) -> Vec<Unit> {
        let stages = (0..self.order.stages.num_stages()).filter(|stage| self.order.schedule.stage_map[*stage] == rank);
        let mut held: Vec<Unit> =
            stages.flat_map(|stage| self.units(stage)).flat_map(|unit| self.parameters.read_by(unit)).collect();
        held.sort_unstable();
        held.dedup();
        held
    }
}
