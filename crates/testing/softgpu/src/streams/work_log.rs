//! Which work uses memory that earlier work has used: the order that a program needs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use gpu::StreamHandle;

use super::clocks::Origin;

/// A piece of work: its stream, and its number there from 0 on, among copies, fills and launches.
pub type Place = (StreamHandle, usize);

/// Pairs of work; the second must come after the first.
pub type Pairs = BTreeSet<(Place, Place)>;

/// The pairs of work of each GPU, by ordinal, of which the second uses bytes that the first has used, at least one of
/// the two by a write: the second must come after the first. Reads of the same memory are taken for reads of the same
/// bytes. The work of a graph of one branch is that of its stream.
#[derive(Clone, Debug, Default)]
pub struct WorkLog(Arc<Mutex<BTreeMap<usize, Pairs>>>);

impl WorkLog {
    /// The pairs so far.
    pub fn pairs(&self) -> BTreeMap<usize, Pairs> {
        sync::lock(&self.0).clone()
    }
}

/// Numbers of other work. Most accesses of a piece of work meet one other.
#[derive(Clone, Debug, Default)]
pub struct Others {
    last: Cell<u32>,
    all: RefCell<BTreeSet<u32>>,
}

impl Others {
    /// Notes the number of another work; 0 means none.
    #[inline(always)]
    pub fn note(&self, work: u32) {
        if self.last.replace(work) != work {
            self.all.borrow_mut().insert(work);
        }
    }
}

/// The earlier work whose memory a piece of work has used.
#[derive(Clone, Debug, Default)]
pub struct Used {
    /// The last to write what is read or written.
    pub writers: Others,
    /// The last to read what is written.
    pub readers: Others,
    /// The last to read what is read. Both must come before the next write.
    pub other_readers: Others,
}

/// The places of the work of one GPU, for its log.
#[derive(Debug)]
pub struct GpuLog {
    ordinal: usize,
    log: WorkLog,
    places: HashMap<u32, Place>,
    /// For each work, those that have read the same memory before it.
    readers: HashMap<u32, BTreeSet<u32>>,
    counts: HashMap<StreamHandle, usize>,
}

impl GpuLog {
    /// No work of the GPU `ordinal` yet.
    pub fn new(ordinal: usize, log: WorkLog) -> GpuLog {
        GpuLog { ordinal, log, places: HashMap::new(), readers: HashMap::new(), counts: HashMap::new() }
    }

    /// Adds the work `number`, which has run.
    pub fn add(&mut self, origin: Origin, number: u32, used: &Used) {
        let (Origin::Stream(stream) | Origin::Chain(stream, _)) = origin;
        let count = self.counts.entry(stream).or_default();
        let place = (stream, *count);
        *count += 1;
        self.places.insert(number, place);
        let with_earlier = |readers: &Others| -> BTreeSet<u32> {
            let readers = readers.all.borrow();
            let earlier = readers.iter().filter_map(|work| self.readers.get(work)).flatten();
            readers.iter().chain(earlier).copied().collect()
        };
        let mut before = with_earlier(&used.readers);
        before.extend(used.writers.all.borrow().iter());
        let readers = with_earlier(&used.other_readers);
        self.readers.insert(number, readers);
        let earlier = before.iter().filter_map(|work| self.places.get(work));
        let pairs = earlier.filter(|(other, _)| *other != stream).map(|earlier| (*earlier, place));
        sync::lock(&self.log.0).entry(self.ordinal).or_default().extend(pairs);
    }
}
