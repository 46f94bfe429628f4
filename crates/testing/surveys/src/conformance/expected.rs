//! Expected results of the cases, as they are computed and kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Numerics;
use mesh::Coord;
use prove::{Outcome, ProofError, outcome_of, weights_hash};
use serde::{Deserialize, Serialize};
use sync::lock;
use testkit::layout::Layout;
use testkit::models::proof_text;
use testkit::text::ProofText;
use testkit::wrapped_engine::WrappedEngine;
use train::{Engine, RankEngine, Setup, TrainError};

use crate::conformance::blocks;
use crate::conformance::cases::{Case, Compared};
use crate::conformance::hashed_device::{Hashes, hashed};

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcomes {
    /// Names of operations, and a hash of what each wrote, 16 digits each.
    Operations(Vec<String>, String),
    /// Bits of losses and norms, and hashes of first gradients and last weights.
    Outcome {
        /// Of each step.
        losses: Vec<String>,
        /// Of each step.
        norms: Vec<String>,
        /// XXH3 of all first gradients.
        gradients: String,
        /// XXH3 of all weights.
        weights: String,
    },
}

/// Results by the names of their cases.
pub type Expected = BTreeMap<String, Outcomes>;

/// The result of `case` on the ranks that `open` makes.
///
/// # Errors
/// See [`ProofError`].
pub fn result(case: &Case, open: impl Fn(&Setup) -> Box<dyn Engine>) -> Result<Outcomes, ProofError> {
    match case.compared {
        Compared::Operations => Ok(outcomes_of(operations(&case.layout, open)?)),
        Compared::Blocks => {
            let setup = case.layout.setup()?;
            let numerics = Numerics::of(setup.train.precision, setup.train.sums);
            Ok(outcomes_of(
                blocks::hashes(&*open(&setup), numerics).map_err(|error| TrainError::Prepare(error.to_string()))?,
            ))
        }
        Compared::Outcome => {
            let setup = case.layout.setup()?;
            let Outcome { losses, norms, gradients, weights, .. } = outcome_of(&setup, &*open(&setup), &text(&setup))?;
            let bits = |values: Vec<f64>| values.iter().map(|value| format!("{:016x}", value.to_bits())).collect();
            let hash = |tensors| format!("{:016x}", weights_hash(&setup.model, tensors));
            Ok(Outcomes::Outcome {
                losses: bits(losses),
                norms: bits(norms),
                gradients: hash(&gradients),
                weights: hash(&weights),
            })
        }
    }
}

fn outcomes_of(hashes: Hashes) -> Outcomes {
    let (names, hashes): (Vec<_>, Vec<_>) = hashes.into_iter().unzip();
    Outcomes::Operations(names, hashes.into_iter().map(|hash| format!("{hash:016x}")).collect())
}

/// The operations of a run of one rank, with hashes of what each wrote.
///
/// # Errors
/// See [`ProofError`].
pub fn operations(layout: &Layout, open: impl Fn(&Setup) -> Box<dyn Engine>) -> Result<Hashes, ProofError> {
    let setup = layout.setup()?;
    let hashes = Arc::default();
    let wrap = |_: Coord, rank: RankEngine| hashed(rank, &hashes);
    outcome_of(&setup, &WrappedEngine::around(open(&setup), &setup, &wrap), &text(&setup))?;
    let hashes: Hashes = lock(&hashes).clone();
    Ok(hashes)
}

/// The text of the proofs; of the whole vocabulary where it is larger than theirs.
fn text(setup: &Setup) -> ProofText {
    let proof = proof_text();
    ProofText { vocabulary: proof.vocabulary.max(setup.model.vocabulary / 4), ..proof }
}

/// The first difference of two results, as a clause; nothing where they are equal.
pub fn difference(expected: &Outcomes, found: &Outcomes) -> Option<String> {
    if expected == found {
        return None;
    }
    let operations = |outcomes: &Outcomes| match outcomes {
        Outcomes::Operations(names, hashes) => Some((names.clone(), hashes.clone())),
        Outcomes::Outcome { .. } => None,
    };
    let (Some((expected_names, expected)), Some((names, found))) = (operations(expected), operations(found)) else {
        return Some("losses, norms, gradients or weights have other bits".into());
    };
    if expected_names != names {
        return Some(format!("{} operations were submitted, {} are expected", names.len(), expected_names.len()));
    }
    let digits = expected.as_bytes().chunks(16).zip(found.as_bytes().chunks(16));
    let differing: Vec<usize> =
        digits.enumerate().filter(|(_, (expected, found))| expected != found).map(|(index, _)| index).collect();
    let first = differing.first().copied().unwrap_or_default();
    Some(format!(
        "operation {first} of {}, {}, wrote other bits; {} operations differ in all",
        names.len(),
        names.get(first).map_or("none", String::as_str),
        differing.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_operation_that_differs_is_named() {
        let of = |hashes: [u64; 3]| {
            let names = ["fill", "norm", "copy"].map(String::from).to_vec();
            Outcomes::Operations(names, hashes.iter().map(|hash| format!("{hash:016x}")).collect())
        };
        assert_eq!(difference(&of([1, 2, 3]), &of([1, 2, 3])), None);
        let expected = "operation 1 of 3, norm, wrote other bits; 2 operations differ in all";
        assert_eq!(difference(&of([1, 2, 3]), &of([1, 7, 8])).as_deref(), Some(expected));
    }
}
