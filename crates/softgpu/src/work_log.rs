//! Which work uses memory that earlier work has used: the order that a program needs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use gpu::StreamHandle;

use crate::streams::Origin;

/// A piece of work: its stream, and its number there from 0 on, among copies, fills and launches.
pub type Place = (StreamHandle, usize);

/// The pairs of work of each GPU, by ordinal, of which the second uses bytes that the first has used last, at least one
/// of the two by a write: the second must come after the first. Work of graphs is not logged.
#[derive(Clone, Debug, Default)]
pub struct WorkLog(Arc<Mutex<BTreeMap<usize, BTreeSet<(Place, Place)>>>>);

impl WorkLog {
    /// The pairs so far.
    pub fn pairs(&self) -> BTreeMap<usize, BTreeSet<(Place, Place)>> {
        sync::lock(&self.0).clone()
    }
}

/// The earlier work whose memory a piece of work has used.
#[derive(Clone, Debug, Default)]
pub struct Used {
    last: Cell<u32>,
    all: RefCell<BTreeSet<u32>>,
}

impl Used {
    /// Notes the number of another work.
    #[inline(always)]
    pub fn note(&self, work: u32) {
        if self.last.replace(work) != work {
            self.all.borrow_mut().insert(work);
        }
    }
}

/// The places of the work of one GPU, for its log.
#[derive(Debug)]
pub struct GpuLog {
    ordinal: usize,
    log: WorkLog,
    places: HashMap<u32, Place>,
    counts: HashMap<StreamHandle, usize>,
}

impl GpuLog {
    /// No work of the GPU `ordinal` yet.
    pub fn new(ordinal: usize, log: WorkLog) -> GpuLog {
        GpuLog { ordinal, log, places: HashMap::new(), counts: HashMap::new() }
    }

    /// Adds the work `number`, which has run.
    pub fn add(&mut self, origin: Origin, number: u32, used: &Used) {
        let Origin::Stream(stream) = origin else { return };
        let count = self.counts.entry(stream).or_default();
        let place = (stream, *count);
        *count += 1;
        self.places.insert(number, place);
        let used = used.all.borrow();
        let earlier = used.iter().filter_map(|work| self.places.get(work));
        let pairs = earlier.filter(|(other, _)| *other != stream).map(|earlier| (*earlier, place));
        sync::lock(&self.log.0).entry(self.ordinal).or_default().extend(pairs);
    }
}
