//! Remedies where no layout fits.

use std::collections::BTreeMap;

use config::{Parallelism, Recompute};
use train::SetupError;

use super::Question;
use super::candidates::{Candidates, keys};
use super::floor::{Floors, least_state_bytes};
use super::recordings::Recordings;

/// Changes of which each alone makes some layout fit.
#[derive(Clone, Debug, Default)]
pub struct Remedies {
    /// The legal layout that needs least memory, if any is legal: accelerators with this memory suffice.
    pub least: Option<Smallest>,
    /// The smallest number of accelerators, above that of the question, on which a layout fits; nothing where none is
    /// found in reasonable time.
    pub accelerators: Option<usize>,
    /// Other values of keys that are fixed, of each key the one nearest to its own.
    pub values: BTreeMap<String, String>,
}

/// A layout, and what it needs.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// The layout, with its stages written out.
    pub parallelism: Parallelism,
    /// Bytes of its largest rank at its peak.
    pub memory_bytes: usize,
}

/// Bounds of a layout's memory; each is at least the one before.
enum Known {
    /// Its floor, with the rank that is then the largest.
    Floor(usize),
    /// That rank's program, in a step of few microbatches.
    Program,
    /// All ranks of such a step.
    Step,
}

/// This many combinations are judged at most for a larger number of accelerators: it takes seconds.
const MOST_COMBINATIONS: usize = 10_000_000;
/// The same where no layout is legal on as many as were asked for.
const MOST_WHERE_NONE_IS_LEGAL: usize = 100_000;
/// This many times the accelerators are asked about at most, unless that is less than [`MOST_TIMES_HOLDING`] times the
/// first that are.
const MOST_TIMES: usize = 32;
/// This many times the fewest accelerators that hold the state of the model are asked about in any case.
const MOST_TIMES_HOLDING: usize = 2;

impl Question<'_> {
    /// Remedies, if no layout of the question fits.
    ///
    /// # Errors
    /// The errors of [`super::search`].
    pub fn remedies(&self) -> Result<Remedies, SetupError> {
        let mut recordings = self.recordings(&[])?;
        let least = self.least_memory(&self.legal(), &mut recordings, f64::INFINITY)?;
        // Where no layout is legal, more accelerators seldom help: a few are asked about.
        let most_combinations = if least.is_some() { MOST_COMBINATIONS } else { MOST_WHERE_NONE_IS_LEGAL };
        Ok(Remedies {
            least,
            accelerators: self.enough_accelerators(&mut recordings, most_combinations)?,
            values: self.fitting_values(&mut recordings)?,
        })
    }

    fn legal(&self) -> Vec<Parallelism> {
        Candidates::new(self.config, self.software, self.accelerators, self.fixed).legal
    }

    /// Of these layouts the one that needs least memory, if that is at most `most_bytes`. The one whose least bound is
    /// least is looked at more closely, until it is known.
    fn least_memory(
        &self,
        legal: &[Parallelism],
        recordings: &mut Recordings,
        most_bytes: f64,
    ) -> Result<Option<Smallest>, SetupError> {
        recordings.record(legal)?;
        let mut floors = Floors::new(recordings);
        let mut open = BTreeMap::new();
        for (index, parallelism) in legal.iter().enumerate() {
            let Some(floor) = floors.of(parallelism).filter(|floor| floor.memory_bytes <= most_bytes) else { continue };
            let laid_out = floor.laid_out(parallelism.clone());
            open.insert((floor.memory_bytes as usize, index), (laid_out, Known::Floor(floor.largest)));
        }
        while let Some(((memory_bytes, index), (parallelism, known))) = open.pop_first() {
            let (closer, known) = match known {
                Known::Floor(rank) => (recordings.rank_bytes(&parallelism, rank)?, Known::Program),
                Known::Program => (recordings.few_microbatches_step(&parallelism)?.memory_bytes(), Known::Step),
                Known::Step => return Ok(Some(Smallest { parallelism, memory_bytes })),
            };
            let closer = closer.max(memory_bytes);
            if closer as f64 <= most_bytes {
                open.insert((closer, index), (parallelism, known));
            }
        }
        Ok(None)
    }

    /// Whether one of these layouts fits. Those with the smallest microbatches and recomputed layers are asked first:
    /// where one of them fits, the passes of the others need not be recorded.
    fn some_fits<'a>(
        &self,
        legal: impl Iterator<Item = &'a Parallelism>,
        recordings: &mut Recordings,
    ) -> Result<bool, SetupError> {
        let legal: Vec<&Parallelism> = legal.collect();
        let smallest = legal.iter().map(|layout| layout.microbatch_size).min().unwrap_or(1);
        let is_thrifty = |layout: &&&Parallelism| {
            layout.microbatch_size == smallest && matches!(layout.recompute, Recompute::Full(_))
        };
        let (thrifty, others): (Vec<&Parallelism>, Vec<&Parallelism>) =
            legal.iter().partition(|layout| is_thrifty(layout));
        for some in [thrifty, others] {
            let some: Vec<Parallelism> = some.into_iter().cloned().collect();
            if self.least_memory(&some, recordings, self.memory_bytes)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Every number is asked about, from the first that holds the state of the model.
    fn enough_accelerators(
        &self,
        recordings: &mut Recordings,
        most_combinations: usize,
    ) -> Result<Option<usize>, SetupError> {
        let holding = (least_state_bytes(self.config, self.software) / self.memory_bytes).ceil() as usize;
        let first = holding.max(self.accelerators + 1);
        let last = (MOST_TIMES * self.accelerators).max(MOST_TIMES_HOLDING * first);
        let mut judged = 0;
        for accelerators in first..=last {
            let Candidates { legal, refusals } = Candidates::new(self.config, self.software, accelerators, self.fixed);
            if self.some_fits(legal.iter(), recordings)? {
                return Ok(Some(accelerators));
            }
            judged += legal.len() + refusals.number() + 1;
            if judged > most_combinations {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Of each key that is fixed the value nearest to its own with which some layout fits while the others are kept.
    fn fitting_values(&self, recordings: &mut Recordings) -> Result<BTreeMap<String, String>, SetupError> {
        let mut found = BTreeMap::new();
        for (key, own) in self.fixed {
            let mut fixed = self.fixed.clone();
            fixed.remove(key);
            let legal = Question { fixed: &fixed, ..self.clone() }.legal();
            let value = |parallelism: &Parallelism| keys(parallelism).remove(key).unwrap_or_default();
            let mut by_value: BTreeMap<String, Vec<Parallelism>> = BTreeMap::new();
            for parallelism in legal {
                by_value.entry(value(&parallelism)).or_default().push(parallelism);
            }
            let mut nearest: Vec<(String, Vec<Parallelism>)> = by_value.into_iter().collect();
            nearest.sort_by(|(one, _), (other, _)| distance(own, one).total_cmp(&distance(own, other)));
            for (value, legal) in nearest {
                if self.some_fits(legal.iter(), recordings)? {
                    found.insert(key.clone(), value);
                    break;
                }
            }
        }
        Ok(found)
    }
}

/// The logarithm of the factor by which numbers differ; the same for all words.
fn distance(one: &str, other: &str) -> f64 {
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => (one.max(0.5) / other.max(0.5)).ln().abs(),
        (Ok(_) | Err(_), _) => 0.0,
    }
}
