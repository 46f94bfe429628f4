//! The time of every instruction of a step on a cluster.

use std::ops::Range;

use cluster::{Cluster, PipelineTensors, Software, StreamQueue, TensorCollectives, Transfers};
use comm::{CollectiveCall, Operation};
use config::{
    Averages, Degrees, Gathering, GradientSums, Kept, Masters, ModelSpec, Optimizer, Overlap, Parallelism, PerClass,
    Precision, Reshard, ScheduleKind, SequenceParallel, StateKind, Unit, UnitClass, UnitLayout, ZeroStage,
};
use device::{Dtype, Frame, Op, SumTree};
use mesh::{MeshError, PlacementOrder, Rank};
use program::{
    Durations, Family, Footprint, Instr, Partner, Pass, PassKind, Queue, Queues, RankView, TransferDirection,
    UnitCalls, UpdatedGathers, Updates,
};

use crate::collective::collective_ns;
use crate::group_calls::Collectives;
use crate::kernel::{Kernel, Product, ProductFormat};
use crate::overlapped::overlapped_ns;
use crate::pass_time::PassTime;
use crate::price::{busy_ns, memory_ns, peak_flops_per_ns};
use crate::recorded::{PassWork, RecordedUnits, UnitWork};

/// The layout and sizes of a run: all that its costs depend on.
#[derive(Clone, Copy, Debug)]
pub struct StepShape<'a> {
    pub model: &'a ModelSpec,
    /// The layout.
    pub parallelism: &'a Parallelism,
    /// The order in which ranks fill nodes.
    pub placement: PlacementOrder,
    /// The numbers.
    pub precision: Precision,
    /// The numbers in which gradients are summed.
    pub sums: GradientSums,
    /// Whether updated weights are averaged.
    pub averages: Averages,
    pub optimizer: Optimizer,
    /// The bytes that units keep of one microbatch on one rank.
    pub footprints: &'a PerClass<Footprint>,
}

impl StepShape<'_> {
    /// Bytes of the residual stream between two units.
    fn output_bytes(&self) -> usize {
        self.footprints[UnitClass::Embedding].output_bytes
    }
}

/// Nanoseconds of a pass: all of it, and the collectives of its tensor-parallel group in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassCost {
    /// Kernels and collectives.
    pub whole_ns: u64,
    pub collectives_ns: u64,
    /// The time of its floating-point operations at the accelerator's peak.
    pub at_peak_ns: u64,
}

/// Nanoseconds of what is done with the parameters of one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCost {
    /// Summing a gradient over all axes that it needs.
    pub reduce_ns: u64,
    /// Gathering parameters from their shards.
    pub gather_ns: u64,
    /// The optimizer's update.
    pub update_ns: u64,
    /// Copying optimizer state that is in memory of the host to the accelerator, or back.
    pub copy_ns: u64,
    /// The share of the norm.
    pub norm_ns: u64,
}

/// Durations of the instructions of one step on one cluster.
#[derive(Clone, Debug)]
pub struct StepCosts {
    /// Forward, recompute, backward of input and of weights.
    passes: PerClass<[PassCost; 4]>,
    state: PerClass<StateCost>,
    /// From pipeline rank to pipeline rank.
    transfers: Vec<Vec<u64>>,
    tied_between_ranks_ns: u64,
    tied_on_one_rank_ns: u64,
    world_ns: u64,
    footprints: PerClass<Footprint>,
    /// Nanoseconds in which a byte passes the host's link.
    host_link_ns_per_byte: f64,
    queues: Queues,
}

impl StepCosts {
    /// Costs of the step of `shape` whose units were recorded with the same `software`.
    ///
    /// # Errors
    /// Degrees that make no mesh.
    pub fn new(
        cluster: &Cluster,
        software: Option<&Software>,
        shape: &StepShape,
        units: &RecordedUnits,
    ) -> Result<StepCosts, MeshError> {
        let collectives = Collectives { cluster, software, shape, mesh: shape.parallelism.mesh()? };
        let pricing = Pricing { cluster, software, shape, collectives };
        let classes = units.units.classes();
        let passes = units.units.map(|class, unit| pricing.passes(unit, pricing.copied_ns(classes.first(class))));
        let state = PerClass::new(classes, |class| pricing.state(classes.first(class)));
        let table = UnitLayout::of(shape.model, Unit::Table, shape.parallelism);
        let calls = pricing.collectives.of_unit(&table);
        Ok(StepCosts {
            passes,
            state,
            transfers: pricing.transfers(),
            tied_between_ranks_ns: pricing.collectives.call_ns(&calls.tied(), pricing.collectives.gradient_bytes()),
            tied_on_one_rank_ns: pricing.tied_on_one_rank_ns(&calls),
            world_ns: pricing.collectives.norm_ns(),
            footprints: shape.footprints.clone(),
            host_link_ns_per_byte: cluster.accelerator.host_link_ns_per_byte(),
            queues: pricing.queues(),
        })
    }

    /// The time of a pass of a unit; nothing for the table.
    pub fn pass(&self, unit: Unit, pass: PassKind) -> PassCost {
        self.passes.of(unit)[pass as usize]
    }

    /// Costs of each pass of each unit: forward, recompute, backward of input and of weights.
    pub fn passes(&self) -> &PerClass<[PassCost; 4]> {
        &self.passes
    }

    /// The costs of a unit's parameters: gathers, reductions and updates.
    pub fn state(&self, unit: Unit) -> StateCost {
        *self.state.of(unit)
    }

    /// An activation, or its gradient, from one pipeline rank to another.
    pub fn transfer_ns(&self, from: usize, to: usize) -> u64 {
        self.transfers[from][to]
    }

    /// Summing the two gradients of a tied table, with the other end of the pipeline or on the rank that has both.
    pub fn tied_ns(&self, partner: Partner) -> u64 {
        match partner {
            Partner::Ends { .. } => self.tied_between_ranks_ns,
            Partner::None | Partner::To(_) | Partner::From(_) | Partner::Peers(_) | Partner::World => {
                self.tied_on_one_rank_ns
            }
        }
    }

    /// Copying what a layer's forward pass left for its backward pass to memory of the host, or back.
    pub fn activations_ns(&self, view: &RankView, unit: Unit) -> u64 {
        let kept = view.offloaded_activations(unit).map(|(unit, part)| self.footprints.of(unit).kept_bytes(part));
        (kept.sum::<usize>() as f64 * self.host_link_ns_per_byte).round() as u64
    }

    /// The norm on a rank that holds the parameters of these units.
    pub fn norm_ns(&self, held: impl Iterator<Item = Unit>) -> u64 {
        self.world_ns + held.map(|unit| self.state(unit).norm_ns).sum::<u64>()
    }

    /// The time of computing instructions: of a stage with these units, all passes of one microbatch.
    pub fn microbatch_ns(&self, units: impl Iterator<Item = Unit>) -> u64 {
        units.map(|unit| PassKind::ALL.map(|pass| self.pass(unit, pass).whole_ns).iter().sum::<u64>()).sum()
    }
}

impl Durations for StepCosts {
    fn of(&self, view: &RankView, instr: Instr) -> u64 {
        match instr.family() {
            Family::Pass(Pass { kind, unit, .. }) => self.pass(unit, kind).whole_ns,
            Family::Transfer { direction: TransferDirection::Send, .. } => match instr.partner(view) {
                Partner::To(to) => self.transfer_ns(view.pp, to),
                Partner::None | Partner::From(_) | Partner::Peers(_) | Partner::Ends { .. } | Partner::World => 0,
            },
            Family::Gather { unit } => self.state(unit).gather_ns,
            Family::Reduce { unit, .. } => self.state(unit).reduce_ns,
            Family::SumTied => self.tied_ns(instr.partner(view)),
            Family::GradNorm => self.norm_ns(view.trained_units()),
            Family::Update { unit } => self.state(unit).update_ns,
            Family::CopyState { unit } => self.state(unit).copy_ns,
            Family::CopyActs { unit, .. } => self.activations_ns(view, unit),
            // Tokens come from the host while others are computed on.
            Family::Load { .. }
            | Family::Transfer { direction: TransferDirection::Receive, .. }
            | Family::Bookkeeping { .. } => 0,
        }
    }

    fn queues(&self) -> Queues {
        self.queues
    }
}

/// When the ranks of a trainer update; those of pleach wait for the norm.
pub fn updates(software: Option<&Software>) -> Updates {
    match software.map(|software| software.updates) {
        None | Some(cluster::Updates::AfterNorm) => Updates::AfterNorm,
        Some(cluster::Updates::BeforeNorm) => Updates::BeforeNorm,
    }
}

/// Bytes that Muon moves for each element of a matrix, besides products: momentum is read and written, the update is
/// assigned, added to, and subtracted.
const MUON_BYTES: f64 = 12.0 + 8.0 + 12.0 + 12.0;

/// The products of five steps of Newton and Schulz on a matrix of these rows and columns, in single precision.
fn orthogonalising((rows, cols): (usize, usize)) -> Vec<Kernel> {
    let (side, long) = (rows.min(cols), rows.max(cols));
    let product = |sizes, passes: usize| Kernel::Product(Product::new(1, sizes, [4, 4 * passes], None));
    let step = [product([side, side, long], 1), product([side, side, side], 1), product([side, long, side], 2)];
    std::iter::repeat_n(step, 5).flatten().collect()
}

struct Pricing<'a> {
    cluster: &'a Cluster,
    software: Option<&'a Software>,
    shape: &'a StepShape<'a>,
    collectives: Collectives<'a>,
}

impl Pricing<'_> {
    /// The passes of a unit, of which those that read parameters that were gathered for them copy these first, for
    /// `copied_ns`.
    fn passes(&self, unit: &UnitWork, [forward_ns, backward_ns]: [u64; 2]) -> [PassCost; 4] {
        let [forward, recompute, of_inputs, of_weights] = PassKind::ALL.map(|pass| self.pass(unit.of(pass)));
        let sequence_parallel = self.shape.parallelism.sequence_parallel;
        let passes = match (self.software.map(|software| software.tensor_collectives), sequence_parallel) {
            (None | Some(TensorCollectives::InLine), _) => [forward, recompute, of_inputs, of_weights],
            (Some(TensorCollectives::InChunks), SequenceParallel::On) => {
                [forward, recompute, of_inputs, of_weights].map(|pass| pass.in_chunks(self.contention()))
            }
            (Some(TensorCollectives::BesideBackward), _)
            | (Some(TensorCollectives::InChunks), SequenceParallel::Off) => {
                let gathers = unit.backward_input.collectives.iter();
                let gathered_ns = self.tensor_ns(gathers.filter(|call| call.operation == Operation::AllGather));
                let summed_ns = of_inputs.collectives_ns.saturating_sub(gathered_ns);
                // Inputs that are gathered again, which the gradient of weights reads.
                let of_inputs = of_inputs.overlapping(gathered_ns, of_weights.collectives_ns, self.contention());
                [forward, recompute, of_inputs, of_weights.overlapping(0, summed_ns, self.contention())]
            }
        };
        let [forward, recompute, of_inputs, of_weights] = passes;
        let passes = [forward.after_copy(forward_ns), recompute, of_inputs.after_copy(backward_ns), of_weights];
        passes.map(|pass| pass.cost())
    }

    fn contention(&self) -> f64 {
        self.cluster.compute.contention
    }

    /// Nanoseconds of copying a unit's parameters out of the buffer into which they were gathered, before its forward
    /// pass and before its backward pass, where they are gathered for these.
    fn copied_ns(&self, unit: Unit) -> [u64; 2] {
        let copy_bytes = self.software.map_or(0.0, |software| software.gather_copy_bytes);
        let elements = UnitLayout::of(self.shape.model, unit, self.shape.parallelism).padded_len() as f64;
        let once_ns = self.memory_ns(elements * copy_bytes);
        match self.shape.parallelism.zero {
            ZeroStage::Off | ZeroStage::One | ZeroStage::Two { .. } => [0, 0],
            ZeroStage::Three { gathering: Gathering { reshard: Reshard::AfterBackward, .. }, .. } => [once_ns, 0],
            ZeroStage::Three { gathering: Gathering { reshard: Reshard::AfterUse, .. }, .. } => {
                [once_ns, if unit.is_repeated() { once_ns } else { 0 }]
            }
        }
    }

    fn tensor_ns<'b>(&self, calls: impl Iterator<Item = &'b CollectiveCall>) -> u64 {
        calls
            .map(|call| self.collectives.along(call.axes, call.operation, SumTree::RANK_ORDER, call.bytes as f64))
            .sum()
    }

    fn pass(&self, work: &PassWork) -> PassTime {
        let all_ns = self.tensor_ns(work.collectives.iter());
        let collectives_ns = match self.queues().reduce {
            Queue::Own if !work.order.is_empty() => self.exposed_ns(work, all_ns),
            Queue::Own | Queue::Compute | Queue::Last => all_ns,
        };
        let operations = self.software.map_or(1.0, |software| software.operations_per_kernel);
        let issued = (work.kernels.len() + work.collectives.len()) as f64 * operations;
        let issue_ns = (issued * 1000.0 * self.cluster.compute.issue_us).round() as u64;
        let format = ProductFormat::of(self.shape.precision.stored().size_bytes(), self.software);
        let at_peak_ns = (work.flops / peak_flops_per_ns(&self.cluster.accelerator, format)).round() as u64;
        PassTime::in_line(self.cluster, &work.kernels, collectives_ns, issue_ns, at_peak_ns)
            .after_copy(self.token_copies_ns(work))
    }

    /// Nanoseconds of the copies around the gathers and scatters of tokens of a pass.
    fn token_copies_ns(&self, work: &PassWork) -> u64 {
        let copy_bytes = self.software.map_or(0.0, |software| software.token_copy_bytes);
        let is_of_tokens = |call: &&CollectiveCall| match call.operation {
            Operation::AllGather | Operation::ReduceScatter => call.axes == self.shape.parallelism.tensor_axes(),
            Operation::AllReduce
            | Operation::AllToAll
            | Operation::Shift
            | Operation::Broadcast
            | Operation::Barrier
            | Operation::PointToPoint => false,
        };
        let bytes: usize = work.collectives.iter().filter(is_of_tokens).map(|call| call.bytes).sum();
        self.memory_ns(bytes as f64 / 2.0 * copy_bytes)
    }

    /// The time that a pass takes longer for collectives that overlap with its kernels, of `all_ns` that they take.
    fn exposed_ns(&self, work: &PassWork, all_ns: u64) -> u64 {
        let kernels_ns = busy_ns(self.cluster, &work.kernels);
        let one_ns = |call: &CollectiveCall| self.tensor_ns(std::iter::once(call));
        let exposed_ns = overlapped_ns(self.cluster, work, &one_ns) - kernels_ns;
        let hidden_ns = all_ns as f64 - exposed_ns;
        (exposed_ns + self.cluster.compute.contention * hidden_ns).round() as u64
    }

    fn state(&self, unit: Unit) -> StateCost {
        let StepShape { model, parallelism, precision, .. } = *self.shape;
        let layout = UnitLayout::of(model, unit, parallelism);
        let calls = self.collectives.of_unit(&layout);
        let stored = precision.stored().size_bytes() as f64;
        let updated = calls.updated.len() as f64;
        StateCost {
            reduce_ns: self.collectives.reduction_ns(&calls),
            gather_ns: self.collectives.gather_ns(&calls, stored),
            update_ns: self.update_ns(&layout, updated),
            copy_ns: self.copy_ns(&layout, &calls.updated),
            norm_ns: self.memory_ns(self.norm_bytes(&calls)),
        }
    }

    fn memory_ns(&self, bytes: f64) -> u64 {
        memory_ns(self.cluster, bytes).round() as u64
    }

    /// Nanoseconds in which the optimizer state of a rank's `updated` elements of a unit passes the host's link, one
    /// way.
    fn copy_ns(&self, layout: &UnitLayout, updated: &Range<usize>) -> u64 {
        let second = self.shape.optimizer.second_moments(layout);
        let second = second.end.min(updated.end).saturating_sub(second.start.max(updated.start));
        let masters = match self.shape.precision.masters() {
            Masters::Parameters => 0,
            Masters::Apart => 1,
        };
        let averages = match self.shape.averages {
            Averages::Off => 0,
            Averages::Kept => 1,
        };
        let elements = (1 + masters + averages) * updated.len() + second;
        let bytes = (elements * Dtype::F32.size_bytes()) as f64;
        (bytes * self.cluster.accelerator.host_link_ns_per_byte()).round() as u64
    }

    /// The update of a rank's `updated` elements of a unit. Matrices of Muon are gathered, and orthogonalised by the
    /// ranks that update a part of them.
    fn update_ns(&self, layout: &UnitLayout, updated: f64) -> u64 {
        let matrices = self.shape.optimizer.muon_matrices(layout);
        if self.software.is_some() || matrices.is_empty() {
            return self.memory_ns(updated * self.update_bytes());
        }
        let elements: usize = matrices.iter().map(|(segment, _)| segment.range().len()).sum();
        let share = elements as f64 / layout.padded_len().max(1) as f64;
        let moved = updated * (share * MUON_BYTES + (1.0 - share) * self.update_bytes());
        let parallelism = self.shape.parallelism;
        let gathered = |axes, count: usize| {
            let bytes = (count * Dtype::F32.size_bytes()) as f64;
            self.collectives.along(axes, Operation::AllGather, SumTree::RANK_ORDER, bytes)
        };
        let (gather_ns, ranks) = match parallelism.zero.keeps(StateKind::Optimizer) {
            Kept::Whole => (0, 1),
            Kept::Shard => {
                let axes = layout.axes().shards;
                (gathered(axes, layout.padded_len()), self.collectives.mesh.size(axes))
            }
        };
        let each = matrices.iter().map(|(segment, _)| {
            let products = orthogonalising(segment.param.matrix_shape());
            let gather_ns = gathered(segment.param.sharding.axes(), segment.param.len());
            gather_ns + busy_ns(self.cluster, &products).round() as u64
        });
        let each: Vec<u64> = each.collect();
        let most = each.iter().copied().max().unwrap_or(0);
        self.memory_ns(moved) + gather_ns + most.max(each.iter().sum::<u64>() / ranks as u64)
    }

    /// Bytes that the update of one parameter by AdamW moves.
    fn update_bytes(&self) -> f64 {
        if let Some(software) = self.software {
            return software.update_bytes_per_parameter;
        }
        const ELEMENTS: usize = 1 << 20;
        let frame = Frame::measuring();
        let single = || frame.floats(1, ELEMENTS);
        let stored = self.shape.precision.stored();
        let copy = match self.shape.precision.masters() {
            Masters::Parameters => None,
            Masters::Apart => Some(frame.tensor(1, ELEMENTS, stored.into())),
        };
        let update = device::AdamWUpdate {
            learning_rate: 0.0,
            weight_decay: 0.0,
            beta1: 0.0,
            beta2: 0.0,
            epsilon: 1.0,
            update: 1,
        };
        let average = match self.shape.averages {
            Averages::Off => 0,
            Averages::Kept => {
                let (x, into) = (single(), single());
                Op::ScaledSum { x, factor: 1.0, into, keep: 1.0 }.cost().moved_bytes
            }
        };
        let (param, grad, first_moment, second_moment) = (single(), single(), single(), single());
        let coefficient = frame.floats(1, 4);
        let op = Op::AdamW { param, copy, grad, first_moment, second_moment, coefficient, update };
        (op.cost().moved_bytes + average) as f64 / ELEMENTS as f64
    }

    fn transfers(&self) -> Vec<Vec<u64>> {
        let Degrees { pp, .. } = self.shape.parallelism.degrees;
        let tensor_axes = self.shape.parallelism.tensor_axes();
        let mesh = &self.collectives.mesh;
        let block = mesh.ranks_per_stage();
        let scattered = self.software.is_some_and(|software| software.pipeline_tensors == PipelineTensors::Scattered)
            && self.shape.parallelism.sequence_parallel == SequenceParallel::Off;
        let bytes = self.shape.output_bytes() as f64;
        let calls = match self.software.map(|software| software.transfers) {
            Some(Transfers::InLineOneByOne) => 2,
            Some(
                Transfers::InLine
                | Transfers::Overlapped
                | Transfers::OverlappedIfInterleaved
                | Transfers::OverlappedUnlessPlain,
            )
            | None => 1,
        };
        let ns = |from: usize, to: usize| {
            let pair = self.collectives.pair(Rank(from * block), Rank(to * block));
            let send = |bytes| {
                collective_ns(self.cluster, pair, Operation::PointToPoint, SumTree::RANK_ORDER, bytes).round() as u64
            };
            match scattered && pair.nodes > 1 {
                false => calls * send(bytes),
                true => {
                    let share = bytes / mesh.size(tensor_axes) as f64;
                    calls * send(share)
                        + self.collectives.along(tensor_axes, Operation::AllGather, SumTree::RANK_ORDER, bytes)
                }
            }
        };
        (0..pp).map(|from| (0..pp).map(|to| ns(from, to)).collect()).collect()
    }

    /// Bytes that the norm reads and writes: each replica squares its slice, whatever it holds, and exact sums are
    /// rounded first.
    fn norm_bytes(&self, calls: &UnitCalls) -> f64 {
        let updated = calls.updated.len() as f64;
        if let Some(software) = self.software {
            return updated * software.gradient_bytes;
        }
        let single = Dtype::F32.size_bytes() as f64;
        let rounded = match self.shape.sums {
            GradientSums::Single => 0.0,
            GradientSums::Exact => updated * (self.collectives.gradient_bytes() + single),
        };
        rounded + calls.layout.shard(0).len() as f64 * single
    }

    /// The sum of a tied table's gradients where one rank makes both: two are read, one is written.
    fn tied_on_one_rank_ns(&self, calls: &UnitCalls) -> u64 {
        self.memory_ns(3.0 * calls.updated.len() as f64 * self.collectives.gradient_bytes())
    }

    fn queues(&self) -> Queues {
        let streams = self.cluster.accelerator.streams;
        let queue = |of: StreamQueue| match of {
            StreamQueue::InLine => Queue::Compute,
            StreamQueue::Beside => Queue::Own,
            StreamQueue::Last => Queue::Last,
        };
        let [reduce, transfer] = match (self.software, self.shape.parallelism.overlap) {
            (None, Some(Overlap::Off)) => [Queue::Compute; 2],
            (None, Some(Overlap::On)) => [Queue::Own; 2],
            (None, None) => [queue(streams); 2],
            (Some(software), _) => [queue(software.reductions), self.transfer_queue(software)],
        };
        Queues {
            reduce,
            transfer,
            copies: match reduce {
                Queue::Compute => Queue::Compute,
                Queue::Own | Queue::Last => Queue::Own,
            },
            updated_gathers: match self.software.map(|software| software.updated_gathers) {
                None | Some(cluster::UpdatedGathers::AfterUpdate) => UpdatedGathers::AfterUpdate,
                Some(cluster::UpdatedGathers::Overlapped) => UpdatedGathers::OverlappedWithNextStep,
            },
            updates: updates(self.software),
            contention_per_mille: (1000.0 * self.cluster.compute.contention).round() as u64,
        }
    }

    fn transfer_queue(&self, software: &Software) -> Queue {
        let schedule = &self.shape.parallelism.schedule;
        let is_plain = *schedule == ScheduleKind::OneForwardOneBackward.into();
        match (software.transfers, schedule.stages_per_rank().unwrap_or(1)) {
            (Transfers::InLine | Transfers::InLineOneByOne, _) | (Transfers::OverlappedIfInterleaved, 1) => {
                Queue::Compute
            }
            (Transfers::OverlappedUnlessPlain, _) if is_plain => Queue::Compute,
            (Transfers::Overlapped | Transfers::OverlappedIfInterleaved | Transfers::OverlappedUnlessPlain, _) => {
                Queue::Own
            }
        }
    }
}
