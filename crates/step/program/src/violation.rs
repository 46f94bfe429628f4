//! Errors of programs, by rule.

use std::fmt;

/// A rule that linked programs obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Each unit and microbatch: one forward, one backward of the input, one of the weights.
    Work,
    /// Nothing is read before it is written or after it is freed; nothing is left.
    Values,
    /// Units compute on gathered parameters only: none is read before it is gathered or after it was freed, none is
    /// gathered twice or left over.
    Parameters,
    /// Sends and receives match in value and order.
    Pairs,
    /// Members of a group issue the same sequence of collectives.
    Collectives,
    /// The programs end on an engine with one queue per rank, posted sends, blocking receives and collectives.
    Progress,
    /// Each gradient is summed once over the axes that it needs, after its last write, before the optimizer reads it.
    Gradients,
    /// Each microbatch contributes exactly once to each gradient.
    Provenance,
    /// Every unit has exactly one owner, and all ranks agree who.
    Layers,
    /// Contributions come in ascending order of microbatches.
    Order,
    /// The plan fits and gives values that are alive together disjoint places.
    Memory,
    /// Of any two instructions that touch the same value, or the same bytes for two values, and not only read them, one
    /// has ended before the other begins.
    Waits,
    /// Over all ranks, each element of each parameter is stored once, and each rank holds the shard that its groups
    /// hand it.
    Shards,
    /// Over all ranks, each sequence of a step is read by exactly one model replica.
    Batch,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Work => "work",
            Rule::Values => "values",
            Rule::Parameters => "parameters",
            Rule::Pairs => "pairs",
            Rule::Collectives => "collectives",
            Rule::Progress => "progress",
            Rule::Gradients => "gradients",
            Rule::Provenance => "provenance",
            Rule::Layers => "layers",
            Rule::Order => "order",
            Rule::Memory => "memory",
            Rule::Waits => "waits",
            Rule::Shards => "shards",
            Rule::Batch => "batch",
        })
    }
}

/// One breach of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    /// Where and what, with numbers.
    pub message: String,
}

impl Violation {
    /// Of `rule`.
    pub fn new(rule: Rule, message: String) -> Violation {
        Violation { rule, message }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.message)
    }
}

impl std::error::Error for Violation {}
