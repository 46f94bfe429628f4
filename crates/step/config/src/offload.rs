//! The memory of the host that a rank uses.

use crate::names::names;

/// State and activations of a rank that are in memory of the host between their uses.
///
/// A rank on a GPU has pinned memory for it, and copies it from and to its arena around its uses. A rank on a CPU does
/// the same within its own memory. No bit of a run depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// Nothing.
    #[default]
    None,
    /// State that only the optimizer reads: moments, master weights where they are apart, and averages of the weights.
    Optimizer,
    /// Activations that a layer's forward pass leaves for its backward pass.
    Activations,
    /// Both.
    All,
}

names! { Offload: "none" = None, "optimizer" = Optimizer, "activations" = Activations, "all" = All }

/// The memory in which something is between its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The rank's arena, which its kernels reach.
    Arena,
    /// Memory of the host.
    Host,
}

impl Offload {
    /// The content of memory of the host, in words.
    pub fn content(self) -> &'static str {
        match self {
            Offload::None => "nothing",
            Offload::Optimizer => "optimizer state",
            Offload::Activations => "activations",
            Offload::All => "optimizer state and activations",
        }
    }

    /// Changes that need less memory of the host.
    pub fn remedy(self) -> &'static str {
        match self {
            Offload::None => "use fewer ranks on a host",
            Offload::Optimizer => {
                "use fewer ranks on a host, a higher parallelism.zero with more replicas, or train.offload = \"none\""
            }
            Offload::Activations => {
                "use fewer ranks on a host, parallelism.recompute = \"full\", a smaller \
                 parallelism.microbatch_size, or train.offload = \"none\""
            }
            Offload::All => {
                "use fewer ranks on a host, parallelism.recompute = \"full\", a smaller \
                 parallelism.microbatch_size, or train.offload = \"activations\" or \"optimizer\""
            }
        }
    }

    /// Where state is that only the optimizer reads.
    pub fn optimizer_state(self) -> MemoryKind {
        match self {
            Offload::None | Offload::Activations => MemoryKind::Arena,
            Offload::Optimizer | Offload::All => MemoryKind::Host,
        }
    }

    /// Where activations are between the forward and the backward pass of their layer.
    pub fn activations(self) -> MemoryKind {
        match self {
            Offload::None | Offload::Optimizer => MemoryKind::Arena,
            Offload::Activations | Offload::All => MemoryKind::Host,
        }
    }
}
