//! `pleach check --all-ranks`: every rank with its own compilation, groups, shards and sequences, joined and run to the
//! end.

use config::figures::{counted, grouped};
use program::WorldStep;
use run::failure::Failure;
use serde::Serialize;
use train::{Assignments, Setup, SetupError, StepOrder, verify_all_ranks};

/// Totals of the programs of all ranks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AllRanks {
    instructions: u64,
    transfers: u64,
    collectives: u64,
    programs: u64,
}

impl AllRanks {
    /// Compiles every rank of `setup` by itself, workload after workload, and checks that all fit together.
    ///
    /// # Errors
    /// A rule that a rank breaks, or ranks that do not fit together or do not get to the end together.
    pub fn verify(setup: &Setup) -> Result<AllRanks, Failure> {
        let mut all = AllRanks { instructions: 0, transfers: 0, collectives: 0, programs: 0 };
        let order = StepOrder::new(&setup.model, &setup.parallelism, &setup.train).map_err(refused)?;
        for workload in setup.workload_indices() {
            let assignments = Assignments::new(setup, workload, &order).map_err(refused)?;
            let step = verify_all_ranks(setup, workload, |rank| assignments.of(rank)).map_err(refused)?;
            let WorldStep { instructions, transfers, collectives, programs } = step;
            all.instructions += instructions;
            all.transfers += transfers;
            all.collectives += collectives;
            all.programs += programs;
        }
        Ok(all)
    }

    /// The same in two lines.
    pub fn line(&self, setup: &Setup) -> String {
        format!(
            "every rank  {} with programs of their own: {} instructions, {} transfers, {} collectives; all end\n\
             \x20           {} different programs; shards tile every parameter once, sequences every batch once\n",
            counted(setup.mesh.world_size() as u64, "rank"),
            grouped(self.instructions),
            grouped(self.transfers),
            grouped(self.collectives),
            grouped(self.programs),
        )
    }
}

fn refused(error: SetupError) -> Failure {
    match error {
        SetupError::Refused(violations) => {
            let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
            Failure::Work(format!("ranks do not agree:\n  {}", lines.join("\n  ")))
        }
        error @ (SetupError::Mesh(_)
        | SetupError::ShardGroup { .. }
        | SetupError::ExpertRanks { .. }
        | SetupError::SumTree { .. }
        | SetupError::Stages(_)
        | SetupError::Schedule(_)
        | SetupError::Compile(_)
        | SetupError::Batch { .. }
        | SetupError::Set(_)
        | SetupError::Record(_)) => Failure::Work(error.to_string()),
    }
}
