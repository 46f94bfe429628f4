//! Trainers whose descriptions meet a table better than the one that was chosen for it.

use cluster::{Cluster, Software};
use train::SetupError;

use crate::measured_run::MeasuredRun;
use crate::validate::PreparedRun;

/// The largest number of rows that are asked, at equal distances: each is simulated for every trainer.
const ROWS: usize = 12;
/// Passes of longer steps take too long to simulate for all trainers.
const MOST_PASSES: usize = 100_000;
/// A trainer is named whose mean error is less by this share than that of the chosen one.
const WORTH_NAMING: f64 = 0.02;
/// The largest number of names.
const MOST_NAMED: usize = 3;

/// Trainers that meet rows better than the chosen one.
#[derive(Clone, Debug, PartialEq)]
pub struct BetterTrainers {
    /// Rows that were asked.
    pub rows: usize,
    /// The mean error of the chosen trainer.
    pub chosen_mean: f64,
    /// Names and mean errors of the others, the best first.
    pub better: Vec<(&'static str, f64)>,
}

/// The trainers of the program whose mean error of some of `runs` on `cluster` is at least two points less than that
/// of the chosen one, or of pleach itself where no trainer is chosen.
///
/// # Errors
/// Degrees that make no mesh.
pub fn better_trainers(
    cluster: &Cluster,
    runs: &[&MeasuredRun],
    chosen: Option<&Software>,
) -> Result<Option<BetterTrainers>, SetupError> {
    let measured: Vec<&MeasuredRun> =
        runs.iter().copied().filter(|run| run.step_s.is_some() && passes(run) <= MOST_PASSES).collect();
    let step = measured.len().div_ceil(ROWS).max(1);
    let asked: Vec<&MeasuredRun> = measured.into_iter().step_by(step).collect();
    if asked.is_empty() {
        return Ok(None);
    }
    let mean = |software: Option<&Software>| -> Result<f64, SetupError> {
        let mut sum = 0.0;
        for run in &asked {
            let predicted = PreparedRun::new((*run).clone(), software)?.step_s(cluster)?;
            sum += run.step_s.map_or(0.0, |measured| (predicted / measured - 1.0).abs());
        }
        Ok(sum / asked.len() as f64)
    };
    let chosen_mean = mean(chosen)?;
    let mut better = vec![];
    for name in Software::names() {
        // Those of the program are read by a test.
        let Some(software) = Software::named(name).and_then(|text| Software::from_toml(text).ok()) else { continue };
        let of_name = mean(Some(&software))?;
        if of_name + WORTH_NAMING <= chosen_mean {
            better.push((name, of_name));
        }
    }
    better.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    better.truncate(MOST_NAMED);
    Ok((!better.is_empty()).then_some(BetterTrainers { rows: asked.len(), chosen_mean, better }))
}

/// Passes of microbatches through the layers of a rank's pipeline.
fn passes(run: &MeasuredRun) -> usize {
    run.parallelism.num_microbatches(run.train.global_batch) * run.model.num_layers
}
