//! ZeRO as a table: what each stage keeps of each kind of state between its uses.

use crate::names::names;

/// Which states are sharded over data parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZeroStage {
    /// Everything is replicated.
    Off,
    /// Optimizer state and master weights are sharded.
    One,
    /// Gradients as well.
    Two {
        /// When gradients are summed.
        reduce: GradientReduction,
    },
    /// Parameters as well: they are gathered for each use.
    Three {
        /// When gradients are summed.
        reduce: GradientReduction,
        /// How parameters are gathered.
        gathering: Gathering,
    },
}

/// When sharded gradients are summed over data parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GradientReduction {
    /// Once a step: each rank adds up whole gradients of its microbatches, which live until the unit's last backward
    /// pass.
    Step,
    /// After each microbatch, into a sharded sum: little memory, the traffic of a step for each microbatch, and sums
    /// in another order.
    Microbatch,
}

names! { GradientReduction: "step" = Step, "microbatch" = Microbatch }

/// How sharded parameters are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gathering {
    /// Each gather comes this many uses before the use that needs it, in the order of instructions.
    pub prefetch: usize,
    /// When they are freed.
    pub reshard: Reshard,
}

/// When gathered parameters are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reshard {
    /// After each use: forward and backward passes gather for themselves.
    AfterUse,
    /// After the backward pass of the microbatch (FSDP without resharding after the forward pass).
    AfterBackward,
}

names! { Reshard: "after-use" = AfterUse, "after-backward" = AfterBackward }

/// A kind of state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    Parameters,
    /// Sums of gradients.
    Gradients,
    /// Moments of the optimizer, master weights.
    Optimizer,
}

/// How much of a state a rank keeps between its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of it.
    Whole,
    /// One of equal slices, one for each rank of a sharding group.
    Shard,
}

impl ZeroStage {
    /// The table of ZeRO (Rajbhandari et al., 2019, figure 1).
    pub fn keeps(self, state: StateKind) -> Kept {
        match (self, state) {
            (ZeroStage::Off, _) => Kept::Whole,
            (ZeroStage::One, StateKind::Optimizer) => Kept::Shard,
            (ZeroStage::One, StateKind::Gradients | StateKind::Parameters) => Kept::Whole,
            (ZeroStage::Two { .. }, StateKind::Optimizer | StateKind::Gradients) => Kept::Shard,
            (ZeroStage::Two { .. }, StateKind::Parameters) => Kept::Whole,
            (ZeroStage::Three { .. }, _) => Kept::Shard,
        }
    }

    /// When gradients are summed. Whole ones are summed once a step.
    pub fn reduction(self) -> GradientReduction {
        match self {
            ZeroStage::Off | ZeroStage::One => GradientReduction::Step,
            ZeroStage::Two { reduce } | ZeroStage::Three { reduce, .. } => reduce,
        }
    }
}
