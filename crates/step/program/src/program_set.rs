//! All programs of a run: they share one arena per rank, and the places of state.

use device::ArenaSize;

use crate::{Purpose, Verified};

/// The programs that run in one arena.
#[derive(Clone, Debug)]
pub struct ProgramSet {
    programs: Vec<Verified>,
}

/// Why programs cannot share an arena.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramSetError {
    /// There are none.
    #[error("a run needs at least one program")]
    Empty,
    /// State is in different places.
    #[error(
        "on pipeline rank {rank} the programs to {first:?} and to {second:?} keep different state; \
         give their sizes the same model, parallelism and `State`"
    )]
    DifferentState {
        /// Pipeline index.
        rank: usize,
        /// Purpose of the first program.
        first: Purpose,
        /// Purpose of the other one.
        second: Purpose,
    },
}

impl ProgramSet {
    /// The set of these programs.
    ///
    /// # Errors
    /// No programs, one of no rank, or places of state that differ.
    pub fn new(programs: Vec<Verified>) -> Result<ProgramSet, ProgramSetError> {
        let purpose = |verified: &Verified| verified.programs().first().map(|program| program.view.purpose);
        let purposes: Option<Vec<Purpose>> = programs.iter().map(purpose).collect();
        let Some(purposes) = purposes else { return Err(ProgramSetError::Empty) };
        let programs = with_one_host_memory(programs);
        let Some(first) = programs.first() else { return Err(ProgramSetError::Empty) };
        for (program, second) in programs.iter().zip(&purposes) {
            let ranks = first.plan().ranks.len().max(program.plan().ranks.len());
            let state = |verified: &Verified, rank| {
                verified.plan().ranks.get(rank).map(|plan: &crate::RankPlan| plan.state().to_vec())
            };
            if let Some(rank) = (0..ranks).find(|rank| state(first, *rank) != state(program, *rank)) {
                return Err(ProgramSetError::DifferentState { rank, first: purposes[0], second: *second });
            }
        }
        Ok(ProgramSet { programs })
    }

    /// The verified programs, by pipeline rank.
    pub fn programs(&self) -> &[Verified] {
        &self.programs
    }

    /// The arena of a pipeline rank with its memory of the host, in which all programs keep the same state.
    pub fn arena_size(&self, rank: usize) -> ArenaSize {
        let plans = self.programs.iter().filter_map(|verified| verified.plan().ranks.get(rank));
        let host_bytes = plans.map(crate::RankPlan::host_bytes).max().unwrap_or(0);
        ArenaSize { host_bytes, device_bytes: self.arena_bytes(rank) }
    }

    /// Bytes of the arena of a pipeline rank, without memory of the host: the largest that any of the programs needs.
    pub fn arena_bytes(&self, rank: usize) -> usize {
        let plans = self.programs.iter().filter_map(|verified| verified.plan().ranks.get(rank));
        plans.map(crate::RankPlan::arena_bytes).max().unwrap_or(0)
    }
}

/// The programs with as much memory of the host as that of them has which needs most: the arena then starts at one
/// address for all. Only those that train need memory for activations there.
fn with_one_host_memory(programs: Vec<Verified>) -> Vec<Verified> {
    let ranks = programs.iter().map(|program| program.plan().ranks.len()).max().unwrap_or(0);
    let of_rank = |rank: usize| {
        let plans = programs.iter().filter_map(|program| program.plan().ranks.get(rank));
        plans.map(crate::RankPlan::host_bytes).max().unwrap_or(0)
    };
    let host_bytes: Vec<usize> = (0..ranks).map(of_rank).collect();
    programs.into_iter().map(|program| program.with_host_bytes(&host_bytes)).collect()
}
