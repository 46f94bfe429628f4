//! The meaning of instructions: what each reads, writes and frees, and with whom. It is written here and nowhere else;
//! waits, verification, memory and execution all follow from it.

use std::fmt;

use config::{GradientReduction, GradientSums, Kept, LayerRecompute, Microbatch, SavedInputs, StateKind, Unit};
use device::Stream;
use mesh::AxisSet;

use crate::{Instr, Purpose, RankView, Value, Values};

/// The ranks with which an instruction communicates. Numbers are indices along the pipeline axis; the other coordinates
/// are the rank's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partner {
    /// With no other rank (tensor-parallel collectives inside a unit are the unit's own matter).
    None,
    /// Posts to this pipeline rank.
    To(usize),
    /// Waits for this pipeline rank.
    From(usize),
    /// With the ranks of the same pipeline index that differ along these axes.
    Peers(AxisSet),
    /// With one other pipeline rank: the embedding's and the head's.
    Ends {
        /// Pipeline index of the embedding's rank, first in the sum.
        embedding: usize,
        /// Pipeline index of the head's rank.
        head: usize,
    },
    /// With all ranks.
    World,
}

/// Everything that an instruction does, apart from arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effects {
    /// The ranks with which it communicates.
    pub partner: Partner,
    /// Values whose contents it needs.
    pub reads: Values,
    /// Whether it reads, besides, all gradients that this rank counts in the norm ([`RankView::norm_accumulators`]).
    pub reads_gradients: Gradients,
    /// Values that it overwrites (or updates in place, where it also reads them).
    pub assigns: Values,
    /// Values that it adds to. One that does not live yet begins with it.
    pub accumulates: Values,
    /// Values whose life ends with it. A batch's life ends with its last reader instead.
    pub frees: Values,
    /// The value whose memory it lends to the receiver: its life ends when the receive is known to have happened.
    pub lends: Option<Value>,
}

/// See [`Effects::reads_gradients`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradients {
    /// None.
    Unread,
    /// All that count in the norm; exact sums become numbers in single precision at the same place.
    All,
}

impl Effects {
    const NONE: Effects = Effects {
        partner: Partner::None,
        reads: Values::NONE,
        reads_gradients: Gradients::Unread,
        assigns: Values::NONE,
        accumulates: Values::NONE,
        frees: Values::NONE,
        lends: None,
    };
}

impl fmt::Display for Partner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Partner::None => f.write_str("alone"),
            Partner::To(rank) => write!(f, "to pipeline rank {rank}"),
            Partner::From(rank) => write!(f, "from pipeline rank {rank}"),
            Partner::Peers(axes) => write!(f, "over {axes}"),
            Partner::Ends { embedding, head } => write!(f, "between pipeline ranks {embedding} and {head}"),
            Partner::World => f.write_str("over all ranks"),
        }
    }
}

impl fmt::Display for Effects {
    /// `over dp_outer+dp_inner; reads ..; writes ..`, in the order partner, reads, updates (reads and writes), writes,
    /// adds to, frees, lends. The microbatch,
    /// which all values of an instruction have in common, is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |verb: &str, values: Vec<Value>| {
            let names: Vec<String> = values.iter().map(|value| format!("{value:#}")).collect();
            (!names.is_empty()).then(|| format!("{verb} {}", names.join(" | ")))
        };
        let (updated, read) = self.reads.iter().partition(|value| self.assigns.as_slice().contains(value));
        let written = self.assigns.iter().filter(|value| !self.reads.as_slice().contains(value)).collect();
        let parts = [
            (self.partner != Partner::None).then(|| self.partner.to_string()),
            (self.reads_gradients == Gradients::All).then(|| "reads all gradients".to_string()),
            list("reads", read),
            list("updates", updated),
            list("writes", written),
            list("adds to", self.accumulates.iter().collect()),
            list("frees", self.frees.iter().collect()),
            list("lends", self.lends.into_iter().collect()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join("; "))
    }
}

impl Instr {
    /// The queue that the instruction is issued to.
    pub fn stream(self) -> Stream {
        match self {
            Instr::Load { .. }
            | Instr::Forward { .. }
            | Instr::Recompute { .. }
            | Instr::BackwardInput { .. }
            | Instr::BackwardWeight { .. }
            | Instr::FreeParams { .. }
            | Instr::OptimizerStep { .. } => Stream::Compute,
            Instr::SendAct { .. } | Instr::RecvAct { .. } | Instr::SendGrad { .. } | Instr::RecvGrad { .. } => {
                Stream::Transfer
            }
            Instr::GatherParams { .. } | Instr::ReduceGrads { .. } | Instr::SumTied | Instr::GradNorm => Stream::Reduce,
            Instr::FetchState { .. } | Instr::FetchActs { .. } => Stream::Fetch,
            Instr::OffloadState { .. } | Instr::OffloadActs { .. } => Stream::Offload,
            Instr::Save { .. } => Stream::Io,
        }
    }

    /// The ranks with which the instruction communicates on the rank at `view`: [`Effects::partner`] alone.
    pub fn partner(self, view: &RankView) -> Partner {
        let to = |rank: Option<usize>| rank.map_or(Partner::None, Partner::To);
        let from = |rank: Option<usize>| rank.map_or(Partner::None, Partner::From);
        let next_owner = |unit| view.next(unit).and_then(|next| view.owner(next));
        match self {
            Instr::SendAct { unit, .. } => to(next_owner(unit)),
            Instr::RecvAct { unit, .. } => from(view.owner(unit)),
            Instr::SendGrad { unit, .. } => to(view.owner(unit)),
            Instr::RecvGrad { unit, .. } => from(next_owner(unit)),
            Instr::GatherParams { unit } => Partner::Peers(view.axes.of(unit).shards),
            Instr::ReduceGrads { axes, .. } => Partner::Peers(axes.union()),
            Instr::SumTied => match (view.owner(Unit::Embedding), view.owner(Unit::Head)) {
                (Some(embedding), Some(head)) if embedding != head => Partner::Ends { embedding, head },
                _ => Partner::None,
            },
            Instr::GradNorm => Partner::World,
            Instr::Load { .. }
            | Instr::Forward { .. }
            | Instr::Recompute { .. }
            | Instr::BackwardInput { .. }
            | Instr::BackwardWeight { .. }
            | Instr::FreeParams { .. }
            | Instr::OptimizerStep { .. }
            | Instr::FetchState { .. }
            | Instr::OffloadState { .. }
            | Instr::OffloadActs { .. }
            | Instr::FetchActs { .. }
            | Instr::Save { .. } => Partner::None,
        }
    }

    /// The effects of the instruction on the rank at `view`. Allocates nothing.
    pub fn effects(self, view: &RankView) -> Effects {
        match self {
            Instr::Load { microbatch } => Effects { assigns: Values::of([Value::Batch(microbatch)]), ..Effects::NONE },
            Instr::Forward { unit, microbatch } => At { view, unit, microbatch }.forward(),
            Instr::Recompute { unit, microbatch } => At { view, unit, microbatch }.recompute(),
            Instr::BackwardInput { unit, microbatch } => At { view, unit, microbatch }.backward_input(),
            Instr::BackwardWeight { unit, microbatch } => At { view, unit, microbatch }.backward_weight(),
            Instr::SendAct { unit, microbatch } => send(Value::Output { unit, microbatch }, self.partner(view)),
            Instr::RecvAct { unit, microbatch } => receive(Value::Output { unit, microbatch }, self.partner(view)),
            Instr::SendGrad { unit, microbatch } => send(Value::OutputGrad { unit, microbatch }, self.partner(view)),
            Instr::RecvGrad { unit, microbatch } => receive(Value::OutputGrad { unit, microbatch }, self.partner(view)),
            Instr::GatherParams { unit } => Effects {
                partner: self.partner(view),
                reads: Values::of([Value::Params(unit)]),
                assigns: Values::of([view.parameters(unit)]),
                ..Effects::NONE
            },
            Instr::FreeParams { unit } => {
                let gathered = Values::of([Value::Gathered(unit)]);
                Effects { reads: gathered, frees: gathered, ..Effects::NONE }
            }
            Instr::ReduceGrads { unit, by, .. } => reduce_grads(view, unit, by, self.partner(view)),
            Instr::SumTied => sum_tied(view, self.partner(view)),
            Instr::GradNorm => Effects {
                reads_gradients: match view.purpose {
                    Purpose::Train => Gradients::All,
                    Purpose::Evaluate | Purpose::Generate => Gradients::Unread,
                },
                ..in_place(Value::LossSums, self.partner(view))
            },
            Instr::OptimizerStep { unit } => {
                let updated = updated_state(view, unit);
                Effects {
                    reads: updated.with(view.gradient(unit)).with(Value::LossSums),
                    assigns: updated,
                    ..Effects::NONE
                }
            }
            Instr::FetchState { unit } => Effects {
                reads: Values::of(view.offloaded(unit).map(|part| part.of(unit))),
                assigns: Values::of(view.offloaded(unit).map(|part| Value::Staged { unit, part })),
                ..Effects::NONE
            },
            Instr::OffloadState { unit } => {
                let staged = Values::of(view.offloaded(unit).map(|part| Value::Staged { unit, part }));
                let assigns = Values::of(view.offloaded(unit).map(|part| part.of(unit)));
                Effects { reads: staged, assigns, frees: staged, ..Effects::NONE }
            }
            Instr::OffloadActs { unit, microbatch } => {
                let [in_arena, on_host] = copied_activations(view, unit, microbatch);
                Effects { reads: in_arena, assigns: on_host, frees: in_arena, ..Effects::NONE }
            }
            Instr::FetchActs { unit, microbatch } => {
                let [in_arena, on_host] = copied_activations(view, unit, microbatch);
                Effects { reads: on_host, assigns: in_arena, frees: on_host, ..Effects::NONE }
            }
            Instr::Save { unit } => Effects { reads: optimizer_state(view, unit), ..Effects::NONE },
        }
    }
}

/// The activations that copies move: values in the arena, and the same in memory of the host.
fn copied_activations(view: &RankView, unit: Unit, microbatch: Microbatch) -> [Values; 2] {
    let kept = || view.offloaded_activations(unit);
    let in_arena = Values::of(kept().map(|(of, part)| part.of(of, microbatch)));
    [in_arena, Values::of(kept().map(|(unit, part)| Value::OnHost { unit, microbatch, part }))]
}

/// Values of `unit` that are stored.
fn optimizer_state(view: &RankView, unit: Unit) -> Values {
    Values::of([Value::Params(unit)]).with_each(view.optimizer_parts(unit).map(|part| part.of(unit)))
}

/// The same where an update of `unit` changes them.
fn updated_state(view: &RankView, unit: Unit) -> Values {
    Values::of([Value::Params(unit)]).with_each(view.optimizer_parts(unit).map(|part| view.updated(unit, part)))
}

fn send(value: Value, partner: Partner) -> Effects {
    Effects { partner, reads: Values::of([value]), lends: Some(value), ..Effects::NONE }
}

fn receive(value: Value, partner: Partner) -> Effects {
    Effects { partner, assigns: Values::of([value]), ..Effects::NONE }
}

fn in_place(value: Value, partner: Partner) -> Effects {
    Effects { partner, reads: Values::of([value]), assigns: Values::of([value]), ..Effects::NONE }
}

/// In place, or out of what was made since the last reduction into this rank's shard of the sum.
fn reduce_grads(view: &RankView, unit: Unit, by: Unit, partner: Partner) -> Effects {
    let (sum, made) = (view.sum(unit, by), Values::of([view.contribution(unit, by)]));
    let (assigns, accumulates) = match (view.zero.keeps(StateKind::Gradients), view.zero.reduction()) {
        (Kept::Whole, _) => return in_place(sum, partner),
        (Kept::Shard, GradientReduction::Step) => (Values::of([sum]), Values::NONE),
        (Kept::Shard, GradientReduction::Microbatch) => (Values::NONE, Values::of([sum])),
    };
    Effects { partner, reads: made, assigns, accumulates, frees: made, ..Effects::NONE }
}

/// Between two ranks, both end with the sum; on one rank, the head's accumulator does, and the embedding's is not
/// needed any more.
fn sum_tied(view: &RankView, partner: Partner) -> Effects {
    let unit = Unit::Table;
    let sum = view.gradient(unit);
    if partner != Partner::None {
        return in_place(sum, partner);
    }
    let added = view.sum(unit, Unit::Embedding);
    let frees = Values::NONE.with_some((!added.is_state()).then_some(added));
    Effects { reads: Values::of([added, sum]), frees, ..in_place(sum, partner) }
}

/// A computing instruction on a unit and a microbatch.
struct At<'a> {
    view: &'a RankView,
    unit: Unit,
    microbatch: Microbatch,
}

impl At<'_> {
    fn output(&self) -> Value {
        Value::Output { unit: self.unit, microbatch: self.microbatch }
    }

    fn output_grad(&self) -> Value {
        Value::OutputGrad { unit: self.unit, microbatch: self.microbatch }
    }

    fn saved_until_input(&self) -> Value {
        Value::SavedUntilInput { unit: self.unit, microbatch: self.microbatch }
    }

    fn saved_until_weight(&self) -> Value {
        Value::SavedUntilWeight { unit: self.unit, microbatch: self.microbatch }
    }

    /// Values that the attention core leaves, where it is recomputed: until the input and until the weights.
    fn core(&self) -> Option<[Value; 2]> {
        let (unit, microbatch) = (self.unit, self.microbatch);
        match self.view.recomputes(unit) {
            LayerRecompute::Core => {
                Some([Value::CoreUntilInput { unit, microbatch }, Value::CoreUntilWeight { unit, microbatch }])
            }
            LayerRecompute::Nothing | LayerRecompute::Everything(_) => None,
        }
    }

    fn saved_input(&self) -> Value {
        Value::SavedInput { unit: self.unit, microbatch: self.microbatch }
    }

    fn pending(&self) -> Value {
        Value::Pending { unit: self.unit, microbatch: self.microbatch }
    }

    /// The cache that a unit of a generating program reads and adds to.
    fn cache(&self) -> Option<Value> {
        self.view.caches(self.unit).then_some(Value::Cache(self.unit))
    }

    fn batch(&self) -> Value {
        Value::Batch(self.microbatch)
    }

    /// The output of the unit before, which is this unit's input.
    fn input(&self) -> Option<Value> {
        let microbatch = self.microbatch;
        self.view.previous(self.unit).map(|unit| Value::Output { unit, microbatch })
    }

    /// The gradient of this unit's input.
    fn input_grad(&self) -> Option<Value> {
        let microbatch = self.microbatch;
        self.view.previous(self.unit).map(|unit| Value::OutputGrad { unit, microbatch })
    }

    /// The units whose parameters this one reads, as far as they have any.
    fn parameter_units(&self) -> impl Iterator<Item = Unit> {
        self.view.reads_parameters_of(self.unit)
    }

    /// `start` and the parameters that this unit reads.
    fn with_params(&self, start: Values) -> Values {
        start.with_each(self.parameter_units().map(|unit| self.view.parameters(unit)))
    }

    /// The parameters of this unit's adapters, of which the gradient of each is a function of the other.
    fn adapters(&self) -> Option<Value> {
        let adapters = self.parameter_units().find(|unit| unit.is_adapters())?;
        Some(self.view.parameters(adapters))
    }

    /// The tables that hold the scale of adapters.
    fn scale_of_adapters(&self) -> Option<Value> {
        self.adapters().map(|_| Value::Constants)
    }

    fn accumulators(&self) -> Values {
        let by = self.unit;
        Values::of(self.view.makes_gradients_of(by).map(|unit| self.view.contribution(unit, by)))
    }

    /// Where an exact sum counts the terms that it refuses.
    fn refusals(&self) -> Option<Value> {
        match self.view.sums {
            GradientSums::Single => None,
            GradientSums::Exact => Some(Value::LossSums),
        }
    }

    /// Where a training step counts choices of experts.
    fn choice_counts(&self) -> Option<Value> {
        let has_experts = |layer| self.view.has_parameters(Unit::Experts(layer));
        match self.unit {
            Unit::Layer(layer) => has_experts(layer).then_some(Value::LossSums),
            Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => None,
        }
    }

    fn forward(&self) -> Effects {
        let inputs = Values::of([self.batch(), Value::Constants]).with_some(self.input());
        let reads = self.with_params(inputs).with_some(self.cache());
        let saved = Values::of([self.saved_until_input(), self.saved_until_weight()]);
        match (self.unit, self.view.purpose) {
            (Unit::Table | Unit::Adapters(_) | Unit::Experts(_), _) => Effects::NONE,
            (Unit::Embedding | Unit::Layer(_), Purpose::Evaluate | Purpose::Generate) => Effects {
                reads,
                assigns: saved.with(self.output()).with_some(self.cache()),
                frees: saved.with_some(self.input()),
                ..Effects::NONE
            },
            (Unit::Embedding | Unit::Layer(_), Purpose::Train) => {
                let assigns = saved.with(self.output());
                // Recomputed values are not kept until then.
                let (assigns, frees) = match self.view.recomputes(self.unit) {
                    LayerRecompute::Nothing => (assigns, Values::NONE),
                    LayerRecompute::Core => (assigns.with_all(self.core()), Values::NONE.with_all(self.core())),
                    LayerRecompute::Everything(SavedInputs::Whole) => (assigns, saved),
                    LayerRecompute::Everything(SavedInputs::Sharded) => {
                        (assigns.with(self.saved_input()), saved.with_some(self.input()))
                    }
                };
                let accumulates = Values::NONE.with_some(self.choice_counts());
                Effects { reads, assigns, accumulates, frees, ..Effects::NONE }
            }
            // The head computes loss, gradients and weight gradients at once, so that logits are never stored whole.
            (Unit::Head, Purpose::Train) => Effects {
                reads,
                assigns: Values::NONE.with_some(self.input_grad()),
                accumulates: self.accumulators().with(Value::LossSums),
                frees: Values::NONE.with_some(self.input()),
                ..Effects::NONE
            },
            (Unit::Head, Purpose::Evaluate) => Effects {
                reads,
                accumulates: Values::of([Value::LossSums]),
                frees: Values::NONE.with_some(self.input()),
                ..Effects::NONE
            },
            (Unit::Head, Purpose::Generate) => Effects {
                reads,
                assigns: Values::of([self.output()]).with_some(self.cache()),
                frees: Values::NONE.with_some(self.input()),
                ..Effects::NONE
            },
        }
    }

    fn recompute(&self) -> Effects {
        let inputs = Values::of([self.batch(), Value::Constants]);
        let saved = Values::of([self.saved_until_input(), self.saved_until_weight()]);
        match self.view.recomputes(self.unit) {
            LayerRecompute::Nothing => Effects::NONE,
            LayerRecompute::Core => Effects {
                reads: self.with_params(inputs).with(self.saved_until_input()).with(self.saved_until_weight()),
                assigns: Values::NONE.with_all(self.core()),
                ..Effects::NONE
            },
            LayerRecompute::Everything(SavedInputs::Whole) => {
                Effects { reads: self.with_params(inputs.with_some(self.input())), assigns: saved, ..Effects::NONE }
            }
            // The input is gathered from the saved inputs of the tensor-parallel group, and stays as if it had been
            // kept.
            LayerRecompute::Everything(SavedInputs::Sharded) => Effects {
                reads: self.with_params(inputs.with(self.saved_input())),
                assigns: saved.with_some(self.input()),
                frees: Values::of([self.saved_input()]),
                ..Effects::NONE
            },
        }
    }

    fn backward_input(&self) -> Effects {
        let saved = Values::of([self.saved_until_input(), self.saved_until_weight()]).with_all(self.core());
        let used_up = Values::of([self.saved_until_input()]).with_some(self.core().map(|[until_input, _]| until_input));
        match self.unit {
            Unit::Table | Unit::Adapters(_) | Unit::Experts(_) => Effects::NONE,
            // Its forward pass wrote the gradient already; here it is passed on.
            Unit::Head => Effects { reads: Values::NONE.with_some(self.input_grad()), ..Effects::NONE },
            Unit::Embedding | Unit::Layer(_) => Effects {
                reads: self
                    .with_params_of_layers(saved.with(self.output_grad()).with(self.batch()).with_some(self.input())),
                assigns: Values::of([self.pending()]).with_some(self.input_grad()),
                frees: used_up,
                ..Effects::NONE
            },
        }
    }

    /// The embedding's backward pass of the input is its dropout's, which reads no parameters.
    fn with_params_of_layers(&self, start: Values) -> Values {
        match self.unit {
            Unit::Layer(_) => self.with_params(start.with(Value::Constants)),
            Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => start,
        }
    }

    fn backward_weight(&self) -> Effects {
        let used_up = Values::of([self.saved_until_weight(), self.pending(), self.output_grad()])
            .with_some(self.core().map(|[_, until_weight]| until_weight))
            .with_some(self.input());
        match self.unit {
            Unit::Table | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => Effects::NONE,
            Unit::Embedding | Unit::Layer(_) => Effects {
                reads: used_up.with(self.batch()).with_some(self.adapters()).with_some(self.scale_of_adapters()),
                accumulates: self.accumulators().with_some(self.refusals()),
                frees: used_up,
                ..Effects::NONE
            },
        }
    }
}
