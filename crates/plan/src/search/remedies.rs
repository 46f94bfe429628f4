//! What would do where no layout does.

use std::collections::{BTreeMap, BTreeSet};

use spec::Parallelism;
use train::SetupError;

use super::Question;
use super::candidates::{Candidates, keys};
use super::floor::{Floor, Floors};
use super::recordings::Recordings;

/// A layout, and what it needs.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// The layout, with its stages written out.
    pub parallelism: Parallelism,
    /// Bytes of its hungriest rank at its peak.
    pub memory_bytes: usize,
}

/// What is known of a layout's memory.
enum Known {
    /// Its floor, with the rank that is then the hungriest.
    Floor(usize),
    /// That rank's program in a step of few microbatches.
    Program,
}

/// How many times as many accelerators are tried.
const TIMES: [usize; 6] = [2, 3, 4, 8, 16, 32];

impl Question<'_> {
    /// Of all legal layouts the one that needs least memory by the program of its hungriest rank, if there are any.
    ///
    /// # Errors
    /// As [`super::search`].
    pub fn smallest(&self) -> Result<Option<Smallest>, SetupError> {
        let legal = Candidates::new(self.config, self.accelerators, self.fixed).legal;
        let recordings = Recordings::new(self.config, self.cluster, self.software, &legal)?;
        let mut floors = Floors::new(&recordings);
        let mut open = BTreeMap::new();
        for (index, parallelism) in legal.into_iter().enumerate() {
            let Some(Floor { split, memory_bytes, hungriest, .. }) = floors.of(&parallelism) else { continue };
            let parallelism = Parallelism { stage_layers: Some(split.layers_per_stage().to_vec()), ..parallelism };
            open.insert((memory_bytes as usize, index), (parallelism, Known::Floor(hungriest)));
        }
        while let Some(((bytes, index), (parallelism, known))) = open.pop_first() {
            let closer = match known {
                Known::Floor(rank) => recordings.few_microbatches_bytes(&parallelism, rank)?,
                Known::Program => {
                    let memory_bytes = recordings.step(&parallelism)?.memory_bytes();
                    return Ok(Some(Smallest { parallelism, memory_bytes }));
                }
            };
            open.insert((closer.max(bytes), index), (parallelism, Known::Program));
        }
        Ok(None)
    }

    /// The smallest of a few multiples of the accelerators on which some layout fits.
    ///
    /// # Errors
    /// As [`super::search`].
    pub fn enough_accelerators(&self) -> Result<Option<usize>, SetupError> {
        for times in TIMES {
            let more = Question { accelerators: times * self.accelerators, ..self.clone() };
            if more.smallest()?.is_some_and(|smallest| smallest.memory_bytes as f64 <= self.memory_bytes) {
                return Ok(Some(more.accelerators));
            }
        }
        Ok(None)
    }

    /// The keys that are fixed and without which alone some layout fits.
    ///
    /// # Errors
    /// As [`super::search`].
    pub fn needless_keys(&self) -> Result<Vec<String>, SetupError> {
        let mut found = vec![];
        for key in self.fixed.keys() {
            let free = self.without(key);
            let smallest = Question { fixed: &free, ..self.clone() }.smallest()?;
            if smallest.is_some_and(|smallest| smallest.memory_bytes as f64 <= self.memory_bytes) {
                found.push(key.clone());
            }
        }
        Ok(found)
    }

    /// By key that is fixed: its values in the layouts that are legal when only the other keys are.
    pub fn legal_values(&self) -> BTreeMap<String, BTreeSet<String>> {
        let values = |key: &String| {
            let legal = Candidates::new(self.config, self.accelerators, &self.without(key)).legal;
            legal.iter().filter_map(|parallelism| keys(parallelism).remove(key)).collect()
        };
        self.fixed.keys().map(|key| (key.clone(), values(key))).collect()
    }

    fn without(&self, key: &str) -> BTreeMap<String, String> {
        let others = self.fixed.iter().filter(|(other, _)| *other != key);
        others.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}
