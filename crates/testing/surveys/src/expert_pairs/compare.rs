//! One pair, run and compared.

use prove::{Distance, EqualityClass, Outcome, Promise, Promised, is_noise};
use serde::{Deserialize, Serialize};
use testkit::layout::Layout;

use crate::expert_pairs::choices::chosen;
use crate::expert_pairs::draw::ExpertPair;
use crate::expert_pairs::factors::factors;

/// A pair that has run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The class of the promise.
    pub class: String,
    /// Whether bits are promised.
    pub promises_bits: bool,
    /// Whether losses, norms, first gradients and last weights are the same bits.
    pub same_bits: bool,
    /// The largest share that a distance is of its bound.
    pub nearest: f64,
    /// Choices of experts that differ, counted where a distance is beyond a bound. All are of logits that nearly tie.
    pub differing: u64,
    /// The broken parts of the promise; empty where it is kept.
    pub fault: String,
    /// The values of factors that the pair has, in either layout.
    pub factors: Vec<String>,
}

/// Runs both layouts of `pair` and compares them. Where bounds are promised and a distance is beyond one, both run
/// again and their choices are counted: if some differ, and no more than nearly tie, rounding made them and no bound
/// covers them.
///
/// # Errors
/// A layout that does not run.
pub fn compare(pair: &ExpertPair) -> Result<Compared, String> {
    let said = |error: String| format!("pair {}: {error}; {pair}", pair.number);
    let run = |layout: &Layout| layout.outcome(&pair.text).map_err(|error| said(error.to_string()));
    let [first, second] = &pair.layouts;
    let outcomes = [run(first)?, run(second)?];
    let outcomes = [&outcomes[0], &outcomes[1]];
    let (class, model, train) = (pair.class(), &first.model, &first.train);
    let promise = Promise::of(class, model, train, train.steps);
    let distance = Distance::between(outcomes[0], outcomes[1], |name| is_noise(model, name));
    let mut fault = promise.faults(outcomes, &distance).join("; ");
    let mut differing = 0;
    if !fault.is_empty() && class.promises() == Promised::Bounds {
        let [a, b] = [chosen(first, &pair.text).map_err(said)?, chosen(second, &pair.text).map_err(said)?];
        differing = a.differing(&b);
        if differing > a.near {
            fault.push_str(&format!("; {differing} choices of experts differ, of which {} nearly tie", a.near));
        } else if differing > 0 {
            fault.clear();
        }
    }
    Ok(Compared {
        class: class.to_string(),
        promises_bits: class.promises() == Promised::Bits,
        same_bits: distance.same_bits,
        nearest: nearest(class, &promise, outcomes),
        differing,
        fault,
        factors: factors(pair),
    })
}

/// The largest share of a bound; 0 where bits are promised.
fn nearest(class: EqualityClass, promise: &Promise, outcomes: [&Outcome; 2]) -> f64 {
    match class.promises() {
        Promised::Bounds => promise.distances(outcomes).nearest(),
        Promised::Bits | Promised::Nothing => 0.0,
    }
}
