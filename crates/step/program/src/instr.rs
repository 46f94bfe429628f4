//! The instructions of a training step. Their meaning is defined once, in `effects`.

use std::fmt;

use config::{Microbatch, Unit};

use crate::{GradientAxes, Value};

/// The purpose of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Forward, backward, reduction, update.
    Train,
    /// Forward and loss.
    Evaluate,
    /// Forward and logits.
    Generate,
}

/// One instruction of one pipeline rank. The unit of a send or receive is the one whose output (or whose
/// output's gradient) travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instr {
    /// Fetches the tokens, labels, positions and masks of a microbatch. Every stage does, for they are functions of the
    /// data index.
    Load { microbatch: Microbatch },
    /// Computes a unit's output. The head's computes loss, gradient and weight gradients at once, by chunks of tokens.
    Forward { unit: Unit, microbatch: Microbatch },
    /// Recomputes what the forward pass of the unit did not keep.
    Recompute { unit: Unit, microbatch: Microbatch },
    /// Gradient of a unit's input. The head's instruction passes on the gradient that its forward pass computed.
    BackwardInput { unit: Unit, microbatch: Microbatch },
    /// Gradient of a unit's weights, accumulated. The head's is empty.
    BackwardWeight { unit: Unit, microbatch: Microbatch },
    /// Sends the unit's output to the rank of the next unit.
    SendAct { unit: Unit, microbatch: Microbatch },
    /// Receives the unit's output from the unit's rank.
    RecvAct { unit: Unit, microbatch: Microbatch },
    /// Sends the gradient of the unit's output to the unit's rank.
    SendGrad { unit: Unit, microbatch: Microbatch },
    /// Receives the gradient of the unit's output from the rank of the next unit.
    RecvGrad { unit: Unit, microbatch: Microbatch },
    /// Makes the unit's parameters whole out of their data-parallel shards: in place, or gathered where state holds
    /// a shard.
    GatherParams { unit: Unit },
    /// Frees parameters that were gathered.
    FreeParams { unit: Unit },
    /// Sums the gradient of `unit`'s parameters that `by` accumulated, each parameter's over its `axes`; where ranks
    /// keep shards, into this rank's.
    ReduceGrads { unit: Unit, by: Unit, axes: GradientAxes },
    /// Adds the two reduced gradients of a tied table, the embedding's first: between two ranks, or in place where one
    /// rank has both.
    SumTied,
    /// Global norm, loss and clip coefficient, over all ranks.
    GradNorm,
    /// Updates the unit's parameters (or this rank's shard of them).
    OptimizerStep { unit: Unit },
    /// Copies the unit's optimizer state from memory of the host into the arena.
    FetchState { unit: Unit },
    /// Copies the unit's updated optimizer state back to memory of the host.
    OffloadState { unit: Unit },
    /// Copies what the unit's forward pass left for its backward pass to memory of the host.
    OffloadActs { unit: Unit, microbatch: Microbatch },
    /// Copies it from there into the arena.
    FetchActs { unit: Unit, microbatch: Microbatch },
    /// Hands the unit's parameters and optimizer state to storage.
    Save { unit: Unit },
}

/// The computation of a unit in a [`Pass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PassKind {
    /// The head's computes gradients, too.
    Forward,
    /// Fills the saved set again, or what of it was not kept.
    Recompute,
    /// Gradient of the input.
    BackwardInput,
    /// Gradients of the weights.
    BackwardWeight,
}

impl PassKind {
    /// In the order in which they run.
    pub const ALL: [PassKind; 4] =
        [PassKind::Forward, PassKind::Recompute, PassKind::BackwardInput, PassKind::BackwardWeight];
}

/// One computation of one unit on one microbatch: what [`Instr::pass`] finds in an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pass {
    /// The computed part.
    pub kind: PassKind,
    /// The unit that runs.
    pub unit: Unit,
    pub microbatch: Microbatch,
}

/// Passes of one unit and microbatch that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitPasses {
    pub unit: Unit,
    pub microbatch: Microbatch,
    /// Which half of the work on the microbatch.
    pub half: Half,
}

/// See [`UnitPasses::half`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Half {
    /// The forward pass.
    Forward,
    /// Recomputation and backward passes.
    Backward,
}

impl Pass {
    /// The passes of its unit and microbatch that follow each other; none where it computes nothing, as the head's
    /// backward passes.
    pub fn unit_passes(self) -> Option<UnitPasses> {
        let Pass { kind, unit, microbatch } = self;
        match kind {
            PassKind::Forward => Some(UnitPasses { unit, microbatch, half: Half::Forward }),
            PassKind::Recompute | PassKind::BackwardInput | PassKind::BackwardWeight => {
                (!unit.makes_gradients_forward()).then_some(UnitPasses { unit, microbatch, half: Half::Backward })
            }
        }
    }
}

/// Whether a rank sends or receives a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferDirection {
    Send,
    Receive,
}

/// An instruction by what it is to those who price, count and check instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A computation of a unit.
    Pass(Pass),
    /// See [`Instr::Load`].
    Load { microbatch: Microbatch },
    /// Sends or receives an output, or the gradient of one.
    Transfer { value: Value, microbatch: Microbatch, direction: TransferDirection },
    /// See [`Instr::GatherParams`].
    Gather { unit: Unit },
    /// See [`Instr::ReduceGrads`].
    Reduce { unit: Unit, by: Unit, axes: GradientAxes },
    /// See [`Instr::SumTied`].
    SumTied,
    /// See [`Instr::GradNorm`].
    GradNorm,
    /// See [`Instr::OptimizerStep`].
    Update { unit: Unit },
    /// Copies optimizer state from or to memory of the host.
    CopyState { unit: Unit },
    /// Copies activations from or to memory of the host.
    CopyActs { unit: Unit, microbatch: Microbatch },
    /// Frees parameters or hands them to storage: neither a kernel nor another rank takes part.
    Bookkeeping { unit: Unit },
}

impl Instr {
    /// Its family.
    pub fn family(self) -> Family {
        let pass = |kind, unit, microbatch| Family::Pass(Pass { kind, unit, microbatch });
        let transfer = |value, microbatch, direction| Family::Transfer { value, microbatch, direction };
        let output = |unit, microbatch| Value::Output { unit, microbatch };
        let gradient = |unit, microbatch| Value::OutputGrad { unit, microbatch };
        match self {
            Instr::Load { microbatch } => Family::Load { microbatch },
            Instr::Forward { unit, microbatch } => pass(PassKind::Forward, unit, microbatch),
            Instr::Recompute { unit, microbatch } => pass(PassKind::Recompute, unit, microbatch),
            Instr::BackwardInput { unit, microbatch } => pass(PassKind::BackwardInput, unit, microbatch),
            Instr::BackwardWeight { unit, microbatch } => pass(PassKind::BackwardWeight, unit, microbatch),
            Instr::SendAct { unit, microbatch } => {
                transfer(output(unit, microbatch), microbatch, TransferDirection::Send)
            }
            Instr::RecvAct { unit, microbatch } => {
                transfer(output(unit, microbatch), microbatch, TransferDirection::Receive)
            }
            Instr::SendGrad { unit, microbatch } => {
                transfer(gradient(unit, microbatch), microbatch, TransferDirection::Send)
            }
            Instr::RecvGrad { unit, microbatch } => {
                transfer(gradient(unit, microbatch), microbatch, TransferDirection::Receive)
            }
            Instr::GatherParams { unit } => Family::Gather { unit },
            Instr::ReduceGrads { unit, by, axes } => Family::Reduce { unit, by, axes },
            Instr::SumTied => Family::SumTied,
            Instr::GradNorm => Family::GradNorm,
            Instr::OptimizerStep { unit } => Family::Update { unit },
            Instr::FetchState { unit } | Instr::OffloadState { unit } => Family::CopyState { unit },
            Instr::OffloadActs { unit, microbatch } | Instr::FetchActs { unit, microbatch } => {
                Family::CopyActs { unit, microbatch }
            }
            Instr::FreeParams { unit } | Instr::Save { unit } => Family::Bookkeeping { unit },
        }
    }

    /// The computation of a unit in this instruction, if one does.
    pub fn pass(self) -> Option<Pass> {
        if let Family::Pass(pass) = self.family() { Some(pass) } else { None }
    }

    /// The value that the instruction sends or receives, if it does.
    pub fn transfer(self) -> Option<(Value, TransferDirection)> {
        if let Family::Transfer { value, direction, .. } = self.family() { Some((value, direction)) } else { None }
    }

    /// The microbatch that the instruction is about, if it is about one.
    pub fn microbatch(self) -> Option<Microbatch> {
        match self.family() {
            Family::Pass(Pass { microbatch, .. })
            | Family::Load { microbatch }
            | Family::Transfer { microbatch, .. }
            | Family::CopyActs { microbatch, .. } => Some(microbatch),
            Family::Gather { .. } | Family::Reduce { .. } | Family::SumTied | Family::GradNorm => None,
            Family::Update { .. } | Family::CopyState { .. } | Family::Bookkeeping { .. } => None,
        }
    }
}

impl fmt::Display for Instr {
    /// The operation; with `#`, a reduction's axes as well.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instr::Load { microbatch } => write!(f, "load {microbatch}"),
            Instr::Forward { unit, microbatch } => write!(f, "forward {unit}, {microbatch}"),
            Instr::Recompute { unit, microbatch } => write!(f, "recompute {unit}, {microbatch}"),
            Instr::BackwardInput { unit, microbatch } => write!(f, "backward input {unit}, {microbatch}"),
            Instr::BackwardWeight { unit, microbatch } => write!(f, "backward weight {unit}, {microbatch}"),
            Instr::SendAct { unit, microbatch } => write!(f, "send output of {unit}, {microbatch}"),
            Instr::RecvAct { unit, microbatch } => write!(f, "receive output of {unit}, {microbatch}"),
            Instr::SendGrad { unit, microbatch } => write!(f, "send gradient of {unit}, {microbatch}"),
            Instr::RecvGrad { unit, microbatch } => write!(f, "receive gradient of {unit}, {microbatch}"),
            Instr::GatherParams { unit } => write!(f, "gather parameters of {unit}"),
            Instr::FreeParams { unit } => write!(f, "free parameters of {unit}"),
            Instr::ReduceGrads { unit, by, axes } => {
                write!(f, "reduce gradients of {unit}")?;
                if unit != by {
                    write!(f, " made by {by}")?;
                }
                if f.alternate() { write!(f, " {axes}") } else { Ok(()) }
            }
            Instr::SumTied => f.write_str("sum gradients of the tied table"),
            Instr::GradNorm => f.write_str("gradient norm"),
            Instr::OptimizerStep { unit } => write!(f, "optimizer step of {unit}"),
            Instr::FetchState { unit } => write!(f, "fetch optimizer state of {unit}"),
            Instr::OffloadState { unit } => write!(f, "offload optimizer state of {unit}"),
            Instr::OffloadActs { unit, microbatch } => write!(f, "offload activations of {unit}, {microbatch}"),
            Instr::FetchActs { unit, microbatch } => write!(f, "fetch activations of {unit}, {microbatch}"),
            Instr::Save { unit } => write!(f, "save {unit}"),
        }
    }
}
