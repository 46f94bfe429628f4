//! All programs of a run: they share one arena per rank, and the places of state.

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
    /// Two programs of one purpose and one number of microbatches.
    #[error("there are two programs to {purpose:?} {num_microbatches} microbatches; one is enough")]
    Twice {
        /// The purpose.
        purpose: Purpose,
        /// The number of microbatches.
        num_microbatches: usize,
    },
    /// State lies in different places.
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
    /// No programs, two of a kind, or places of state that differ.
    pub fn new(programs: Vec<Verified>) -> Result<ProgramSet, ProgramSetError> {
        let kind = |program: &Verified| program.programs().first().map(|p| (p.place.purpose, p.place.num_microbatches));
        let mut kinds = vec![];
        for program in &programs {
            let Some((purpose, num_microbatches)) = kind(program) else { return Err(ProgramSetError::Empty) };
            if kinds.contains(&(purpose, num_microbatches)) {
                return Err(ProgramSetError::Twice { purpose, num_microbatches });
            }
            kinds.push((purpose, num_microbatches));
        }
        let Some(first) = programs.first() else { return Err(ProgramSetError::Empty) };
        for (program, (second, _)) in programs.iter().zip(&kinds) {
            let ranks = first.plan().ranks.len().max(program.plan().ranks.len());
            let state = |verified: &Verified, rank| {
                verified.plan().ranks.get(rank).map(|plan: &crate::RankPlan| plan.state().to_vec())
            };
            if let Some(rank) = (0..ranks).find(|rank| state(first, *rank) != state(program, *rank)) {
                return Err(ProgramSetError::DifferentState { rank, first: kinds[0].0, second: *second });
            }
        }
        Ok(ProgramSet { programs })
    }

    /// The programs.
    pub fn programs(&self) -> &[Verified] {
        &self.programs
    }

    /// The program of a purpose for a number of microbatches.
    pub fn get(&self, purpose: Purpose, num_microbatches: usize) -> Option<&Verified> {
        self.programs.iter().find(|verified| {
            let place = verified.programs().first().map(|program| &program.place);
            place.is_some_and(|place| (place.purpose, place.num_microbatches) == (purpose, num_microbatches))
        })
    }

    /// Bytes of the arena of a pipeline rank: the largest that any of the programs needs.
    pub fn arena_bytes(&self, rank: usize) -> usize {
        let plans = self.programs.iter().filter_map(|verified| verified.plan().ranks.get(rank));
        plans.map(crate::RankPlan::arena_bytes).max().unwrap_or(0)
    }
}
