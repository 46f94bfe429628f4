//! Runs cells and says whether each keeps the promise of its class.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use prove::{EqualityClass, Outcome, Promise, Promised, Verdict, outcome_watched};
use sync::lock;
use testkit::layout::Layout;
use testkit::models::proof_text;
use testkit::poison::PoisonFreed;

use crate::arena_use::MeasuringEngine;
use crate::matrix::Cell;
use crate::results::Row;

/// The result of running a cell, or the reason why it did not run.
pub type Finding = Result<Row, String>;

/// Runs all `cells` on `workers` threads (each starts its runs' ranks) and tells every finding. References and oracles
/// are taken from `known`, or added to it.
pub fn prove_all(cells: &[Cell], workers: usize, known: &Known, tell: &(dyn Fn(&Cell, Finding) + Sync)) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    tell(cell, prove(cell, known));
                }
            });
        }
    });
}

/// Compares `cell`, in a poisoned and measured arena, with its reference and its oracle.
fn prove(cell: &Cell, known: &Known) -> Finding {
    let (reference, oracle) = (known.outcome(&cell.reference())?, known.outcome(&cell.oracle())?);
    let (outcome, mut faults) = measured(cell)?;
    let class = class(cell);
    let Layout { model, train, .. } = cell.layout();
    let promise = Promise::of(class, &model, &train, train.steps);
    let verdict = Verdict::of(&promise, &model, &outcome, (&reference, &oracle));
    if !verdict.same_bits {
        faults.push("its bits are not those of one stage in the plain manner".to_string());
    }
    if class.promises() == Promised::Bits && !verdict.distance.same_bits {
        faults.push("its bits are not those of one rank".to_string());
    }
    if oracle.scaling != outcome.scaling {
        faults.push("it does not skip the steps that one rank skips, or scales losses otherwise".to_string());
    }
    faults.extend(verdict.exceeded.iter().cloned());
    Ok(Row::of(verdict, &faults))
}

/// The promise of a cell to its oracle.
pub fn class(cell: &Cell) -> EqualityClass {
    let class = EqualityClass::of(&cell.oracle().layout().parallelism, &cell.layout().parallelism);
    class.in_sums([cell.numbers.sums; 2])
}

/// The outcome of a cell in memory whose contents must not matter, and the faults of its arenas.
fn measured(cell: &Cell) -> Result<(Outcome, Vec<String>), String> {
    let said = |error: &dyn std::error::Error| format!("{cell}: {error}");
    let setup = cell.layout().setup().map_err(|error| said(&error))?;
    let engine = MeasuringEngine::new(&setup);
    let outcome = outcome_watched(&setup, &engine, &proof_text(), None, &PoisonFreed).map_err(|error| said(&error))?;
    Ok((outcome, engine.faults(&setup)))
}

/// One outcome that is there or on its way.
type Slot = Arc<OnceLock<Result<Arc<Outcome>, String>>>;

/// References and oracles, each run when first asked for.
#[derive(Debug, Default)]
pub struct Known {
    outcomes: Mutex<BTreeMap<String, Slot>>,
}

impl Known {
    /// The outcome of `cell` in plain memory.
    ///
    /// # Errors
    /// Why it did not run.
    pub fn outcome(&self, cell: &Cell) -> Result<Arc<Outcome>, String> {
        let slot = {
            let mut outcomes = lock(&self.outcomes);
            Arc::clone(outcomes.entry(cell.to_string()).or_default())
        };
        let run = || cell.layout().outcome(&proof_text()).map(Arc::new).map_err(|error| format!("{cell}: {error}"));
        slot.get_or_init(run).clone()
    }
}
