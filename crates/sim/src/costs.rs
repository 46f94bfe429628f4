//! What every instruction of a step takes on a cluster.

use cluster::{Cluster, Gathers, PipelineTensors, ShardedReductions, Software, StreamQueue, TensorCollectives};
use comm::{CollectiveCall, Operation};
use config::{
    Degrees, Kept, ModelSpec, Overlap, Parallelism, PerClass, Precision, Recompute, SequenceParallel, StateKind, Unit,
    UnitLayout, ZeroStage, gradient_axes,
};
use device::{Frame, Op};
use mesh::{AxisSet, Mesh, MeshError};
use program::{Durations, Instr, Partner, Pass, PassKind, Queue, Queues, RankView};

use crate::collective::{GroupShape, collective_ns};
use crate::kernel::ProductFormat;
use crate::price::{busy_ns, memory_ns, peak_flops_per_ns};
use crate::recorded::{PassWork, RecordedUnits, UnitWork};

/// What is spread how: all of a run that its costs depend on.
#[derive(Clone, Copy, Debug)]
pub struct StepShape<'a> {
    /// The model.
    pub model: &'a ModelSpec,
    /// The layout.
    pub parallelism: &'a Parallelism,
    /// The numbers.
    pub precision: Precision,
    /// Bytes of the residual stream between two units, of one microbatch on one rank.
    pub output_bytes: usize,
}

/// Nanoseconds of a pass: all of it, and the collectives of its tensor-parallel group in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassCost {
    /// Kernels and collectives.
    pub whole_ns: u64,
    /// Collectives.
    pub collectives_ns: u64,
    /// What its floating-point operations would take at the accelerator's peak.
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
    tied_ns: u64,
    world_ns: u64,
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
        let pricing = Pricing { cluster, software, shape, mesh: shape.parallelism.mesh()? };
        let classes = units.units.classes();
        let passes = units.units.map(|_, unit| pricing.passes(unit));
        let state = PerClass::new(classes, |class| pricing.state(classes.first(class)));
        Ok(StepCosts {
            passes,
            state,
            transfers: pricing.transfers(),
            tied_ns: pricing.tied_ns(),
            world_ns: pricing.collective(AxisSet::ALL, Operation::AllReduce, 64.0),
            queues: pricing.queues(),
        })
    }

    /// What a pass of a unit takes; nothing for the table.
    pub fn pass(&self, unit: Unit, pass: PassKind) -> PassCost {
        self.passes.of(unit)[pass as usize]
    }

    /// Costs of each pass of each unit: forward, recompute, backward of input and of weights.
    pub fn passes(&self) -> &PerClass<[PassCost; 4]> {
        &self.passes
    }

    /// What is done with the parameters of a unit.
    pub fn state(&self, unit: Unit) -> StateCost {
        *self.state.of(unit)
    }

    /// An activation, or its gradient, from one pipeline rank to another.
    pub fn transfer_ns(&self, from: usize, to: usize) -> u64 {
        self.transfers[from][to]
    }

    /// Summing the two gradients of a tied table.
    pub fn tied_ns(&self) -> u64 {
        self.tied_ns
    }

    /// The norm on a rank that holds the parameters of these units.
    pub fn norm_ns(&self, held: impl Iterator<Item = Unit>) -> u64 {
        self.world_ns + held.map(|unit| self.state(unit).norm_ns).sum::<u64>()
    }

    /// What instructions cost that compute: of a stage with these units, all passes of one microbatch.
    pub fn microbatch_ns(&self, units: impl Iterator<Item = Unit>) -> u64 {
        units.map(|unit| PassKind::ALL.map(|pass| self.pass(unit, pass).whole_ns).iter().sum::<u64>()).sum()
    }
}

impl Durations for StepCosts {
    fn of(&self, view: &RankView, instr: Instr) -> u64 {
        if let Some(Pass { kind, unit, .. }) = instr.pass() {
            return self.pass(unit, kind).whole_ns;
        }
        match instr {
            Instr::SendAct { .. } | Instr::SendGrad { .. } => match instr.partner(view) {
                Partner::To(to) => self.transfer_ns(view.pp, to),
                Partner::Nobody | Partner::From(_) | Partner::Peers(_) | Partner::Ends { .. } | Partner::World => 0,
            },
            Instr::GatherParams { unit } => self.state(unit).gather_ns,
            Instr::ReduceGrads { unit, .. } => self.state(unit).reduce_ns,
            Instr::SumTied => self.tied_ns,
            Instr::GradNorm => self.norm_ns(view.parameter_units()),
            Instr::OptimizerStep { unit } => self.state(unit).update_ns,
            // Tokens come from the host while others are computed on.
            Instr::Load { .. }
            | Instr::Forward { .. }
            | Instr::Recompute { .. }
            | Instr::BackwardInput { .. }
            | Instr::BackwardWeight { .. }
            | Instr::RecvAct { .. }
            | Instr::RecvGrad { .. }
            | Instr::FreeParams { .. }
            | Instr::Save { .. } => 0,
        }
    }

    fn queues(&self) -> Queues {
        self.queues
    }
}

struct Pricing<'a> {
    cluster: &'a Cluster,
    software: Option<&'a Software>,
    shape: &'a StepShape<'a>,
    mesh: Mesh,
}

impl Pricing<'_> {
    fn collective(&self, axes: AxisSet, operation: Operation, bytes: f64) -> u64 {
        let group = GroupShape::new(&self.mesh, axes, self.cluster.node.accelerators);
        collective_ns(self.cluster, group, operation, bytes).round() as u64
    }

    fn passes(&self, unit: &UnitWork) -> [PassCost; 4] {
        let [forward, recompute, of_inputs, of_weights] = PassKind::ALL.map(|pass| self.pass(unit.of(pass)));
        match self.software.map(|software| software.tensor_collectives) {
            None | Some(TensorCollectives::InLine) => [forward, recompute, of_inputs, of_weights],
            Some(TensorCollectives::BesideBackward) => {
                let gathers = unit.backward_input.collectives.iter();
                let gathered_ns = self.tensor_ns(gathers.filter(|call| call.operation == Operation::AllGather));
                let summed_ns = of_inputs.collectives_ns - gathered_ns;
                // What the gradient of inputs has gathered, that of weights reads.
                let inputs_ns = of_weights.collectives_ns.saturating_sub(gathered_ns);
                let of_inputs = self.beside(of_inputs, gathered_ns, inputs_ns);
                [forward, recompute, of_inputs, self.beside(of_weights, 0, summed_ns)]
            }
        }
    }

    /// The kernels of a pass with some collectives in line and others beside them, as far as these are not longer than the kernels.
    fn beside(&self, pass: PassCost, in_line_ns: u64, beside_ns: u64) -> PassCost {
        let kernels_ns = pass.whole_ns - pass.collectives_ns;
        let slowed_ns = self.cluster.compute.contention * beside_ns.min(kernels_ns) as f64;
        let collectives_ns = in_line_ns + beside_ns.saturating_sub(kernels_ns);
        PassCost { whole_ns: kernels_ns + slowed_ns.round() as u64 + collectives_ns, collectives_ns, ..pass }
    }

    fn tensor_ns<'b>(&self, calls: impl Iterator<Item = &'b CollectiveCall>) -> u64 {
        calls.map(|call| self.collective(call.axes, call.operation, call.bytes as f64)).sum()
    }

    fn pass(&self, work: &PassWork) -> PassCost {
        let collectives_ns = self.tensor_ns(work.collectives.iter());
        let operations = self.software.map_or(1.0, |software| software.operations_per_kernel);
        let issued = (work.kernels.len() + work.collectives.len()) as f64 * operations;
        let issue_ns = (issued * 1000.0 * self.cluster.compute.issue_us).round() as u64;
        let busy_ns = busy_ns(self.cluster, &work.kernels).round() as u64 + collectives_ns;
        // The host runs ahead of the accelerator, so whichever is slower counts.
        let whole_ns = busy_ns.max(issue_ns);
        let format = ProductFormat::of(self.shape.precision.stored().size_bytes(), self.software);
        let peak = peak_flops_per_ns(&self.cluster.accelerator, format);
        PassCost { whole_ns, collectives_ns, at_peak_ns: (work.flops / peak).round() as u64 }
    }

    fn gradient_bytes(&self) -> f64 {
        self.software.map_or(4.0, |software| software.gradient_bytes)
    }

    fn state(&self, unit: Unit) -> StateCost {
        let StepShape { model, parallelism, precision, .. } = *self.shape;
        let layout = UnitLayout::of(model, unit, parallelism);
        let elements = layout.padded_len() as f64;
        let share = |state| match parallelism.zero.keeps(state) {
            Kept::Whole => 1.0,
            Kept::Shard => 1.0 / self.mesh.size(parallelism.shard_axes()) as f64,
        };
        // A parameter with copies beyond data parallelism is summed by itself.
        let of_parameters = layout.segments.iter().map(|segment| {
            let axes = gradient_axes(&segment.param, parallelism).difference(parallelism.data_axes());
            let bytes = (segment.rows * segment.cols) as f64 * self.gradient_bytes();
            if self.mesh.size(axes) > 1 { self.collective(axes, Operation::AllReduce, bytes) } else { 0 }
        });
        let of_parameters: u64 = of_parameters.sum();
        let stored = precision.stored().size_bytes() as f64;
        let updated = elements * share(StateKind::Optimizer);
        StateCost {
            reduce_ns: of_parameters + self.reduction_ns(elements * self.gradient_bytes()),
            gather_ns: self.gather_ns(&layout, elements * stored),
            update_ns: self.memory_ns(updated * self.update_bytes()),
            norm_ns: self.memory_ns(updated * self.gradient_bytes()),
        }
    }

    /// In one piece, or tensor by tensor.
    fn gather_ns(&self, layout: &UnitLayout, bytes: f64) -> u64 {
        let tensors = match self.software.map(|software| software.gathers) {
            None | Some(Gathers::PerUnit) => 1,
            Some(Gathers::PerTensor) => layout.segments.len().max(1),
        };
        let one = self.collective(self.shape.parallelism.shard_axes(), Operation::AllGather, bytes / tensors as f64);
        let is_computed_again = matches!(self.shape.parallelism.recompute, Recompute::Full(_));
        let again = match (self.software, self.shape.parallelism.zero) {
            (Some(software), ZeroStage::Three { .. }) if is_computed_again => {
                software.gathers_of_recomputed_layers / 2.0
            }
            (Some(_) | None, _) => 1.0,
        };
        (tensors as f64 * one as f64 * again).round() as u64
    }

    fn memory_ns(&self, bytes: f64) -> u64 {
        memory_ns(self.cluster, bytes).round() as u64
    }

    /// Over data parallelism: whole, or within sharding groups and then over groups. What is put off to the end of the step is reduced together,
    /// so that a unit pays for its bytes alone.
    fn reduction_ns(&self, bytes: f64) -> u64 {
        let put_off = self.software.is_some_and(|software| software.reductions == StreamQueue::Last);
        let units_together = if put_off { (self.shape.model.num_layers + 2) as f64 } else { 1.0 };
        (self.reduction_of_ns(bytes * units_together) as f64 / units_together).round() as u64
    }

    fn reduction_of_ns(&self, bytes: f64) -> u64 {
        let whole = self.software.is_some_and(|software| software.sharded_reductions == ShardedReductions::Whole);
        let parallelism = self.shape.parallelism;
        match parallelism.zero {
            ZeroStage::Off => self.collective(parallelism.data_axes(), Operation::AllReduce, bytes),
            ZeroStage::One if whole => self.collective(parallelism.data_axes(), Operation::AllReduce, bytes),
            ZeroStage::One | ZeroStage::Two { .. } | ZeroStage::Three { .. } => {
                let shard = bytes / self.mesh.size(parallelism.shard_axes()) as f64;
                self.collective(parallelism.shard_axes(), Operation::ReduceScatter, bytes)
                    + self.collective(parallelism.replica_axes(), Operation::AllReduce, shard)
            }
        }
    }

    /// Bytes that the update of one parameter moves.
    fn update_bytes(&self) -> f64 {
        if let Some(software) = self.software {
            return software.update_bytes_per_parameter;
        }
        const ELEMENTS: usize = 1 << 20;
        let frame = Frame::measuring();
        let single = || frame.floats(1, ELEMENTS);
        let stored = self.shape.precision.stored();
        let copy = match self.shape.precision.masters() {
            config::Masters::Parameters => None,
            config::Masters::Apart => Some(frame.tensor(1, ELEMENTS, stored.into())),
        };
        let update = device::AdamWUpdate {
            learning_rate: 0.0,
            weight_decay: 0.0,
            beta1: 0.0,
            beta2: 0.0,
            epsilon: 1.0,
            update: 1,
        };
        let (param, grad, first_moment, second_moment) = (single(), single(), single(), single());
        let coefficient = frame.floats(1, 4);
        let op = Op::AdamW { param, copy, grad, first_moment, second_moment, coefficient, update };
        op.cost().moved_bytes as f64 / ELEMENTS as f64
    }

    fn transfers(&self) -> Vec<Vec<u64>> {
        let Degrees { pp, .. } = self.shape.parallelism.degrees;
        let tensor_axes = self.shape.parallelism.tensor_axes();
        let block = self.mesh.ranks_per_stage();
        let node = self.cluster.node.accelerators;
        let scattered = self.software.is_some_and(|software| software.pipeline_tensors == PipelineTensors::Scattered)
            && self.shape.parallelism.sequence_parallel == SequenceParallel::Off;
        let bytes = self.shape.output_bytes as f64;
        let ns = |from: usize, to: usize| {
            let pair = GroupShape::pair(&self.mesh, from * block, to * block, node);
            let send = |bytes| collective_ns(self.cluster, pair, Operation::PointToPoint, bytes).round() as u64;
            match scattered && pair.nodes > 1 {
                false => send(bytes),
                true => {
                    let share = bytes / self.mesh.size(tensor_axes) as f64;
                    send(share) + self.collective(tensor_axes, Operation::AllGather, bytes)
                }
            }
        };
        (0..pp).map(|from| (0..pp).map(|to| ns(from, to)).collect()).collect()
    }

    /// The tied table's gradient between the ends of the pipeline.
    fn tied_ns(&self) -> u64 {
        let StepShape { model, parallelism, .. } = *self.shape;
        let block = self.mesh.ranks_per_stage();
        let layout = UnitLayout::of(model, Unit::Table, parallelism);
        let share = match parallelism.zero.keeps(StateKind::Optimizer) {
            Kept::Whole => 1.0,
            Kept::Shard => 1.0 / self.mesh.size(parallelism.shard_axes()) as f64,
        };
        let bytes = layout.padded_len() as f64 * share * self.gradient_bytes();
        if parallelism.degrees.pp == 1 {
            return self.memory_ns(3.0 * bytes);
        }
        let last = (parallelism.degrees.pp - 1) * block;
        let ends = GroupShape::pair(&self.mesh, 0, last, self.cluster.node.accelerators);
        collective_ns(self.cluster, ends, Operation::AllReduce, bytes).round() as u64
    }

    fn queues(&self) -> Queues {
        let streams = self.cluster.accelerator.streams;
        let queue = |of: Option<StreamQueue>| match (self.software, self.shape.parallelism.overlap) {
            (None, Some(Overlap::Off)) => Queue::Compute,
            (None, Some(Overlap::On)) => Queue::Own,
            (Some(_), _) | (None, None) => match of.unwrap_or(streams) {
                StreamQueue::InLine => Queue::Compute,
                StreamQueue::Beside => Queue::Own,
                StreamQueue::Last => Queue::Last,
            },
        };
        Queues {
            reduce: queue(self.software.map(|software| software.reductions)),
            transfer: queue(self.software.map(|software| software.transfers)),
            contention_per_mille: (1000.0 * self.cluster.compute.contention).round() as u64,
        }
    }
}
