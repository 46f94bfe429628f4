//! The checkpoints of a run's folder on their way into a store, by the same rules of retention.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::read_manifest;
use crate::holds::Holds;
use crate::manifest::MANIFEST;
use crate::retention::{Retention, Saved};
use crate::step_names::Found;
use crate::store::committed;
use crate::stored_run::{StoredError, StoredRun};

/// Brings what the folder of a run has and its store lacks.
#[derive(Debug)]
pub struct Mirror {
    stored: StoredRun,
    checkpoints: PathBuf,
    /// Files of the run that go with each checkpoint, where they are there.
    with: Vec<PathBuf>,
    retention: Retention,
    holds: Arc<Holds>,
    /// Later checkpoints of the store are not of this run's past.
    start: u32,
    /// The committed checkpoints of the store; not known at first, and after a failure.
    known: Option<BTreeMap<u32, Option<f64>>>,
}

/// A checkpoint that is in the store now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uploaded {
    pub steps: u32,
    pub data_bytes: u64,
}

impl Mirror {
    /// From the folder `checkpoints` to `stored`, for a run that continues after `start` steps.
    pub fn new(
        stored: StoredRun,
        checkpoints: &Path,
        with: Vec<PathBuf>,
        (retention, holds): (Retention, Arc<Holds>),
        start: u32,
    ) -> Mirror {
        let checkpoints = checkpoints.to_path_buf();
        Mirror { stored, checkpoints, with, retention, holds, start, known: None }
    }

    /// The place of the run.
    pub fn stored(&self) -> &StoredRun {
        &self.stored
    }

    /// Checkpoints of the folder that are to be in the store and are not known to be there, the newest first.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn missing(&self) -> Result<Vec<u32>, StoredError> {
        Ok(self.wanted()?.into_iter().map(|found| found.steps).collect())
    }

    /// Brings all that is missing, removes what the rules discard and what killed uploads left; `on_uploaded` hears of
    /// each checkpoint as soon as it is committed.
    ///
    /// # Errors
    /// The first failure; all that was committed before stays so, and the next call tries again.
    pub fn bring(&mut self, mut on_uploaded: impl FnMut(Uploaded)) -> Result<(), StoredError> {
        let brought = self.bring_all(&mut on_uploaded);
        if brought.is_err() {
            // Whether the last request had an effect is not known.
            self.known = None;
        }
        brought
    }

    fn bring_all(&mut self, on_uploaded: &mut impl FnMut(Uploaded)) -> Result<(), StoredError> {
        if self.known.is_none() {
            self.known = Some(self.look()?);
        }
        for Found { path, steps } in self.wanted()? {
            let _held = self.holds.hold(steps);
            // It may have been removed before it was held.
            if !path.join(MANIFEST).is_file() {
                continue;
            }
            let with: Vec<PathBuf> = self.with.iter().filter(|file| file.is_file()).cloned().collect();
            let is_there = self.known.as_ref().is_some_and(|known| known.contains_key(&steps));
            let manifest = match is_there {
                // Its measurement ended after its upload.
                true => self.stored.upload_manifest(&path)?,
                false => self.stored.upload(&path, &with)?,
            };
            if let Some(known) = &mut self.known {
                known.insert(steps, manifest.state.held_out_loss);
            }
            if !is_there {
                on_uploaded(Uploaded { steps, data_bytes: manifest.data_bytes() });
            }
            self.retire()?;
        }
        Ok(())
    }

    /// The committed checkpoints of the store, after those were removed that are of another past, and what uploads left
    /// that did not end.
    fn look(&self) -> Result<BTreeMap<u32, Option<f64>>, StoredError> {
        let here = committed(&self.checkpoints)?;
        let newest = here.first().map_or(self.start, |found| found.steps.max(self.start));
        let mut known = BTreeMap::new();
        for (steps, of_steps) in self.stored.list()? {
            if !of_steps.is_committed() {
                self.stored.remove_objects(&of_steps)?;
                continue;
            }
            let manifest = match self.stored.manifest(steps) {
                Ok(manifest) => manifest,
                // It neither counts nor is removed.
                Err(StoredError::Damaged { .. }) if steps <= newest => continue,
                Err(StoredError::Damaged { .. }) => {
                    self.stored.remove(steps)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let own = here.iter().find(|found| found.steps == steps).map(|found| read_manifest(&found.path));
            let is_other = match own {
                Some(Ok(own)) => !own.has_same_data(&manifest),
                Some(Err(_)) => false,
                None => steps > newest,
            };
            if is_other {
                self.stored.remove(steps)?;
            } else {
                known.insert(steps, manifest.state.held_out_loss);
            }
        }
        Ok(known)
    }

    /// Checkpoints of the folder that the store lacks, or has without their held-out loss, the newest first, without
    /// those that the rules would discard.
    fn wanted(&self) -> Result<Vec<Found>, StoredError> {
        let known = self.known.clone().unwrap_or_default();
        let (mut all, mut missing) = (known.clone(), vec![]);
        let is_whole = |found: &Found| known.get(&found.steps).is_some_and(Option::is_some);
        for found in committed(&self.checkpoints)?.into_iter().filter(|found| !is_whole(found)) {
            let Ok(manifest) = read_manifest(&found.path) else { continue };
            let held_out_loss = manifest.state.held_out_loss;
            if all.insert(found.steps, held_out_loss).is_none() || held_out_loss.is_some() {
                missing.push(found);
            }
        }
        let given_up = self.retention.given_up(&saved(&all));
        missing.retain(|found| !given_up.contains(&found.steps));
        Ok(missing)
    }

    fn retire(&mut self) -> Result<(), StoredError> {
        let Some(known) = &mut self.known else { return Ok(()) };
        for steps in self.retention.given_up(&saved(known)) {
            self.stored.remove(steps)?;
            known.remove(&steps);
        }
        Ok(())
    }
}

fn saved(known: &BTreeMap<u32, Option<f64>>) -> Vec<Saved> {
    known.iter().map(|(steps, loss)| Saved { steps: *steps, held_out_loss: *loss }).collect()
}
