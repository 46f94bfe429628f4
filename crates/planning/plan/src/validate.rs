//! How far predictions are from runs that were measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cluster::{Cluster, Software};
use rayon::prelude::*;
use sim::RankMemory;
use train::SetupError;

use crate::measured_run::MeasuredRun;
use crate::prediction::PreparedStep;

/// A measured run, ready to be timed on any profile.
#[derive(Clone, Debug)]
pub struct PreparedRun {
    /// The measured values.
    pub run: MeasuredRun,
    /// One for all runs that are alike.
    pub step: Arc<PreparedStep>,
}

/// Time and memory of a step on a cluster.
#[derive(Clone, Copy, Debug)]
struct Priced {
    step_s: f64,
    at_peak_s: f64,
    allocated_bytes: f64,
    resident_bytes: f64,
    occupied_bytes: f64,
}

impl Priced {
    fn new(step: &PreparedStep, cluster: &Cluster) -> Result<Priced, SetupError> {
        let ranks = step.memory();
        let most = |of: fn(&RankMemory) -> usize| ranks.iter().map(of).max().unwrap_or(0) as f64;
        Ok(Priced {
            step_s: step.on(cluster)?.step_ns() as f64 * 1e-9,
            at_peak_s: step.model_flops_per_rank() / (step.peak_flops_per_ns(cluster) * 1e9),
            allocated_bytes: most(RankMemory::allocated_bytes),
            resident_bytes: most(|rank| rank.resident_bytes),
            occupied_bytes: most(RankMemory::occupied_bytes),
        })
    }
}

impl PreparedRun {
    /// Links and records the run as `software` runs it.
    ///
    /// # Errors
    /// A run that pleach cannot plan.
    pub fn new(run: MeasuredRun, software: Option<&Software>) -> Result<PreparedRun, SetupError> {
        let software = run.software(software);
        let parallelism = run.trained_parallelism(software.as_ref());
        let step = PreparedStep::new(&run.model, &parallelism, &run.train, software.as_ref())?;
        Ok(PreparedRun { run, step: Arc::new(step) })
    }

    /// All of these as [`PreparedRun::new`]: each step once, whatever number of runs were measured of it. All steps are
    /// in memory, some megabytes each; [`scores`] does not keep them.
    pub fn all(runs: &[MeasuredRun], software: Option<&Software>) -> Vec<Result<PreparedRun, Arc<SetupError>>> {
        let prepare = |(key, run): (String, &MeasuredRun)| {
            (key, PreparedRun::new(run.clone(), software).map(|prepared| prepared.step).map_err(Arc::new))
        };
        let steps: BTreeMap<String, Result<_, _>> = distinct(runs).into_par_iter().map(prepare).collect();
        let of = |run: &MeasuredRun| Ok(PreparedRun { run: run.clone(), step: steps[&run.step_key()].clone()? });
        runs.iter().map(of).collect()
    }

    /// The time and memory of all of these on a cluster, in order; each step is priced once.
    ///
    /// # Errors
    /// Degrees that make no mesh.
    pub fn all_on(runs: &[PreparedRun], cluster: &Cluster) -> Result<Vec<Scored>, SetupError> {
        let steps: BTreeMap<usize, &PreparedStep> = runs.iter().map(|run| (run.step_id(), run.step.as_ref())).collect();
        let priced = steps.into_par_iter().map(|(id, step)| Ok((id, Priced::new(step, cluster)?)));
        let priced: BTreeMap<usize, Priced> = priced.collect::<Result<_, SetupError>>()?;
        Ok(runs.iter().map(|run| run.run.scored(priced[&run.step_id()], cluster)).collect())
    }

    /// The seconds of all of these on a cluster, in order; each step is priced once.
    pub(crate) fn times_on(runs: &[PreparedRun], cluster: &Cluster) -> Result<Vec<f64>, SetupError> {
        let steps: BTreeMap<usize, &PreparedRun> = runs.iter().map(|run| (run.step_id(), run)).collect();
        let times = steps.into_par_iter().map(|(id, run)| Ok((id, run.step_s(cluster)?)));
        let times: BTreeMap<usize, f64> = times.collect::<Result<_, SetupError>>()?;
        Ok(runs.iter().map(|run| times[&run.step_id()]).collect())
    }

    /// Equal for runs that share a step.
    fn step_id(&self) -> usize {
        Arc::as_ptr(&self.step) as usize
    }

    /// Seconds of its step on a cluster.
    ///
    /// # Errors
    /// Degrees that make no mesh.
    pub fn step_s(&self, cluster: &Cluster) -> Result<f64, SetupError> {
        Ok(self.step.on(cluster)?.step_ns() as f64 * 1e-9)
    }

    /// Its time and memory on a cluster.
    ///
    /// # Errors
    /// Degrees that make no mesh.
    pub fn on(&self, cluster: &Cluster) -> Result<Scored, SetupError> {
        Ok(self.run.scored(Priced::new(&self.step, cluster)?, cluster))
    }
}

/// How many of the distinct steps of a table are priced; another thread may show it.
#[derive(Debug, Default)]
pub struct Pricing {
    steps: AtomicUsize,
    priced: AtomicUsize,
}

impl Pricing {
    /// Distinct steps, 0 before they are counted.
    pub fn steps(&self) -> usize {
        self.steps.load(Ordering::Relaxed)
    }

    /// The number of runs that are priced.
    pub fn priced(&self) -> usize {
        self.priced.load(Ordering::Relaxed)
    }
}

/// The time and memory of each run on a cluster, in order, or why pleach cannot plan it. Each distinct step is prepared
/// and priced once, and freed before the next: at most one per thread is in memory.
///
/// # Errors
/// Degrees that make no mesh on the cluster.
pub fn scores(
    runs: &[MeasuredRun],
    software: Option<&Software>,
    cluster: &Cluster,
    pricing: &Pricing,
) -> Result<Vec<Result<Scored, Arc<SetupError>>>, SetupError> {
    let distinct = distinct(runs);
    pricing.steps.store(distinct.len(), Ordering::Relaxed);
    let price = |(key, run): (String, &MeasuredRun)| {
        let priced = match PreparedRun::new(run.clone(), software) {
            Ok(prepared) => Ok(Priced::new(&prepared.step, cluster)?),
            Err(error) => Err(Arc::new(error)),
        };
        pricing.priced.fetch_add(1, Ordering::Relaxed);
        Ok((key, priced))
    };
    let priced: BTreeMap<String, Result<Priced, Arc<SetupError>>> =
        distinct.into_par_iter().with_max_len(1).map(price).collect::<Result<_, SetupError>>()?;
    Ok(runs.iter().map(|run| Ok(run.scored(priced[&run.step_key()].clone()?, cluster))).collect())
}

/// The first run of each step, with its key.
fn distinct(runs: &[MeasuredRun]) -> Vec<(String, &MeasuredRun)> {
    let mut first: BTreeMap<String, &MeasuredRun> = BTreeMap::new();
    for run in runs {
        first.entry(run.step_key()).or_insert(run);
    }
    first.into_iter().collect()
}

impl MeasuredRun {
    fn scored(&self, priced: Priced, cluster: &Cluster) -> Scored {
        let there = cluster.accelerator.memory_bytes();
        Scored {
            index: self.index,
            model: self.name_of_model(),
            layout: self.layout(),
            time_s: Pair { measured: self.step_s, predicted: priced.step_s },
            at_peak_s: priced.at_peak_s,
            memory: Pair { measured: self.memory_bytes, predicted: priced.allocated_bytes },
            resident: Pair { measured: self.resident_bytes, predicted: priced.resident_bytes },
            fits: Pair { measured: self.fits, predicted: priced.occupied_bytes <= there },
        }
    }

    /// Equal for runs that are predicted alike.
    fn step_key(&self) -> String {
        format!("{:?}{:?}{:?}{:?}", self.model, self.parallelism, self.train, self.attention)
    }

    /// Name and size: rows of a table often share one name.
    pub fn name_of_model(&self) -> String {
        format!("{} {}x{}", self.name, self.model.num_layers, self.model.hidden)
    }

    /// `dp 8 tp 4 pp 12 mbs 2`.
    pub fn layout(&self) -> String {
        let parallelism = &self.parallelism;
        let (degrees, mbs) = (parallelism.degrees.joined(" "), parallelism.microbatch_size);
        format!("{degrees} mbs {mbs} batch {}", self.train.global_batch)
    }
}

/// Measured and predicted values.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Index in the table.
    pub index: usize,
    /// Name and size.
    pub model: String,
    pub layout: String,
    /// Seconds of a step.
    pub time_s: Pair<f64>,
    /// Seconds that the model's operations would take at the peak: what a prediction with one constant starts from.
    pub at_peak_s: f64,
    /// Bytes allocated on the largest rank at its peak.
    pub memory: Pair<f64>,
    /// The same between two steps.
    pub resident: Pair<f64>,
    /// Whether its memory is enough.
    pub fits: Pair<bool>,
}

/// The measured values that a run has, with the predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair<T> {
    /// Where it was.
    pub measured: Option<T>,
    /// Always.
    pub predicted: T,
}

impl Pair<f64> {
    /// `predicted / measured - 1`.
    pub fn error(&self) -> Option<f64> {
        self.measured.map(|measured| self.predicted / measured - 1.0)
    }
}

/// How often it was predicted whether a run fits into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fits {
    /// Runs that ran, or ran out of memory.
    pub rows: usize,
    /// Of those, predicted rightly.
    pub right: usize,
    /// Ran out of memory, but would have fitted by the prediction.
    pub wrongly_fit: usize,
}

impl Fits {
    fn of(scored: &[Scored]) -> Fits {
        let mut fits = Fits::default();
        for row in scored {
            if let Some(ran) = row.fits.measured {
                fits.rows += 1;
                fits.right += usize::from(ran == row.fits.predicted);
                fits.wrongly_fit += usize::from(!ran && row.fits.predicted);
            }
        }
        fits
    }
}

/// Absolute relative errors, as shares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// How many.
    pub rows: usize,
    /// Their mean.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// The bound of nine of ten.
    pub p90: f64,
    pub largest: f64,
}

impl Errors {
    /// Of these errors, whatever their sign.
    pub fn of(errors: impl IntoIterator<Item = f64>) -> Errors {
        let mut sorted: Vec<f64> = errors.into_iter().map(f64::abs).collect();
        sorted.sort_by(f64::total_cmp);
        let rows = sorted.len();
        let at = |share: f64| sorted.get(((rows as f64 * share).ceil() as usize).saturating_sub(1)).copied();
        Errors {
            rows,
            // A sum of nothing is -0.
            mean: (sorted.iter().sum::<f64>() + 0.0) / rows.max(1) as f64,
            median: at(0.5).unwrap_or(0.0),
            p90: at(0.9).unwrap_or(0.0),
            largest: sorted.last().copied().unwrap_or(0.0),
        }
    }
}

/// How rows of one model compare with each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranking {
    /// How many rows.
    pub rows: usize,
    /// Spearman's correlation of measured and predicted times; none of fewer than three rows.
    pub spearman: Option<f64>,
    /// How much longer the row takes that is predicted best than the one that is, as a share of that.
    pub best_slower_by: f64,
}

/// How far predictions are.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Of the predictions.
    pub errors: Errors,
    /// Of one constant: the model's operations at the peak, times the median of what the rows take of that.
    pub baseline: Errors,
    /// Of the memory at the peak.
    pub memory: Errors,
    /// Of the memory between two steps.
    pub resident: Errors,
    /// Of whether runs fit.
    pub fits: Fits,
    /// All rows together.
    pub pooled: Ranking,
    pub models: BTreeMap<String, Ranking>,
}

impl Report {
    /// Of these rows, as far as they have been measured.
    pub fn new(scored: &[Scored]) -> Report {
        let measured: Vec<(&Scored, f64)> =
            scored.iter().filter_map(|row| row.time_s.measured.map(|seconds| (row, seconds))).collect();
        let mut factors: Vec<f64> = measured.iter().map(|(row, seconds)| seconds / row.at_peak_s).collect();
        factors.sort_by(f64::total_cmp);
        let factor = factors.get(factors.len() / 2).copied().unwrap_or(1.0);
        let mut by_model: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (row, seconds) in &measured {
            by_model.entry(row.model.clone()).or_default().push((*seconds, row.time_s.predicted));
        }
        let pooled: Vec<(f64, f64)> = measured.iter().map(|(row, seconds)| (*seconds, row.time_s.predicted)).collect();
        Report {
            errors: Errors::of(scored.iter().filter_map(|row| row.time_s.error())),
            baseline: Errors::of(measured.iter().map(|(row, seconds)| factor * row.at_peak_s / seconds - 1.0)),
            memory: Errors::of(scored.iter().filter_map(|row| row.memory.error())),
            resident: Errors::of(scored.iter().filter_map(|row| row.resident.error())),
            fits: Fits::of(scored),
            pooled: ranking(&pooled),
            models: by_model.into_iter().map(|(model, pairs)| (model, ranking(&pairs))).collect(),
        }
    }
}

/// Of pairs of measured and predicted.
fn ranking(pairs: &[(f64, f64)]) -> Ranking {
    let fastest = pairs.iter().map(|(measured, _)| *measured).fold(f64::INFINITY, f64::min);
    let chosen = pairs.iter().min_by(|one, other| one.1.total_cmp(&other.1)).map_or(fastest, |(measured, _)| *measured);
    let best_slower_by = if pairs.is_empty() { 0.0 } else { chosen / fastest - 1.0 };
    Ranking { rows: pairs.len(), spearman: spearman(pairs), best_slower_by }
}

/// Pearson's correlation of ranks; equal values share their mean rank.
fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let one = ranks(pairs.iter().map(|pair| pair.0).collect());
    let other = ranks(pairs.iter().map(|pair| pair.1).collect());
    let mean = (pairs.len() - 1) as f64 / 2.0;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let spread = (product(&one, &one) * product(&other, &other)).sqrt();
    (spread > 0.0).then(|| product(&one, &other) / spread)
}

fn ranks(values: Vec<f64>) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|other| **other < value).count();
    let equal = |value: f64| values.iter().filter(|other| **other == value).count();
    values.iter().map(|value| below(*value) as f64 + (equal(*value) - 1) as f64 / 2.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_order_correlates_fully_and_the_best_is_found() {
        let pairs = [(1.0, 10.0), (2.0, 11.0), (3.0, 50.0), (4.0, 60.0)];
        assert_eq!(ranking(&pairs), Ranking { rows: 4, spearman: Some(1.0), best_slower_by: 0.0 });
        let reversed: Vec<(f64, f64)> = pairs.iter().map(|(measured, predicted)| (*measured, -predicted)).collect();
        assert_eq!(ranking(&reversed).spearman, Some(-1.0));
        assert_eq!(ranking(&reversed).best_slower_by, 3.0, "the slowest was predicted best: 4 instead of 1");
    }

    #[test]
    fn the_mean_of_no_errors_has_no_sign() {
        assert!(Errors::of([]).mean.is_sign_positive());
    }

    #[test]
    fn errors_are_counted_whatever_their_sign() {
        let errors = Errors::of([-0.3, 0.1, 0.2, 0.0]);
        assert_eq!((errors.rows, errors.median, errors.p90, errors.largest), (4, 0.1, 0.3, 0.3));
        assert!((errors.mean - 0.15).abs() < 1e-12);
    }
}
