//! All ranks of a run, each with what it compiles and derives from its own coordinate: nobody stands in for a peer.
//!
//! A rank's program, sizes and groups join a [`World`], which runs them together. The rest is data that follows from
//! coordinates alone and differs between the ranks of one stage: which sequences a rank reads, which shard it keeps,
//! which boxes of the parameters it fills and stores. Over all ranks these must fit together.

mod batch;
mod shards;

use config::{Microbatch, Unit};
use mesh::Rank;
use program::{PeerGroup, PeerGroups, Rule, Violation, World, WorldRank, WorldStep, saved_units};
use rayon::prelude::*;

use crate::setup::step_order::{RankCompiler, StepOrder};
use crate::setup::{Setup, SetupError, WorkloadIndex};
use crate::worker::batch::SequenceOrder;
use crate::worker::position::RankPosition;

/// Everything that one rank derives by itself.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Its program, the sizes of its values, its groups.
    pub part: WorldRank,
    /// Its shards.
    pub position: RankPosition,
    /// The sequences that it reads.
    pub sequences: SequenceOrder,
}

/// Makes assignments of one workload, each from a rank's number alone.
pub struct Assignments<'a> {
    setup: &'a Setup,
    groups: PeerGroups,
    workload: WorkloadIndex,
    compiler: RankCompiler<'a, 'a>,
}

impl<'a> Assignments<'a> {
    /// Of `workload` of `setup`, in the order of steps that the setup was made from.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(
        setup: &'a Setup,
        workload: WorkloadIndex,
        order: &'a StepOrder<'a>,
    ) -> Result<Assignments<'a>, SetupError> {
        let compiler = order.compiler(setup.state, setup.workload_of(workload))?;
        Ok(Assignments { setup, groups: setup.groups(), workload, compiler })
    }

    /// Of `rank`: a program of its own compilation, and what its coordinate says.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn of(&self, rank: Rank) -> Result<Assignment, SetupError> {
        let Assignments { setup, workload, ref compiler, .. } = *self;
        let position = RankPosition::new(&setup.parallelism, setup.mesh.coord(rank));
        let (program, sizes) = compiler.compile(position.stage)?;
        let workload = setup.workload_of(workload);
        let sequences = SequenceOrder {
            replica: position.replica,
            num_microbatches: workload.num_microbatches,
            microbatch_size: workload.shape.sequences,
        };
        Ok(Assignment { part: WorldRank { program, sizes, peers: self.groups.of(rank) }, position, sequences })
    }
}

/// The data of a rank that is kept after its program was compared.
struct Seen {
    position: RankPosition,
    sequences: SequenceOrder,
    /// Units whose parameters it holds.
    held: Vec<Unit>,
    /// Units whose parameters it stores.
    stored: Vec<Unit>,
}

/// Ranks that are compiled at once, before their programs are compared and dropped.
const AT_ONCE: usize = 64;

/// Compiles `workload` for every rank of `setup` by `assignment`, and checks that all fit together.
///
/// # Errors
/// A rank that cannot be compiled; a rule that a rank breaks; ranks that do not get to the end together, or whose
/// sequences or shards overlap or leave something out.
pub fn verify_all_ranks(
    setup: &Setup,
    workload: WorkloadIndex,
    assignment: impl Fn(Rank) -> Result<Assignment, SetupError> + Sync,
) -> Result<WorldStep, SetupError> {
    let (mut world, mut seen) = (World::default(), vec![]);
    let ranks: Vec<Rank> = setup.mesh.ranks().collect();
    for some in ranks.chunks(AT_ONCE) {
        let compiled: Vec<Result<Assignment, SetupError>> = some.par_iter().map(|rank| assignment(*rank)).collect();
        for one in compiled {
            let Assignment { part, position, sequences } = one?;
            let view = &part.program.view;
            let (held, stored) = (view.parameter_units().collect(), saved_units(view).collect());
            seen.push(Seen { position, sequences, held, stored });
            world.add(part);
        }
    }
    let step = world.verify().map_err(SetupError::Refused)?;
    let mut violations = batch::violations(&world, &seen, setup.workload_of(workload).sequences(&setup.parallelism));
    violations.extend(shards::violations(setup, &world, &seen));
    if violations.is_empty() { Ok(step) } else { Err(SetupError::Refused(violations)) }
}
