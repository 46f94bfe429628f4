//! `pleach prove A B`: two layouts run, and one line says whether they keep the promise that they make each other.

use std::fmt;

use prove::{Distance, First, Leg, Nobody, Outcome, OutcomeSinks, Promise, Promised, is_noise, run_leg, weights_hash};
use serde_json::json;
use train::{ForwardingSink, Start, TensorMap};

use crate::arguments::{Format, PairArguments};
use crate::check::verdict::Verdict;
use crate::compare::pair::{Pair, RunRanks, Runs};
use crate::failure::Failure;
use crate::processes::delivery::{Deliverer, Destinations, receive_while};
use crate::run::interrupt;
use crate::run::process_ranks::ProcessRanks;
use crate::screen::figures::counted;
use crate::screen::output::print;

/// Runs both layouts and prints how they compare.
///
/// # Errors
/// Input that cannot be used, the failure of a rank, or a broken promise.
pub fn prove(arguments: &PairArguments) -> Result<(), Failure> {
    let signals = interrupt::ends_at_once()?;
    let pair = Pair::open(arguments)?;
    let Some(proof) = pair.with("prove", &signals, Proof::of)?.flatten() else { return Ok(()) };
    print(&match arguments.format() {
        Format::Text => format!("{proof}\n"),
        Format::Json => format!("{}\n", proof.json()),
    })?;
    if proof.faults.is_empty() {
        return Ok(());
    }
    Err(Failure::Work(format!("the promise of docs/numerics.md does not hold: {}", proof.faults.join("; "))))
}

/// What running both showed.
#[derive(Debug)]
struct Proof {
    names: [String; 2],
    steps: u32,
    promise: Promise,
    distance: Distance,
    /// Hashes of the last weights.
    weights: [u64; 2],
    faults: Vec<String>,
}

impl Proof {
    /// The proof, on process 0; nothing on others.
    fn of(runs: &Runs<'_>) -> Result<Option<Proof>, Failure> {
        let pair = runs.pair;
        let [a, b] = &pair.verdicts;
        let (model, train) = (&a.config.model, &a.config.train);
        let outcomes = (outcome(runs, a)?, outcome(runs, b)?);
        let (Some(first), Some(second)) = outcomes else { return Ok(None) };
        let promise = Promise::of(pair.class, model, train, pair.steps);
        let distance = Distance::between(&first, &second, |name| is_noise(model, name));
        Ok(Some(Proof {
            names: pair.names.clone(),
            steps: pair.steps,
            faults: promise.faults([&first, &second], &distance),
            weights: [first, second].map(|outcome| weights_hash(model, &outcome.weights)),
            promise,
            distance,
        }))
    }

    fn json(&self) -> String {
        let Proof { steps, promise, distance, .. } = self;
        json!({
            "steps": steps,
            "class": promise.class.to_string(),
            "holds": self.faults.is_empty(),
            "faults": self.faults,
            "same_bits": distance.same_bits,
            "weights_xxh3": self.weights.map(|hash| format!("{hash:016x}")),
            "gradient": { "distance": distance.gradient.0, "of": distance.gradient.1, "bound": promise.gradient },
            "loss": { "distance": distance.loss, "bound": promise.loss },
            "norm": { "distance": distance.norm },
            "weight": { "distance": distance.weight.0, "of": distance.weight.1, "bound": promise.weight },
        })
        .to_string()
    }
}

/// The outcome of the first steps of the run of `verdict`, on process 0; nothing on others.
fn outcome(runs: &Runs<'_>, verdict: &Verdict) -> Result<Option<Outcome>, Failure> {
    let first = First { steps: runs.pair.steps, watch: &Nobody };
    let run = |ranks: &ProcessRanks<'_>, sinks: OutcomeSinks<'_>| {
        let leg = Leg { first, ..Leg::from(Start::Seed) };
        ranks.watched(|setup, engine| run_leg(setup, engine, runs.text.training(), leg, sinks))
    };
    let (gradients, weights) = (TensorMap::default(), TensorMap::default());
    let sinks = OutcomeSinks { gradients: &gradients, weights: &weights };
    let reports = match runs.ranks(verdict)? {
        RunRanks::InFirst => return Ok(None),
        RunRanks::Here(ranks) => run(&ranks, sinks)?,
        RunRanks::Shared(ranks, several) if several.is_first() => {
            let to = Destinations { weights: Some(&weights), gradients: Some(&gradients), ..Destinations::default() };
            receive_while(runs.company, &verdict.config.model, to, || run(&ranks, sinks))?
        }
        RunRanks::Shared(ranks, several) => {
            let deliverer = Deliverer::begin(several);
            let (weights, gradients) = (|message| deliverer.weight(message), |message| deliverer.gradient(message));
            let (weights, gradients) = (ForwardingSink::new(&weights), ForwardingSink::new(&gradients));
            run(&ranks, OutcomeSinks { gradients: &gradients, weights: &weights })?;
            return deliverer.end().map(|()| None);
        }
    };
    Outcome::new(&reports, gradients, weights).map(Some).map_err(|error| Failure::Work(error.to_string()))
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Proof { names: [first, second], promise, distance, .. } = self;
        let steps = counted(u64::from(self.steps), "step");
        write!(f, "{first} and {second}, {steps}: ")?;
        if distance.same_bits {
            return write!(f, "same bits, weights xxh3 {:016x}", self.weights[0]);
        }
        let told = |bound: Option<f64>| match (promise.class.promises(), bound) {
            (Promised::Bits, _) => String::new(),
            (Promised::Bounds | Promised::Nothing, Some(bound)) => format!(" (at most {bound:.0e})"),
            (Promised::Bounds | Promised::Nothing, None) => " (no bound)".into(),
        };
        let [gradient, loss, weight] = [promise.gradient, promise.loss, promise.weight].map(told);
        write!(
            f,
            "{}; apart are first gradients {}{gradient}, losses {}{loss}, weights {}{weight}: the promise {}",
            promise.class,
            figure(distance.gradient.0),
            figure(distance.loss),
            figure(distance.weight.0),
            if self.faults.is_empty() { "holds" } else { "does not hold" }
        )
    }
}

/// Two digits of a distance, none of no distance.
fn figure(distance: f64) -> String {
    if distance == 0.0 { "0".into() } else { format!("{distance:.1e}") }
}

#[cfg(test)]
mod tests {
    use prove::EqualityClass;

    use super::*;

    fn proof(class: EqualityClass, same_bits: bool, weight: Option<f64>, faults: &[&str]) -> String {
        let distance = Distance {
            same_bits,
            loss: 0.0,
            norm: 1e-8,
            gradient: (1.84e-7, "head.norm.weight".into()),
            weight: (3.21e-6, "head.norm.weight".into()),
        };
        let proof = Proof {
            names: ["a.toml".into(), "b.toml".into()],
            steps: 3,
            promise: Promise { class, gradient: Some(1e-6), loss: Some(1e-5), weight },
            distance,
            weights: [0x0123_4567_89ab_cdef; 2],
            faults: faults.iter().map(ToString::to_string).collect(),
        };
        proof.to_string()
    }

    #[test]
    fn one_line_says_it() {
        assert_eq!(
            proof(EqualityClass::OtherOrder, true, None, &[]),
            "a.toml and b.toml, 3 steps: same bits, weights xxh3 0123456789abcdef"
        );
        assert_eq!(
            proof(EqualityClass::OtherSums, false, Some(1e-4), &[]),
            "a.toml and b.toml, 3 steps: other sums; apart are first gradients 1.8e-7 (at most 1e-6), \
             losses 0 (at most 1e-5), weights 3.2e-6 (at most 1e-4): the promise holds"
        );
        assert_eq!(
            proof(EqualityClass::OtherOrder, false, None, &[]),
            "a.toml and b.toml, 3 steps: other order; apart are first gradients 1.8e-7 (at most 1e-6), \
             losses 0 (at most 1e-5), weights 3.2e-6 (no bound): the promise holds"
        );
        assert_eq!(
            proof(EqualityClass::SameOrder, false, None, &["the bits differ"]),
            "a.toml and b.toml, 3 steps: same order; apart are first gradients 1.8e-7, losses 0, weights 3.2e-6: \
             the promise does not hold"
        );
    }
}
