//! Remedies where no layout fits.

use std::collections::BTreeMap;

use config::Parallelism;
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
    /// The smallest number of accelerators, above that of the question, on which a layout fits; nothing where none is found in reasonable time.
    pub accelerators: Option<usize>,
    /// Other values of keys that are fixed, of each key the one nearest to its own.
    pub values: BTreeMap<String, String>,
}

/// A layout, and what it needs.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// The layout, with its stages written out.
    pub parallelism: Parallelism,
    /// Bytes of its hungriest rank at its peak.
    pub memory_bytes: usize,
}

/// What is known of a layout's memory; each is no less than the one before.
enum Known {
    /// Its floor, with the rank that is then the hungriest.
    Floor(usize),
    /// That rank's program, in a step of few microbatches.
    Program,
    /// All ranks of such a step.
    Step,
}

/// So many combinations are judged at most for a larger number of accelerators: it takes seconds.
const MOST_COMBINATIONS: usize = 10_000_000;
/// So many times the accelerators are asked about at most, unless that is less than [`MOST_TIMES_HOLDING`] times the first that are.
const MOST_TIMES: usize = 32;
/// So many times the fewest accelerators that hold the state of the model are asked about in any case.
const MOST_TIMES_HOLDING: usize = 2;

impl Question<'_> {
    /// Remedies, if no layout of the question fits.
    ///
    /// # Errors
    /// As [`super::search`].
    pub fn remedies(&self) -> Result<Remedies, SetupError> {
        let mut recordings = self.recordings(&[])?;
        Ok(Remedies {
            least: self.least_memory(&self.legal(), &mut recordings, f64::INFINITY)?,
            accelerators: self.enough_accelerators(&mut recordings)?,
            values: self.fitting_values(&mut recordings)?,
        })
    }

    fn legal(&self) -> Vec<Parallelism> {
        Candidates::new(self.config, self.accelerators, self.fixed).legal
    }

    /// Of these layouts the one that needs least memory, if that is at most `most_bytes`. The one whose least bound is least is looked at more
    /// closely, until it is known.
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
            open.insert((floor.memory_bytes as usize, index), (laid_out, Known::Floor(floor.hungriest)));
        }
        while let Some(((memory_bytes, index), (parallelism, known))) = open.pop_first() {
            let (closer, known) = match known {
                Known::Floor(rank) => (recordings.few_microbatches_bytes(&parallelism, rank)?, Known::Program),
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

    /// Every number is asked about, from the first that holds the state of the model.
    fn enough_accelerators(&self, recordings: &mut Recordings) -> Result<Option<usize>, SetupError> {
        let holding = (least_state_bytes(self.config, self.software) / self.memory_bytes).ceil() as usize;
        let first = holding.max(self.accelerators + 1);
        let last = (MOST_TIMES * self.accelerators).max(MOST_TIMES_HOLDING * first);
        let mut judged = 0;
        for accelerators in first..=last {
            let Candidates { legal, refusals } = Candidates::new(self.config, accelerators, self.fixed);
            if self.least_memory(&legal, recordings, self.memory_bytes)?.is_some() {
                return Ok(Some(accelerators));
            }
            judged += legal.len() + refusals.number();
            if judged > MOST_COMBINATIONS {
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
                if self.least_memory(&legal, recordings, self.memory_bytes)?.is_some() {
                    found.insert(key.clone(), value);
                    break;
                }
            }
        }
        Ok(found)
    }
}

/// By which factor numbers differ, as a logarithm; words are all as near.
fn distance(one: &str, other: &str) -> f64 {
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => (one.max(0.5) / other.max(0.5)).ln().abs(),
        (Ok(_) | Err(_), _) => 0.0,
    }
}
