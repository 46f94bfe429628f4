//! The verdict on a run: refused with all that is wrong with it, or planned, with every byte of its arenas. Nothing is
//! started for it.

use std::collections::BTreeMap;

use config::{Location, Problem, RunConfig, TrainSpec};
use train::Setup;

use crate::gpus::devices;
use crate::memory::machine::MemoryLimit;
use crate::memory::need::{self, MemoryBudget};

/// A run that can start.
#[derive(Debug)]
pub struct Verdict {
    /// The resolved run file.
    pub config: RunConfig,
    /// Its programs and plans.
    pub setup: Setup,
    /// The memory that its arenas must fit.
    pub budget: MemoryBudget,
}

/// Which steps of a run are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// The steps of every batch that a growing one goes through.
    EveryBatch,
    /// The steps of the full batch. It takes the most memory of all.
    FullBatch,
}

/// Plans `config`, which obeys every rule of `config::check`, and holds its memory against what there is.
///
/// # Errors
/// Numerics that the device does not have, or memory that does not fit, at the place where they were written.
pub fn judge(
    config: RunConfig,
    locations: &BTreeMap<String, Location>,
    limit: Option<MemoryLimit>,
    planned: Planned,
) -> Result<Verdict, Vec<Problem>> {
    if let Some(problem) = devices::problem(&config) {
        let location = locations.get(&problem.key).cloned();
        return Err(vec![problem.at(location)]);
    }
    let (model, parallelism) = (config.model.clone(), config.parallelism_on_device());
    let train = match planned {
        Planned::EveryBatch => config.train.clone(),
        Planned::FullBatch => TrainSpec { batch_ramp: None, ..config.train.clone() },
    };
    let setup = Setup::of_run(model, parallelism, train, &config.run.samples)
        .map_err(|error| vec![Problem::of_key("[parallelism]", format!("cannot be planned: {error}"), "")])?;
    let budget = MemoryBudget::new(&config, limit);
    match need::problem(&config, &setup, budget) {
        Some(problem) => {
            let location = locations.get(&problem.key).cloned();
            Err(vec![problem.at(location)])
        }
        None => Ok(Verdict { config, setup, budget }),
    }
}
