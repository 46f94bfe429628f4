//! Checkpoints that somebody is reading, so that they are not removed meanwhile.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use sync::lock;

/// The steps of checkpoints that are held.
#[derive(Debug, Default)]
pub struct Holds {
    steps: Mutex<BTreeSet<u32>>,
}

/// A checkpoint is held until this is dropped. One is held by one reader at a time.
#[derive(Debug)]
pub(crate) struct Hold {
    holds: Arc<Holds>,
    steps: u32,
}

impl Holds {
    /// Whether the checkpoint after `steps` steps is held.
    pub(crate) fn contains(&self, steps: u32) -> bool {
        lock(&self.steps).contains(&steps)
    }

    /// Holds the checkpoint after `steps` steps.
    pub(crate) fn hold(self: &Arc<Holds>, steps: u32) -> Hold {
        lock(&self.steps).insert(steps);
        Hold { holds: Arc::clone(self), steps }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        lock(&self.holds.steps).remove(&self.steps);
    }
}
