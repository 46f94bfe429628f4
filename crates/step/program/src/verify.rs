//! The gate between programs and their execution.

use config::Overlap;

use crate::memory::{plan_lives, plan_memory};
use crate::rank_plan::MemoryPlan;
use crate::{Program, Sizes, StepGraph, Violation, Waits, rules, waits};

/// Requirements of a run on a correct graph.
#[derive(Clone, Copy, Debug)]
pub struct Demands {
    /// Bytes that each rank has for its arena; `None` where that is not known.
    pub capacity_bytes: Option<usize>,
    /// Whether sums must have the same bits whatever the schedule.
    pub order: ContributionOrder,
    /// Whether the engine's streams run side by side.
    pub overlap: Overlap,
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
    waits: Vec<Waits>,
    overlap: Overlap,
    overlap_bytes: Vec<usize>,
}

/// Checks every rule and plans the memory.
///
/// # Errors
/// All violations, not the first.
pub fn verify(graph: StepGraph, sizes: &Sizes, demands: Demands) -> Result<Verified, Vec<Violation>> {
    let (plan, mut violations) = plan_lives(&graph, sizes, demands.overlap);
    violations.extend(rules::of_instructions(graph.programs()));
    match demands.order {
        ContributionOrder::Ascending => violations.extend(graph.programs().iter().flat_map(rules::order)),
        ContributionOrder::Any => {}
    }
    violations.extend(rules::memory(&plan, demands.capacity_bytes));
    let ranks = graph.programs().iter().zip(&plan.ranks);
    let waits: Vec<Waits> = ranks.map(|(program, plan)| waits::of_plan(program, plan, demands.overlap)).collect();
    match demands.overlap {
        // Everything is in one line.
        Overlap::Off => {}
        Overlap::On => violations.extend(rules::waits(&graph, &plan, &waits)),
    }
    match violations.is_empty() {
        true => {
            let overlap_bytes = growth(&graph, sizes, &plan, demands.overlap);
            Ok(Verified { graph, plan, waits, overlap: demands.overlap, overlap_bytes })
        }
        false => Err(violations),
    }
}

/// Bytes by which overlap makes the arena of each pipeline rank larger.
fn growth(graph: &StepGraph, sizes: &Sizes, plan: &MemoryPlan, overlap: Overlap) -> Vec<usize> {
    match overlap {
        Overlap::Off => vec![0; plan.ranks.len()],
        Overlap::On => {
            let without = plan_memory(graph, sizes, Overlap::Off).ranks;
            let pairs = plan.ranks.iter().zip(&without);
            pairs.map(|(with, without)| with.arena_bytes().saturating_sub(without.arena_bytes())).collect()
        }
    }
}

impl Verified {
    /// The same with at least as much memory of the host, by pipeline index.
    pub(crate) fn with_host_bytes(mut self, host_bytes: &[usize]) -> Verified {
        let ranks = std::mem::take(&mut self.plan.ranks).into_iter().zip(host_bytes);
        self.plan.ranks = ranks.map(|(plan, bytes)| plan.with_host_bytes(*bytes)).collect();
        self
    }

    /// The linked programs.
    pub fn graph(&self) -> &StepGraph {
        &self.graph
    }

    /// The programs by pipeline index.
    pub fn programs(&self) -> &[Program] {
        self.graph.programs()
    }

    /// Whether streams run side by side.
    pub fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// Bytes by which the arena of each pipeline rank is larger than without overlap.
    pub fn overlap_bytes(&self) -> &[usize] {
        &self.overlap_bytes
    }

    /// Conflicts that other waits of the pipeline ranks would leave in no order: none for [`Verified::waits`].
    pub fn conflicts(&self, waits: &[Waits]) -> Vec<Violation> {
        rules::waits(&self.graph, &self.plan, waits)
    }

    /// The waits of each pipeline rank.
    pub fn waits(&self) -> &[Waits] {
        &self.waits
    }

    /// Where everything is.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }
}
