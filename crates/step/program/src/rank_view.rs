//! A pipeline rank's view of itself and of the other units' places.

use std::sync::Arc;

use config::{
    Averages, GradientSums, Kept, LayerRecompute, Masters, MemoryKind, Microbatch, Offload, PerClass, Recompute,
    SavedInputs, StateKind, Tied, TopQuery, Unit, UnitAxes, ZeroStage,
};

use crate::{ActivationPart, Declared, OptimizerPart, Purpose, Value};

/// One pipeline coordinate's view: everything that the meaning of its instructions depends on.
///
/// It holds no dp and no tp coordinate, so peers along those axes have equal places and equal programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankView {
    /// Index along the pipeline axis.
    pub pp: usize,
    /// Ranks along the pipeline axis.
    pub pipeline_size: usize,
    /// Pipeline index of each computing unit's owner: embedding, layers, head.
    pub owners: Vec<usize>,
    /// Whether the head reads the token table.
    pub tied: Tied,
    /// Whether the head has a layer of its own.
    pub top_query: TopQuery,
    /// The purpose of the programs.
    pub purpose: Purpose,
    /// The activations that the backward pass recomputes; empty where it recomputes nothing.
    pub recompute: Recompute,
    /// The state that data parallelism shards.
    pub zero: ZeroStage,
    /// The axes over which the parameters of each class of units are reduced and sharded.
    pub axes: PerClass<UnitAxes>,
    /// Where the weights are that the optimizer updates.
    pub masters: Masters,
    /// Whether the optimizer averages them.
    pub averages: Averages,
    /// The data type in which gradients are summed.
    pub sums: GradientSums,
    /// The choice of what is in memory of the host between its uses.
    pub offload: Offload,
    /// Microbatches of a step.
    pub num_microbatches: usize,
    /// The declared parameters: the verifier compares reductions with them.
    pub declared: Arc<Declared>,
}

impl RankView {
    /// Layers of the whole model.
    pub fn num_layers(&self) -> usize {
        self.owners.len() - 2
    }

    /// The pipeline index of the rank that computes `unit`; for the table, of the rank that computes the embedding.
    /// `None` for a layer that the model does not have.
    pub fn owner(&self, unit: Unit) -> Option<usize> {
        let index = match unit {
            Unit::Table | Unit::Embedding => 0,
            Unit::Layer(layer) | Unit::Adapters(layer) | Unit::Experts(layer)
                if (layer as usize) < self.num_layers() =>
            {
                1 + layer as usize
            }
            Unit::Layer(_) | Unit::Adapters(_) | Unit::Experts(_) => return None,
            Unit::Head => self.owners.len() - 1,
        };
        self.owners.get(index).copied()
    }

    /// Whether this rank computes `unit`.
    pub fn computes(&self, unit: Unit) -> bool {
        match unit {
            Unit::Table | Unit::Adapters(_) | Unit::Experts(_) => false,
            Unit::Embedding | Unit::Layer(_) | Unit::Head => self.owner(unit) == Some(self.pp),
        }
    }

    /// Whether this rank has the parameters of `unit`: a tied table is held by the head's rank too.
    pub fn holds(&self, unit: Unit) -> bool {
        self.has_parameters(unit)
            && (self.owner(unit) == Some(self.pp) || unit.is_read_at_both_ends(self.tied) && self.computes(Unit::Head))
    }

    /// Whether `unit` has parameters at all.
    pub fn has_parameters(&self, unit: Unit) -> bool {
        !self.declared.of(unit).is_empty()
    }

    /// Whether `unit` has parameters that are trained.
    pub fn trains(&self, unit: Unit) -> bool {
        self.has_parameters(unit) && self.declared.trains(unit)
    }

    /// The unit whose output `unit` reads.
    pub fn previous(&self, unit: Unit) -> Option<Unit> {
        unit.previous(self.num_layers())
    }

    /// The unit that reads the output of `unit`.
    pub fn next(&self, unit: Unit) -> Option<Unit> {
        let num_layers = self.num_layers() as u32;
        match unit {
            Unit::Table | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => None,
            Unit::Embedding if num_layers == 0 => Some(Unit::Head),
            Unit::Embedding => Some(Unit::Layer(0)),
            Unit::Layer(layer) if layer + 1 < num_layers => Some(Unit::Layer(layer + 1)),
            Unit::Layer(_) => Some(Unit::Head),
        }
    }

    /// The recomputed part of `unit`.
    pub fn recomputes(&self, unit: Unit) -> LayerRecompute {
        match unit {
            Unit::Layer(layer) => self.recompute.of_layer(layer),
            Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => {
                LayerRecompute::Nothing
            }
        }
    }

    /// The units that this rank computes, in forward order.
    pub fn computing_units(&self) -> impl DoubleEndedIterator<Item = Unit> + '_ {
        Unit::computing(self.num_layers()).filter(|unit| self.computes(*unit))
    }

    /// The units with attention that this rank computes.
    fn attending_units(&self) -> impl Iterator<Item = Unit> + '_ {
        self.computing_units().filter(|unit| self.attends(*unit))
    }

    /// The units whose parameters this rank has, each once, in forward order; the table first.
    pub fn parameter_units(&self) -> impl Iterator<Item = Unit> + '_ {
        Unit::holding(self.num_layers()).filter(|unit| self.holds(*unit))
    }

    /// The units of this rank that are trained.
    pub fn trained_units(&self) -> impl Iterator<Item = Unit> + '_ {
        self.parameter_units().filter(|unit| self.trains(*unit))
    }

    /// The units whose parameters the computing unit `by` reads, as far as they have any.
    pub fn reads_parameters_of(&self, by: Unit) -> impl Iterator<Item = Unit> + '_ {
        by.reads_parameters_of(self.tied).filter(|unit| self.has_parameters(*unit))
    }

    /// The units whose parameters the computing unit `by` makes gradients of.
    pub fn makes_gradients_of(&self, by: Unit) -> impl Iterator<Item = Unit> + '_ {
        self.reads_parameters_of(by).filter(|unit| self.trains(*unit))
    }

    /// The gradient accumulators of this rank as `(unit, by)`: one per use of each unit's trained parameters.
    pub fn accumulators(&self) -> impl Iterator<Item = (Unit, Unit)> + '_ {
        self.computing_units().flat_map(|by| self.makes_gradients_of(by).map(move |unit| (unit, by)))
    }

    /// The accumulators that hold a finished gradient once the tied ones are summed, and that this rank counts in
    /// the global norm. A tied table is counted by the embedding's rank.
    pub fn norm_accumulators(&self) -> impl Iterator<Item = (Unit, Unit)> + '_ {
        self.accumulators().filter(|&(unit, by)| self.has_first_copy(unit) && by == self.finisher(unit))
    }

    /// Whether this rank, which holds `unit`, is the first in pipeline order that does.
    pub fn has_first_copy(&self, unit: Unit) -> bool {
        !unit.is_read_at_both_ends(self.tied) || self.computes(Unit::Embedding)
    }

    /// The computing unit of this rank in whose sum the finished gradient of `unit` is: the head where one rank has
    /// both uses of a table, since its sum is there all the time.
    pub fn finisher(&self, unit: Unit) -> Unit {
        match unit {
            Unit::Table if self.tied == Tied::Yes && self.computes(Unit::Head) => Unit::Head,
            Unit::Table => Unit::Embedding,
            Unit::Embedding | Unit::Layer(_) | Unit::Head => unit,
            Unit::Adapters(layer) | Unit::Experts(layer) => Unit::Layer(layer),
        }
    }

    /// The value from which this rank's optimizer reads the gradient of `unit`.
    pub fn gradient(&self, unit: Unit) -> Value {
        self.sum(unit, self.finisher(unit))
    }

    /// The whole parameters of `unit`, which computing units read.
    pub fn parameters(&self, unit: Unit) -> Value {
        match self.zero.keeps(StateKind::Parameters) {
            Kept::Whole => Value::Params(unit),
            Kept::Shard => Value::Gathered(unit),
        }
    }

    /// The whole gradient of `unit`'s parameters, to which `by` adds.
    pub fn contribution(&self, unit: Unit, by: Unit) -> Value {
        match self.zero.keeps(StateKind::Gradients) {
            Kept::Whole => Value::Accumulator { unit, by },
            Kept::Shard => Value::Unreduced { unit, by },
        }
    }

    /// The reduced sum of the gradients of `unit`'s parameters by `by`: all of it, or a shard.
    pub fn sum(&self, unit: Unit, by: Unit) -> Value {
        match self.zero.keeps(StateKind::Gradients) {
            Kept::Whole => Value::Accumulator { unit, by },
            Kept::Shard => Value::Reduced { unit, by },
        }
    }

    /// The weights that the optimizer updates, where they are a value of their own.
    pub fn master(&self, unit: Unit) -> Option<Value> {
        match self.masters {
            Masters::Parameters => None,
            Masters::Apart => self.trains(unit).then_some(Value::Master(unit)),
        }
    }

    /// The moving average of the weights of `unit`, where it is kept. Frozen weights are their own average.
    pub fn average(&self, unit: Unit) -> Option<Value> {
        match self.averages {
            Averages::Off => None,
            Averages::Kept => self.declared.trains(unit).then_some(Value::Average(unit)),
        }
    }

    /// The parts of the optimizer state of `unit` that this rank keeps.
    pub fn optimizer_parts(&self, unit: Unit) -> impl Iterator<Item = OptimizerPart> + use<> {
        let trained = self.trains(unit);
        let kept = |part: &OptimizerPart| match part {
            OptimizerPart::Master => self.master(unit).is_some(),
            OptimizerPart::FirstMoment | OptimizerPart::SecondMoment => trained,
            OptimizerPart::Average => self.average(unit).is_some(),
        };
        let kept = OptimizerPart::ALL.map(|part| Some(part).filter(kept));
        kept.into_iter().flatten()
    }

    /// The parts of a unit's optimizer state that are in memory of the host.
    pub fn offloaded(&self, unit: Unit) -> impl Iterator<Item = OptimizerPart> + use<> {
        let memory_kind = self.offload.optimizer_state();
        self.optimizer_parts(unit).filter(move |_| memory_kind == MemoryKind::Host)
    }

    /// The activations of `unit` that are in memory of the host from its forward pass to its backward pass, each with
    /// the unit whose value it is: all that a layer's forward pass leaves, with its input.
    pub fn offloaded_activations(&self, unit: Unit) -> impl Iterator<Item = (Unit, ActivationPart)> + use<> {
        let memory_kind = match self.purpose {
            Purpose::Train => self.offload.activations(),
            Purpose::Evaluate | Purpose::Generate => MemoryKind::Arena,
        };
        let input = self.previous(unit).map(|previous| (previous, ActivationPart::Output));
        let [until_input, until_weight, saved_input] =
            [ActivationPart::UntilInput, ActivationPart::UntilWeight, ActivationPart::SavedInput]
                .map(|part| Some((unit, part)));
        let kept = match (memory_kind, unit, self.recomputes(unit)) {
            (MemoryKind::Arena, _, _)
            | (
                MemoryKind::Host,
                Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_),
                _,
            ) => [None, None, None],
            (MemoryKind::Host, Unit::Layer(_), LayerRecompute::Nothing | LayerRecompute::Core) => {
                [input, until_input, until_weight]
            }
            (MemoryKind::Host, Unit::Layer(_), LayerRecompute::Everything(SavedInputs::Whole)) => [input, None, None],
            (MemoryKind::Host, Unit::Layer(_), LayerRecompute::Everything(SavedInputs::Sharded)) => {
                [saved_input, None, None]
            }
        };
        kept.into_iter().flatten()
    }

    /// The value that an update of `unit` changes: the state itself, or its copy in the arena.
    pub fn updated(&self, unit: Unit, part: OptimizerPart) -> Value {
        match self.offload.optimizer_state() {
            MemoryKind::Arena => part.of(unit),
            MemoryKind::Host => Value::Staged { unit, part },
        }
    }

    /// Whether a value is in memory of the host.
    pub fn is_on_host(&self, value: Value) -> bool {
        match value {
            Value::OnHost { .. } => true,
            Value::Master(_) | Value::FirstMoment(_) | Value::SecondMoment(_) | Value::Average(_) => {
                self.offload.optimizer_state() == MemoryKind::Host
            }
            Value::Batch(_)
            | Value::Output { .. }
            | Value::OutputGrad { .. }
            | Value::SavedUntilInput { .. }
            | Value::SavedUntilWeight { .. }
            | Value::CoreUntilInput { .. }
            | Value::CoreUntilWeight { .. }
            | Value::SavedInput { .. }
            | Value::Pending { .. }
            | Value::Gathered(_)
            | Value::Unreduced { .. }
            | Value::Reduced { .. }
            | Value::Params(_)
            | Value::Accumulator { .. }
            | Value::Staged { .. }
            | Value::Cache(_)
            | Value::Constants
            | Value::LossSums => false,
        }
    }

    /// Whether this rank takes part in summing a tied table's gradients.
    pub fn sums_tied(&self) -> bool {
        self.tied == Tied::Yes
            && self.trains(Unit::Table)
            && (self.computes(Unit::Embedding) || self.computes(Unit::Head))
    }

    /// The microbatches of a step in ascending order.
    pub fn microbatches(&self) -> impl DoubleEndedIterator<Item = Microbatch> + use<> {
        (0..self.num_microbatches as u32).map(Microbatch)
    }

    /// Whether `unit` has attention.
    fn attends(&self, unit: Unit) -> bool {
        match unit {
            Unit::Table | Unit::Embedding | Unit::Adapters(_) | Unit::Experts(_) => false,
            Unit::Layer(_) => true,
            Unit::Head => self.top_query == TopQuery::On,
        }
    }

    /// Whether `unit` reads keys and values of the tokens before, and adds its own.
    pub fn caches(&self, unit: Unit) -> bool {
        match self.purpose {
            Purpose::Generate => self.attends(unit),
            Purpose::Train | Purpose::Evaluate => false,
        }
    }

    /// State in a fixed order: what every program needs first, then what only training needs, so that programs of
    /// different purposes agree on the places of what they share.
    pub fn state(&self, state: State) -> Vec<Value> {
        let mut list = vec![Value::Constants, Value::LossSums];
        list.extend(self.parameter_units().map(Value::Params));
        match state {
            State::Inference => {}
            State::Generation { .. } => list.extend(self.attending_units().map(Value::Cache)),
            State::Training | State::TrainingWithSamples { .. } => {
                let sums = self.accumulators().map(|(unit, by)| self.sum(unit, by));
                list.extend(sums.filter(|sum| sum.is_state()));
                list.extend(self.parameter_units().filter_map(|unit| self.master(unit)));
                list.extend(self.trained_units().map(Value::FirstMoment));
                list.extend(self.trained_units().map(Value::SecondMoment));
                list.extend(self.parameter_units().filter_map(|unit| self.average(unit)));
                match state {
                    State::TrainingWithSamples { .. } => list.extend(self.attending_units().map(Value::Cache)),
                    State::Inference | State::Generation { .. } | State::Training => {}
                }
            }
        }
        list
    }
}

/// Which state a rank keeps between programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Parameters only.
    Inference,
    /// Parameters and each attending unit's cache of keys and values.
    Generation {
        /// Bytes of one cache.
        cache_bytes: usize,
    },
    /// Parameters, gradients and optimizer state, with master weights where they are apart.
    Training,
    /// The same, and each attending unit's cache of keys and values for texts that are generated between steps.
    TrainingWithSamples {
        /// Bytes of one cache.
        cache_bytes: usize,
    },
}
