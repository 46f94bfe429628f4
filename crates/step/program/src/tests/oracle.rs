//! A second meaning of instructions, by brute force: programs run in small arenas where the plan puts every value,
//! ranks (and, where they run side by side, their streams) advance in random order, sends lend memory, and every result
//! is a hash of all that it was made from. If the final parameters equal those of a plain loop, no value was missing,
//! stale, counted twice, or overwritten too early.

use std::collections::BTreeSet;

use crate::{Extent, Instr, OptimizerPart, Program, Purpose, Value, Verified, Waits};
use config::{GradientReduction, LayerRecompute, Microbatch, Overlap, SavedInputs, Tied, Unit};
use device::Stream;

use crate::tests::reference::{
    BATCH, CORE, GATHERED, INPUT_GRAD, LOSS, NORM, OUTPUT, Outcome, PENDING, REDUCED, SAVED_INPUT, SAVED_WEIGHT,
    STEPPED, contribution, hash, initial, name, parameters, saved, uses,
};

/// One rank: its program, its arena in words of 64 bytes, and where it is.
struct Rank<'a> {
    program: &'a Program,
    plan: &'a crate::RankPlan,
    waits: &'a Waits,
    arena: Vec<u64>,
    /// Per queue: the instructions that have not begun, the next one last.
    queues: Vec<Vec<usize>>,
    ended: Vec<bool>,
    /// The instruction that runs.
    at: usize,
}

impl Rank<'_> {
    /// The next instruction of a queue, if it has not to wait.
    fn ready(&self, queue: usize) -> Option<usize> {
        let next = *self.queues[queue].last()?;
        self.waits.of(next).all(|awaited| self.ended[awaited]).then_some(next)
    }

    /// The queue at whose head `instr` is ready.
    fn queue_of(&self, instr: Instr) -> Option<usize> {
        (0..self.queues.len()).find(|queue| self.ready(*queue).is_some_and(|next| self.program.instrs[next] == instr))
    }

    fn end(&mut self, queue: usize) {
        if let Some(ended) = self.queues[queue].pop() {
            self.ended[ended] = true;
        }
    }
}

/// A value could not be had: it has no place, or its place does not hold one value.
#[derive(Debug)]
pub struct Fault(pub String);

impl Rank<'_> {
    fn extent(&self, value: Value, at: usize) -> Result<Extent, Fault> {
        self.plan.extent(value, at).ok_or_else(|| Fault(format!("{value} has no place at instruction {at}")))
    }

    fn words(extent: Extent) -> std::ops::Range<usize> {
        let end = extent.offset_bytes + extent.len_bytes.next_multiple_of(device::ALIGN_BYTES);
        extent.offset_bytes / 64..end / 64
    }

    fn get_at(&self, value: Value, at: usize) -> Result<u64, Fault> {
        let words = &self.arena[Self::words(self.extent(value, at)?)];
        match words.first() {
            Some(first) if words.iter().all(|word| word == first) => Ok(*first),
            _ => Err(Fault(format!("{value} is damaged at instruction {at} of rank {}", self.program.view.pp))),
        }
    }

    fn get(&self, value: Value) -> Result<u64, Fault> {
        self.get_at(value, self.at)
    }

    fn set(&mut self, value: Value, content: u64) -> Result<(), Fault> {
        let words = Self::words(self.extent(value, self.at)?);
        self.arena[words].fill(content);
        Ok(())
    }

    fn add(&mut self, value: Value, content: u64) -> Result<(), Fault> {
        let sum = self.get(value)?.wrapping_add(content);
        self.set(value, sum)
    }

    fn parameters(&self, unit: Unit) -> Result<u64, Fault> {
        let view = &self.program.view;
        let mut fault = None;
        let read = parameters(unit, view.tied, |unit| match view.has_parameters(unit) {
            false => initial(unit),
            true => self.get(view.parameters(unit)).unwrap_or_else(|error| {
                fault = Some(error);
                0
            }),
        });
        fault.map_or(Ok(read), Err)
    }

    fn contribute(&mut self, by: Unit, made_of: u64) -> Result<(), Fault> {
        let view = &self.program.view;
        let units = uses(by, view.tied).into_iter().filter(|unit| view.has_parameters(*unit));
        for unit in units.collect::<Vec<_>>() {
            let (value, made) = (self.program.view.contribution(unit, by), contribution(unit, made_of));
            self.add_or_begin(value, made)?;
        }
        Ok(())
    }

    /// A sum that is not state begins with its first summand.
    fn add_or_begin(&mut self, value: Value, content: u64) -> Result<(), Fault> {
        match self.plan.lives().iter().any(|life| (life.value, life.start) == (value, self.at)) {
            true => self.set(value, content),
            false => self.add(value, content),
        }
    }

    /// Fills scratch, so that whoever keeps something there loses it.
    fn use_scratch(&mut self) {
        let words = Self::words(self.plan.scratch());
        self.arena[words].fill(hash(&[self.at as u64]));
    }

    fn forward(&mut self, unit: Unit, microbatch: Microbatch) -> Result<(), Fault> {
        let view = self.program.view.clone();
        let batch = self.get(Value::Batch(microbatch))?;
        let read = self.parameters(unit)?;
        let x = match view.previous(unit) {
            Some(unit) => self.get(Value::Output { unit, microbatch })?,
            None => 0,
        };
        if unit == Unit::Head {
            let head = hash(&[x, read, batch]);
            match view.purpose {
                Purpose::Train => {
                    self.add(Value::LossSums, hash(&[LOSS, head]))?;
                    self.contribute(unit, head)?;
                    let unit = view.previous(unit).unwrap();
                    self.set(Value::OutputGrad { unit, microbatch }, hash(&[INPUT_GRAD, head]))?;
                }
                Purpose::Evaluate => self.add(Value::LossSums, hash(&[LOSS, head]))?,
                Purpose::Generate => self.set(Value::Output { unit, microbatch }, head)?,
            }
            return Ok(());
        }
        self.save(unit, microbatch, x, read, batch)?;
        match view.purpose {
            Purpose::Train => self.keep_for_recomputation(unit, microbatch, x)?,
            Purpose::Evaluate | Purpose::Generate => {}
        }
        self.set(Value::Output { unit, microbatch }, hash(&[OUTPUT, name(unit), x, read, batch]))
    }

    fn save(&mut self, unit: Unit, microbatch: Microbatch, x: u64, read: u64, batch: u64) -> Result<(), Fault> {
        self.set(Value::SavedUntilInput { unit, microbatch }, saved(SAVED_INPUT, unit, x, read, batch))?;
        self.set(Value::SavedUntilWeight { unit, microbatch }, saved(SAVED_WEIGHT, unit, x, read, batch))
    }

    fn keep_for_recomputation(&mut self, unit: Unit, microbatch: Microbatch, x: u64) -> Result<(), Fault> {
        match self.program.view.recomputes(unit) {
            LayerRecompute::Nothing | LayerRecompute::Everything(SavedInputs::Whole) => Ok(()),
            LayerRecompute::Core => self.compute_core(unit, microbatch),
            LayerRecompute::Everything(SavedInputs::Sharded) => self.set(Value::SavedInput { unit, microbatch }, x),
        }
    }

    /// The attention core is made of what is saved.
    fn compute_core(&mut self, unit: Unit, microbatch: Microbatch) -> Result<(), Fault> {
        let input = self.get(Value::SavedUntilInput { unit, microbatch })?;
        let weight = self.get(Value::SavedUntilWeight { unit, microbatch })?;
        self.set(Value::CoreUntilInput { unit, microbatch }, hash(&[CORE, input]))?;
        self.set(Value::CoreUntilWeight { unit, microbatch }, hash(&[CORE, weight]))
    }

    /// A backward pass reads the core that was computed from `saved`.
    fn check_core(&self, core: Value, unit: Unit, saved: u64) -> Result<(), Fault> {
        match self.program.view.recomputes(unit) {
            LayerRecompute::Nothing | LayerRecompute::Everything(_) => Ok(()),
            LayerRecompute::Core if self.get(core)? == hash(&[CORE, saved]) => Ok(()),
            LayerRecompute::Core => Err(Fault(format!("the {core} is not what it was"))),
        }
    }

    fn recompute(&mut self, unit: Unit, microbatch: Microbatch) -> Result<(), Fault> {
        let previous = self.program.view.previous(unit).ok_or_else(|| Fault("recomputed embedding".into()))?;
        let input = Value::Output { unit: previous, microbatch };
        let x = match self.program.view.recomputes(unit) {
            LayerRecompute::Nothing => return Ok(()),
            LayerRecompute::Core => return self.compute_core(unit, microbatch),
            LayerRecompute::Everything(SavedInputs::Whole) => self.get(input)?,
            LayerRecompute::Everything(SavedInputs::Sharded) => {
                let x = self.get(Value::SavedInput { unit, microbatch })?;
                self.set(input, x)?;
                x
            }
        };
        let (read, batch) = (self.parameters(unit)?, self.get(Value::Batch(microbatch))?);
        self.save(unit, microbatch, x, read, batch)
    }

    /// Output gradient, input, what was saved until the weights, batch.
    fn backward_inputs(&self, unit: Unit, microbatch: Microbatch) -> Result<[u64; 4], Fault> {
        let x = match self.program.view.previous(unit) {
            Some(unit) => self.get(Value::Output { unit, microbatch })?,
            None => 0,
        };
        let grad = self.get(Value::OutputGrad { unit, microbatch })?;
        let weight = self.get(Value::SavedUntilWeight { unit, microbatch })?;
        self.check_core(Value::CoreUntilWeight { unit, microbatch }, unit, weight)?;
        Ok([grad, x, weight, self.get(Value::Batch(microbatch))?])
    }

    fn backward_input(&mut self, unit: Unit, microbatch: Microbatch) -> Result<(), Fault> {
        if unit == Unit::Head {
            return Ok(());
        }
        let [grad, x, weight, batch] = self.backward_inputs(unit, microbatch)?;
        let input = self.get(Value::SavedUntilInput { unit, microbatch })?;
        self.check_core(Value::CoreUntilInput { unit, microbatch }, unit, input)?;
        self.set(Value::Pending { unit, microbatch }, hash(&[PENDING, grad, input, weight]))?;
        if let Some(previous) = self.program.view.previous(unit) {
            let read = self.parameters(unit)?;
            let content = hash(&[INPUT_GRAD, grad, x, input, weight, batch, read]);
            self.set(Value::OutputGrad { unit: previous, microbatch }, content)?;
        }
        Ok(())
    }

    fn backward_weight(&mut self, unit: Unit, microbatch: Microbatch) -> Result<(), Fault> {
        if unit == Unit::Head {
            return Ok(());
        }
        let [grad, x, weight, batch] = self.backward_inputs(unit, microbatch)?;
        let pending = self.get(Value::Pending { unit, microbatch })?;
        self.contribute(unit, hash(&[grad, x, weight, pending, batch]))
    }

    fn optimizer_step(&mut self, unit: Unit) -> Result<(), Fault> {
        let view = &self.program.view;
        let gradient = self.get(view.sum(unit, self.finisher(unit)))?;
        let content = hash(&[STEPPED, self.get(Value::Params(unit))?, gradient, self.get(Value::LossSums)?]);
        self.set(Value::Params(unit), content)?;
        for part in self.program.view.optimizer_parts(unit) {
            let value = self.program.view.updated(unit, part);
            let before = self.get(value)?;
            self.set(value, updated(part, before))?;
        }
        Ok(())
    }

    /// Between memory of the host and the arena.
    fn copy_state(&mut self, unit: Unit, fetches: bool) -> Result<(), Fault> {
        for part in self.program.view.offloaded(unit) {
            let (host, staged) = (part.of(unit), Value::Staged { unit, part });
            let (from, to) = if fetches { (host, staged) } else { (staged, host) };
            let content = self.get(from)?;
            self.set(to, content)?;
        }
        Ok(())
    }

    /// The same of what a layer's forward pass left.
    fn copy_activations(&mut self, unit: Unit, microbatch: Microbatch, fetches: bool) -> Result<(), Fault> {
        for (unit, part) in self.program.view.offloaded_activations(unit) {
            let (host, own) = (Value::OnHost { unit, microbatch, part }, part.of(unit, microbatch));
            let (from, to) = if fetches { (host, own) } else { (own, host) };
            let content = self.get(from)?;
            self.set(to, content)?;
        }
        Ok(())
    }

    /// All optimizer state is as one update leaves it.
    fn check_state(&self) -> Result<(), Fault> {
        let view = &self.program.view;
        for unit in view.trained_units() {
            for part in view.optimizer_parts(unit) {
                if self.get_at(part.of(unit), self.program.instrs.len())? != updated(part, 0) {
                    return Err(Fault(format!("the {} was not updated once", part.of(unit))));
                }
            }
        }
        Ok(())
    }

    /// Who made the sum in which the finished gradient is: of a tied table the head, on the ranks that have it.
    fn finisher(&self, unit: Unit) -> Unit {
        let view = &self.program.view;
        match unit {
            Unit::Table if view.tied == Tied::Yes && view.computes(Unit::Head) => Unit::Head,
            Unit::Table => Unit::Embedding,
            _ => unit,
        }
    }
}

/// A part of the optimizer state after an update.
fn updated(part: OptimizerPart, before: u64) -> u64 {
    hash(&[STEPPED, part as u64, before])
}

/// All ranks.
struct World<'a> {
    ranks: Vec<Rank<'a>>,
    /// Posted and not yet received: value, sender, the sender's instruction, receiver.
    posted: Vec<(Value, usize, usize, usize)>,
}

/// Runs programs in arenas as planned; `seed` decides which rank, and which of its streams, advances next.
pub fn run(verified: &Verified, seed: u64) -> Result<Outcome, Fault> {
    run_with(verified, verified.waits(), seed)
}

/// Runs as [`run`] does, with other waits.
pub fn run_with(verified: &Verified, waits: &[Waits], seed: u64) -> Result<Outcome, Fault> {
    let mut ranks: Vec<Rank> = vec![];
    for ((program, plan), waits) in verified.programs().iter().zip(&verified.plan().ranks).zip(waits) {
        let (arena, ended) =
            (vec![0xdead; (plan.host_bytes() + plan.arena_bytes()) / 64], vec![false; program.instrs.len()]);
        let queues = queues(program, verified.overlap());
        let mut rank = Rank { program, plan, waits, arena, queues, ended, at: 0 };
        for (value, _) in plan.state() {
            match *value {
                Value::Params(unit) => rank.set(*value, initial(unit))?,
                _ => rank.set(*value, 0)?,
            }
        }
        ranks.push(rank);
    }
    let mut world = World { ranks, posted: vec![] };
    let mut random = seed;
    let places: Vec<(usize, usize)> = (0..world.ranks.len())
        .flat_map(|rank| (0..world.ranks[rank].queues.len()).map(move |queue| (rank, queue)))
        .collect();
    while world.ranks.iter().flat_map(|rank| &rank.queues).any(|queue| !queue.is_empty()) {
        random = hash(&[random]);
        let start = (random >> 33) as usize % places.len();
        let mut advanced = false;
        for (rank, queue) in places[start..].iter().chain(&places[..start]) {
            if world.step(*rank, *queue)? {
                advanced = true;
                break;
            }
        }
        if !advanced {
            return Err(Fault("no rank can advance".into()));
        }
    }
    world.outcome()
}

/// The instructions of each queue, the first one last.
fn queues(program: &Program, overlap: Overlap) -> Vec<Vec<usize>> {
    let mut queues = vec![vec![]; Stream::COUNT];
    for (index, instr) in program.instrs.iter().enumerate().rev() {
        let queue = match overlap {
            Overlap::Off => 0,
            Overlap::On => instr.stream().index(),
        };
        queues[queue].push(index);
    }
    queues
}

impl World<'_> {
    /// Runs the next instruction of a rank's queue; `false` if the queue is empty or the instruction must wait.
    fn step(&mut self, at: usize, queue: usize) -> Result<bool, Fault> {
        let Some(index) = self.ranks[at].ready(queue) else { return Ok(false) };
        self.ranks[at].at = index;
        let view = self.ranks[at].program.view.clone();
        let instr = self.ranks[at].program.instrs[index];
        let owner_after = |unit| view.next(unit).and_then(|next| view.owner(next)).unwrap();
        let rank = &mut self.ranks[at];
        match instr {
            Instr::Load { microbatch } => {
                rank.set(Value::Batch(microbatch), hash(&[BATCH, u64::from(microbatch.0)]))?;
            }
            Instr::Forward { unit, microbatch } => rank.forward(unit, microbatch)?,
            Instr::Recompute { unit, microbatch } => rank.recompute(unit, microbatch)?,
            Instr::BackwardInput { unit, microbatch } => rank.backward_input(unit, microbatch)?,
            Instr::BackwardWeight { unit, microbatch } => rank.backward_weight(unit, microbatch)?,
            Instr::SendAct { unit, microbatch } => {
                self.posted.push((Value::Output { unit, microbatch }, at, index, owner_after(unit)));
            }
            Instr::SendGrad { unit, microbatch } => {
                self.posted.push((Value::OutputGrad { unit, microbatch }, at, index, view.owner(unit).unwrap()));
            }
            Instr::RecvAct { unit, microbatch } => {
                return self.receive((at, queue), Value::Output { unit, microbatch });
            }
            Instr::RecvGrad { unit, microbatch } => {
                return self.receive((at, queue), Value::OutputGrad { unit, microbatch });
            }
            Instr::ReduceGrads { unit, by, .. } => {
                let reduced = hash(&[REDUCED, rank.get(view.contribution(unit, by))?]);
                let sum = view.sum(unit, by);
                match view.zero.reduction() {
                    GradientReduction::Step => rank.set(sum, reduced)?,
                    GradientReduction::Microbatch => rank.add_or_begin(sum, reduced)?,
                }
            }
            Instr::SumTied => return self.sum_tied(),
            Instr::GradNorm => return self.norm(),
            Instr::OptimizerStep { unit } => rank.optimizer_step(unit)?,
            Instr::FetchState { unit } => rank.copy_state(unit, true)?,
            Instr::OffloadState { unit } => rank.copy_state(unit, false)?,
            Instr::OffloadActs { unit, microbatch } => rank.copy_activations(unit, microbatch, false)?,
            Instr::FetchActs { unit, microbatch } => rank.copy_activations(unit, microbatch, true)?,
            Instr::GatherParams { unit } => {
                let shard = rank.get(Value::Params(unit))?;
                rank.set(view.parameters(unit), hash(&[GATHERED, shard]))?;
            }
            Instr::FreeParams { .. } | Instr::Save { .. } => {}
        }
        let rank = &mut self.ranks[at];
        if matches!(instr, Instr::Forward { .. } | Instr::BackwardInput { .. } | Instr::BackwardWeight { .. }) {
            rank.use_scratch();
        }
        rank.end(queue);
        Ok(true)
    }

    fn receive(&mut self, (at, queue): (usize, usize), value: Value) -> Result<bool, Fault> {
        let found = self.posted.iter().position(|(posted, _, _, to)| (*posted, *to) == (value, at));
        let Some(found) = found else { return Ok(false) };
        let (_, from, index, _) = self.posted.remove(found);
        // The memory is the sender's, and is read only now.
        let content = self.ranks[from].get_at(value, index)?;
        self.ranks[at].set(value, content)?;
        self.ranks[at].end(queue);
        Ok(true)
    }

    /// The queue of each member at whose head the instruction is ready, if it is on all. They are at it from here on.
    fn all_at(&mut self, members: &[usize], instr: Instr) -> Option<Vec<usize>> {
        let queues: Vec<usize> =
            members.iter().map(|member| self.ranks[*member].queue_of(instr)).collect::<Option<Vec<_>>>()?;
        for (member, queue) in members.iter().zip(&queues) {
            let rank = &mut self.ranks[*member];
            rank.at = rank.ready(*queue)?;
        }
        Some(queues)
    }

    fn sum_tied(&mut self) -> Result<bool, Fault> {
        let owner = |unit| self.ranks[0].program.view.owner(unit).unwrap();
        let (input, output) = (owner(Unit::Embedding), owner(Unit::Head));
        let members: Vec<usize> = BTreeSet::from([input, output]).into_iter().collect();
        let Some(queues) = self.all_at(&members, Instr::SumTied) else { return Ok(false) };
        let sum_of = |at: usize, by| {
            let rank = &self.ranks[at];
            rank.get(rank.program.view.sum(Unit::Table, by))
        };
        let sum = sum_of(input, Unit::Embedding)?.wrapping_add(sum_of(output, Unit::Head)?);
        for (at, queue) in members.into_iter().zip(queues) {
            let rank = &mut self.ranks[at];
            rank.set(rank.program.view.sum(Unit::Table, rank.finisher(Unit::Table)), sum)?;
            rank.end(queue);
        }
        Ok(true)
    }

    fn norm(&mut self) -> Result<bool, Fault> {
        let members: Vec<usize> = (0..self.ranks.len()).collect();
        let Some(queues) = self.all_at(&members, Instr::GradNorm) else { return Ok(false) };
        let mut sum = 0u64;
        for rank in &self.ranks {
            sum = sum.wrapping_add(rank.get(Value::LossSums)?);
            let view = &rank.program.view;
            if view.purpose != Purpose::Train {
                continue;
            }
            for unit in Unit::computing(view.num_layers()).chain([Unit::Table]) {
                let owner = if unit == Unit::Table { Unit::Embedding } else { unit };
                if view.computes(owner) && view.has_parameters(unit) {
                    let gradient = rank.get(view.sum(unit, rank.finisher(unit)))?;
                    sum = sum.wrapping_add(hash(&[name(unit), gradient]));
                }
            }
        }
        for (rank, queue) in self.ranks.iter_mut().zip(queues) {
            rank.set(Value::LossSums, hash(&[NORM, sum]))?;
            rank.end(queue);
        }
        Ok(true)
    }

    /// Parameters of all ranks, which must agree where several hold the same.
    fn outcome(&self) -> Result<Outcome, Fault> {
        let mut outcome = Outcome::default();
        for rank in &self.ranks {
            let end = rank.program.instrs.len();
            let view = &rank.program.view;
            outcome.sums = rank.get_at(Value::LossSums, end)?;
            if view.purpose != Purpose::Train {
                continue;
            }
            rank.check_state()?;
            for unit in view.parameter_units() {
                let content = rank.get_at(Value::Params(unit), end)?;
                if *outcome.params.entry(unit).or_insert(content) != content {
                    return Err(Fault(format!("copies of {unit} differ")));
                }
            }
        }
        Ok(outcome)
    }
}
