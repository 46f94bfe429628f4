//! Programs of all ranks: compiled, linked and verified, first one for each stage, then every rank by itself.

use std::time::Instant;

use config::RunConfig;
use train::{Assignments, Setup, StepOrder, verify_all_ranks};

use super::{Figures, LargeRun, peak_bytes};

/// Compiles, links and verifies the programs of `run`.
///
/// # Errors
/// A run that is refused.
pub fn programs(run: LargeRun) -> Result<Figures, String> {
    let mut figures = Figures::default();
    let RunConfig { model, parallelism, train, .. } = run.config()?;
    let started = Instant::now();
    let setup = Setup::new(model, parallelism, train).map_err(|error| error.to_string())?;
    figures.put("stages_seconds", started.elapsed().as_secs_f64());
    let started = Instant::now();
    let order = StepOrder::new(&setup.model, &setup.parallelism, &setup.train).map_err(|error| error.to_string())?;
    let mut instructions = 0;
    for workload in setup.workload_indices() {
        let assignments = Assignments::new(&setup, workload, &order).map_err(|error| error.to_string())?;
        let step =
            verify_all_ranks(&setup, workload, |rank| assignments.of(rank)).map_err(|error| error.to_string())?;
        instructions += step.instructions;
    }
    figures.put("ranks_seconds", started.elapsed().as_secs_f64());
    figures.put("instructions", instructions as f64);
    figures.put("peak_bytes", peak_bytes());
    Ok(figures)
}
