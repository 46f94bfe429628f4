//! Verdicts by the name of their case.

use prove::Verdict;
use serde::{Deserialize, Serialize};

use crate::kept::Kept;

/// The part of a verdict that a table shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Whether it has the bits of the run whose sums have the same order.
    pub same_bits: bool,
    /// Whether it has the bits of one rank.
    pub oracle_bits: bool,
    /// Largest relative difference of a loss.
    pub loss: f64,
    /// Largest distance of a gradient.
    pub gradient: f64,
    pub gradient_of: String,
    /// Largest distance of a weight.
    pub weight: f64,
    pub weight_of: String,
    /// Fall of the loss.
    pub fall: f64,
    /// The largest share that a distance is of its bound.
    pub nearest: f64,
    /// Broken parts of the promise.
    pub faults: String,
}

impl Row {
    /// The measurements of `verdict`; `faults` are the broken parts of its promise.
    pub fn of(verdict: Verdict, faults: &[String]) -> Row {
        let distance = verdict.distance;
        Row {
            same_bits: verdict.same_bits,
            oracle_bits: distance.same_bits,
            loss: distance.loss,
            gradient: distance.gradient.0,
            gradient_of: distance.gradient.1,
            weight: distance.weight.0,
            weight_of: distance.weight.1,
            fall: verdict.fall,
            nearest: verdict.nearest,
            faults: faults.join("; "),
        }
    }
}

/// The result of a point, or the reason why it did not run.
pub type Finding = Result<Row, String>;

/// Rows by the names of their cases.
pub type Results = Kept<String, Row>;

/// The first line of the file of [`Results`].
pub const TITLE: &str = "cases with their distances";

/// Says what was found, and keeps it. A case that did not run is not kept, so that the next run tries it again.
pub fn tell(results: &Results, name: &str, finding: Finding) {
    match finding {
        Ok(row) => {
            eprintln!("{name}: {}", if row.faults.is_empty() { "as promised" } else { &row.faults });
            results.keep(name.into(), row);
        }
        Err(error) => eprintln!("{name}: {error}"),
    }
}
