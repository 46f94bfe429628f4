//! The values that tensor-parallel ranks shard, and the layers that can be recomputed then.

use std::fmt;

use config::{FullRecompute, Recompute, SavedInputs, SequenceParallel};

/// The values that tensor-parallel ranks shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// Nothing: each is alone.
    Nothing,
    Matrices,
    /// Matrices, and between them tokens.
    Tokens,
}

impl Sharing {
    /// All.
    pub const ALL: [Sharing; 3] = [Sharing::Nothing, Sharing::Matrices, Sharing::Tokens];

    /// Ranks that share a matrix.
    pub fn tp(self) -> usize {
        match self {
            Sharing::Nothing => 1,
            Sharing::Matrices | Sharing::Tokens => 2,
        }
    }

    /// Whether they share tokens.
    pub fn sequence_parallel(self) -> SequenceParallel {
        match self {
            Sharing::Nothing | Sharing::Matrices => SequenceParallel::Off,
            Sharing::Tokens => SequenceParallel::On,
        }
    }

    /// Whether layers can be recomputed so: a rank that is alone cannot shard inputs, and ranks that shard tokens have
    /// no whole inputs.
    pub fn allows(self, recompute: Recompute) -> bool {
        match (recompute, self) {
            (Recompute::None | Recompute::Selective, _) => true,
            (Recompute::Full(full), Sharing::Nothing) => full.inputs == SavedInputs::Whole,
            (Recompute::Full(full), Sharing::Matrices) => full.inputs == SavedInputs::Whole || full.every == 1,
            (Recompute::Full(full), Sharing::Tokens) => full.inputs == SavedInputs::Sharded,
        }
    }

    /// All of [`RECOMPUTES`] that are possible.
    pub fn recomputes(self) -> Vec<Recompute> {
        RECOMPUTES.into_iter().filter(|recompute| self.allows(*recompute)).collect()
    }
}

/// Forms of recomputation: every layer or every second one, from inputs that are whole or sharded.
pub const RECOMPUTES: [Recompute; 6] = [
    Recompute::None,
    Recompute::Selective,
    full(1, SavedInputs::Whole),
    full(2, SavedInputs::Whole),
    full(1, SavedInputs::Sharded),
    full(2, SavedInputs::Sharded),
];

/// Layers 0, `every`, 2 x `every` and so on are recomputed, from these inputs.
pub const fn full(every: usize, inputs: SavedInputs) -> Recompute {
    Recompute::Full(FullRecompute { every, inputs })
}

/// The recomputed layers and their saved inputs.
pub fn recompute_name(recompute: Recompute) -> String {
    match recompute {
        Recompute::None => "kept".to_string(),
        Recompute::Selective => "core recomputed".to_string(),
        Recompute::FULL => "recomputed".to_string(),
        Recompute::Full(FullRecompute { every, inputs: SavedInputs::Whole }) => format!("every {every} recomputed"),
        Recompute::Full(FullRecompute { every, inputs: SavedInputs::Sharded }) => {
            format!("every {every} recomputed from shards")
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sharing::Nothing => "tp 1",
            Sharing::Matrices => "tp 2",
            Sharing::Tokens => "tp 2 + sp",
        })
    }
}
