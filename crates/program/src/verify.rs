//! The gate between programs and their execution.

use crate::memory::{MemoryPlan, plan_lives};
use crate::{Program, Sizes, StepGraph, Violation, rules};

/// What a run asks of a graph besides being correct.
#[derive(Clone, Copy, Debug)]
pub struct Demands {
    /// Bytes that each rank has for its arena; `None` where that is not known.
    pub capacity_bytes: Option<usize>,
    /// Whether sums must have the same bits whatever the schedule.
    pub order: ContributionOrder,
}

/// See [`Demands::order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContributionOrder {
    /// Contributions to each gradient come in ascending order of microbatches.
    Ascending,
    /// In any order; the run's sums may differ in their last bits from those of other schedules.
    Any,
}

/// A linked step that obeys every rule, with its memory plan. Only [`verify`] makes it.
#[derive(Clone, Debug)]
pub struct Verified {
    graph: StepGraph,
    plan: MemoryPlan,
}

/// Checks every rule and plans the memory.
///
/// # Errors
/// All violations, not the first.
pub fn verify(graph: StepGraph, sizes: &Sizes, demands: Demands) -> Result<Verified, Vec<Violation>> {
    let (plan, mut violations) = plan_lives(&graph, sizes);
    violations.extend(rules::of_instructions(graph.programs()));
    match demands.order {
        ContributionOrder::Ascending => violations.extend(graph.programs().iter().flat_map(rules::order)),
        ContributionOrder::Any => {}
    }
    violations.extend(rules::memory(&plan, demands.capacity_bytes));
    match violations.is_empty() {
        true => Ok(Verified { graph, plan }),
        false => Err(violations),
    }
}

impl Verified {
    /// The linked programs.
    pub fn graph(&self) -> &StepGraph {
        &self.graph
    }

    /// The programs by pipeline index.
    pub fn programs(&self) -> &[Program] {
        self.graph.programs()
    }

    /// Where everything lies.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }
}
