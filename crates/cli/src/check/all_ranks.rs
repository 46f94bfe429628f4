//! `pleach check --all-ranks`: every rank with a program of its own, linked and run to its end.

use mesh::Axis;
use program::{Violation, World, WorldStep};
use serde::Serialize;
use train::Setup;

use crate::failure::Failure;
use crate::screen::figures::{counted, grouped};

/// What all programs of a run come to, on all ranks together.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AllRanks {
    instructions: u64,
    transfers: u64,
    collectives: u64,
}

impl AllRanks {
    /// Gives each rank of `setup` its program, workload after workload, and runs them.
    ///
    /// # Errors
    /// A rule that a rank breaks, or ranks that do not get to the end together.
    pub fn verify(setup: &Setup) -> Result<AllRanks, Failure> {
        let mut all = AllRanks { instructions: 0, transfers: 0, collectives: 0 };
        for workload in setup.programs.programs() {
            let world =
                World::new(&setup.mesh, |rank| workload.programs()[setup.mesh.coord(rank).along(Axis::Pp)].clone());
            let WorldStep { instructions, transfers, collectives } = world.verify().map_err(refused)?;
            all.instructions += instructions;
            all.transfers += transfers;
            all.collectives += collectives;
        }
        Ok(all)
    }

    /// The same in a line.
    pub fn line(&self, setup: &Setup) -> String {
        format!(
            "every rank  {} with programs of their own: {} instructions, {} transfers, {} collectives; all end\n",
            counted(setup.mesh.world_size() as u64, "rank"),
            grouped(self.instructions),
            grouped(self.transfers),
            grouped(self.collectives),
        )
    }
}

fn refused(violations: Vec<Violation>) -> Failure {
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    Failure::Work(format!("ranks do not agree:\n  {}", lines.join("\n  ")))
}
