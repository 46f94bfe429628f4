//! Runs many points, each reference and each oracle once, and compares them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use config::{Degrees, Products};
use prove::{EqualityClass, Outcome, Promise, Verdict, outcome_watched};
use sync::lock;
use testkit::layout::Layout;
use testkit::models::proof_text;
use testkit::poison::PoisonFreed;

use crate::arena_use::Arenas;
use crate::results::{Finding, Row};
use crate::space::{Point, Task};

/// Points that have the same bits as one reference.
#[derive(Clone, Debug)]
pub struct Group {
    /// One stage in the plainest manner of this order of sums.
    pub reference: Point,
    pub points: Vec<Point>,
}

/// Groups points by their reference.
pub fn groups(points: impl IntoIterator<Item = Point>) -> Vec<Group> {
    let mut groups: BTreeMap<_, Group> = BTreeMap::new();
    for point in points {
        let reference = point.reference();
        let Point { task, microbatch_size, sequence_parallel, form, numbers, .. } = reference;
        // A reference has one stage.
        let Degrees { dp, cp, tp, pp: _ } = reference.degrees;
        let factors = (task, microbatch_size, (dp, cp, tp), sequence_parallel, form, numbers.sums, numbers.products);
        let key = (factors, reference.to_string());
        groups.entry(key).or_insert_with(|| Group { reference, points: Vec::new() }).points.push(point);
    }
    groups.into_values().collect()
}

/// The memory in which points run; their references and oracles run in plain memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Plain,
    /// Arenas are poisoned and measured: their contents must not matter, and all planned bytes are used.
    Measured,
}

/// Runs all points of `groups` on `workers` threads (each starts its runs' ranks) and tells every finding. Oracles are
/// taken from `known`, or added to it.
pub fn survey(
    groups: &[Group],
    memory: Memory,
    workers: usize,
    known: &Known,
    tell: &(dyn Fn(&Point, Finding) + Sync),
) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            survey_group(group, memory, known, tell);
        }
    };
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
}

fn survey_group(group: &Group, memory: Memory, known: &Known, tell: &(dyn Fn(&Point, Finding) + Sync)) {
    let Group { reference, points } = group;
    let oracle = known.outcome(&reference.oracle());
    let is_oracle = *reference == reference.oracle();
    let reference = if is_oracle { oracle.clone() } else { reference.outcome().map(Arc::new) };
    for point in points {
        let finding = || compare(point, memory, (&*reference.clone()?, &*oracle.clone()?));
        tell(point, finding());
    }
}

/// Compares `point` with the outcomes of its reference and its oracle.
fn compare(point: &Point, memory: Memory, (reference, oracle): (&Outcome, &Outcome)) -> Finding {
    let (outcome, mut faults) = match memory {
        Memory::Plain => (point.outcome()?, vec![]),
        Memory::Measured => measured(point)?,
    };
    let Layout { model, train, .. } = point.layout();
    let promise = Promise::of(point.class(), &model, &train, train.steps);
    let verdict = Verdict::of(&promise, &model, &outcome, (reference, oracle));
    faults.extend(match point.task {
        // Four steps are too few for a loss to fall far.
        Task::Small(_) => verdict.broken(),
        Task::Proof { .. } | Task::Long { .. } => verdict.faults(),
    });
    if oracle.scaling != outcome.scaling {
        faults.push("it does not skip the steps that one rank skips, or scales losses otherwise".to_string());
    }
    Ok(Row::of(verdict, &faults))
}

/// The outcome of a point in memory whose contents must not matter, and the faults of its arenas.
fn measured(point: &Point) -> Result<(Outcome, Vec<String>), String> {
    let said = |error: &dyn std::error::Error| format!("{point}: {error}");
    let setup = point.layout().setup().map_err(|error| said(&error))?;
    let arenas = Arenas::of(&setup);
    let outcome =
        outcome_watched(&setup, &arenas.engine(), &proof_text(), None, &PoisonFreed).map_err(|error| said(&error))?;
    Ok((outcome, arenas.faults()))
}

/// One outcome that is there or on its way.
type Slot = Arc<OnceLock<Result<Arc<Outcome>, String>>>;

/// Oracles, each run when first asked for.
#[derive(Debug, Default)]
pub struct Known {
    outcomes: Mutex<BTreeMap<String, Slot>>,
}

impl Known {
    /// The outcome of `oracle` in plain memory.
    ///
    /// # Errors
    /// Why it did not run.
    pub fn outcome(&self, oracle: &Point) -> Result<Arc<Outcome>, String> {
        let slot = Arc::clone(lock(&self.outcomes).entry(oracle.to_string()).or_default());
        slot.get_or_init(|| oracle.outcome().map(Arc::new)).clone()
    }
}

/// One rank with microbatches of 1 and of 2 sequences, compared for each of `families` of microbatch 1.
pub fn microbatch_sizes(families: &[Point], products: Products) -> Vec<(Point, Finding)> {
    let compare = |family: &Point| -> Finding {
        let one = family.with_products(products);
        let (oracle, other) = (one.outcome()?, Point { microbatch_size: 2, ..one }.outcome()?);
        let Layout { model, train, .. } = one.layout();
        let promise = Promise::of(EqualityClass::OtherOrder, &model, &train, train.steps);
        let verdict = Verdict::of(&promise, &model, &other, (&other, &oracle));
        let faults = verdict.faults();
        Ok(Row::of(verdict, &faults))
    };
    let ones = families.iter().filter(|family| family.microbatch_size == 1);
    ones.map(|family| (*family, compare(family))).collect()
}
