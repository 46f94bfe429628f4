//! `pleach prove A B`: two layouts run, and one line says whether they keep the promise that they make each other.

use std::fmt;

use config::figures::counted;
use prove::{
    Bounded, Distance, Distances, EqualityClass, First, NoWatch, Outcome, OutcomeSinks, Promise, Promised, RunPart,
    is_noise, run_part, weights_hash,
};
use run::failure::Failure;
use run::process_group::delivery::{Deliverer, Destinations, receive_while};
use run::process_group::process_ranks::ProcessRanks;
use run::signals::interrupt;
use run::verdict::Verdict;
use serde_json::json;
use train::{ForwardingSink, Start, TensorMap};

use crate::arguments::ProveArguments;
use crate::arguments::format::Format;
use crate::compare::pair::{Pair, RunRanks, Runs};
use crate::screen::output::print;

/// Runs both layouts and prints how they compare.
///
/// # Errors
/// Input that cannot be used, the failure of a rank, or a broken promise.
pub fn prove(arguments: &ProveArguments) -> Result<(), Failure> {
    let signals = interrupt::ends_at_once()?;
    let ProveArguments { pair: arguments, strict } = arguments;
    let pair = Pair::open(arguments)?;
    let Some(proof) = pair.with("prove", &signals, Proof::of)?.flatten() else { return Ok(()) };
    print(&match arguments.format() {
        Format::Text => format!("{proof}\n"),
        Format::Json => format!("{}\n", proof.json()),
    })?;
    if proof.faults.is_empty() {
        return match proof.without_bound().as_slice() {
            [] => Ok(()),
            missing if *strict => Err(Failure::Work(format!("--strict: no bound for {}", missing.join(" and ")))),
            _ => Ok(()),
        };
    }
    let reasons: Vec<&str> = proof.faults.iter().chain(&proof.narrow).map(String::as_str).collect();
    Err(Failure::Work(format!("the promise of docs/numerics.md does not hold: {}", reasons.join("; "))))
}

/// The distances of two runs.
#[derive(Debug)]
struct Proof {
    names: [String; 2],
    steps: u32,
    class: EqualityClass,
    distance: Distance,
    distances: Distances,
    /// Hashes of the last weights.
    weights: [u64; 2],
    faults: Vec<String>,
    /// Why losses and weights have no bound, or nothing has one.
    left_out: Option<String>,
    /// Why a distance beyond a bound need not be a fault.
    narrow: Option<String>,
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
            distances: promise.distances([&first, &second]),
            weights: [first, second].map(|outcome| weights_hash(model, &outcome.weights)),
            class: promise.class,
            left_out: promise.left_out,
            narrow: promise.narrow,
            distance,
        }))
    }

    /// The values that have no bound, where the two runs promise bounds and have not the same bits.
    fn without_bound(&self) -> Vec<&'static str> {
        match (self.class.promises(), self.distance.same_bits) {
            (Promised::Bits, _) | (_, true) => vec![],
            (Promised::Bounds | Promised::Nothing, false) => {
                let Distances { loss, weight, .. } = &self.distances;
                let gradient = self.distances.gradient();
                let bounds = [("first gradients", gradient.bound), ("losses", loss.bound), ("weights", weight.bound)];
                bounds.into_iter().filter(|(_, bound)| bound.is_none()).map(|(what, _)| what).collect()
            }
        }
    }

    fn json(&self) -> String {
        let Proof { steps, class, distance, distances: Distances { loss, weight, .. }, .. } = self;
        let gradient = self.distances.gradient();
        json!({
            "steps": steps,
            "class": class.to_string(),
            "holds": self.faults.is_empty(),
            "faults": self.faults,
            "left_out": self.left_out,
            "without_bound": self.without_bound(),
            "narrow": self.narrow,
            "same_bits": distance.same_bits,
            "weights_xxh3": self.weights.map(|hash| format!("{hash:016x}")),
            "gradient": { "distance": gradient.distance, "of": gradient.what, "bound": gradient.bound },
            "loss": { "distance": loss.distance, "bound": loss.bound },
            "norm": { "distance": distance.norm },
            "weight": { "distance": weight.distance, "of": distance.weight.1, "bound": weight.bound },
        })
        .to_string()
    }
}

/// The outcome of the first steps of the run of `verdict`, on process 0; nothing on others.
fn outcome(runs: &Runs<'_>, verdict: &Verdict) -> Result<Option<Outcome>, Failure> {
    let first = First { steps: runs.pair.steps, watch: &NoWatch };
    let run = |ranks: &ProcessRanks<'_>, sinks: OutcomeSinks<'_>| {
        let part_of_run = RunPart { first, ..RunPart::from(Start::Seed) };
        ranks.watched(|setup, engine| run_part(setup, engine, runs.text.training(), part_of_run, sinks))
    };
    let (gradients, weights) = (TensorMap::default(), TensorMap::default());
    let sinks = OutcomeSinks { gradients: &gradients, weights: &weights };
    let reports = match runs.ranks(verdict)? {
        RunRanks::InFirst => return Ok(None),
        RunRanks::Here(ranks) => run(&ranks, sinks)?,
        RunRanks::Shared(ranks, member) if member.is_first() => {
            let to = Destinations { weights: Some(&weights), gradients: Some(&gradients), ..Destinations::default() };
            receive_while(runs.process_group, &verdict.config.model, to, || run(&ranks, sinks))?
        }
        RunRanks::Shared(ranks, member) => {
            let deliverer = Deliverer::begin(member);
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
        let Proof { names: [first, second], class, distances: Distances { loss, weight, .. }, .. } = self;
        let steps = counted(u64::from(self.steps), "step");
        write!(f, "{first} and {second}, {steps}: ")?;
        if self.distance.same_bits {
            return write!(f, "same bits, weights xxh3 {:016x}", self.weights[0]);
        }
        let written = |Bounded { distance, bound, .. }: &Bounded| {
            let bound = match (class.promises(), bound) {
                (Promised::Bits, _) => String::new(),
                (Promised::Bounds | Promised::Nothing, Some(bound)) => format!(" (at most {bound:.1e})"),
                (Promised::Bounds | Promised::Nothing, None) => " (no bound)".into(),
            };
            format!("{}{bound}", figure(*distance))
        };
        let gradients = self.distances.gradient();
        let missing = self.without_bound();
        let verdict = match (self.faults.is_empty(), missing.len()) {
            (false, _) => "the promise does not hold".into(),
            (true, 0) => "the promise holds".into(),
            (true, 3) => "nothing is promised".into(),
            (true, _) => format!("no bound for {}; the promise holds for the rest", missing.join(" and ")),
        };
        let [gradient, loss, weight] = [&gradients, loss, weight].map(written);
        write!(f, "{class}; distances: first gradients {gradient}, losses {loss}, weights {weight}: {verdict}")?;
        [&self.narrow, &self.left_out].into_iter().flatten().try_for_each(|reason| write!(f, "; {reason}"))
    }
}

/// Two digits of a distance, none of no distance.
fn figure(distance: f64) -> String {
    if distance == 0.0 { "0".into() } else { format!("{distance:.1e}") }
}

#[cfg(test)]
mod tests {
    use prove::ParameterKind;

    use super::*;

    fn proof(class: EqualityClass, same_bits: bool, weight: Option<f64>, faults: &[&str]) -> String {
        proof_without(class, same_bits, weight, faults, None)
    }

    fn proof_without(
        class: EqualityClass,
        same_bits: bool,
        weight: Option<f64>,
        faults: &[&str],
        left_out: Option<&str>,
    ) -> String {
        let distance = Distance {
            same_bits,
            loss: 0.0,
            norm: 1e-8,
            gradient: (1.84e-7, "head.norm.weight".into()),
            weight: (3.21e-6, "head.norm.weight".into()),
        };
        let bounded = |what: &str, distance, bound| Bounded { what: what.into(), distance, bound };
        let distances = Distances {
            gradients: vec![
                (ParameterKind::Matrix, bounded("layers.0.ffn.up.weight", 2e-7, Some(1e-6))),
                (ParameterKind::Vector, bounded("head.norm.weight", 1.84e-7, Some(4.6e-7))),
            ],
            loss: bounded("a loss", 0.0, Some(2.7e-7)),
            weight: bounded("weights", 3.21e-9, weight),
        };
        let proof = Proof {
            names: ["a.toml".into(), "b.toml".into()],
            steps: 3,
            class,
            distance,
            distances,
            weights: [0x0123_4567_89ab_cdef; 2],
            faults: faults.iter().map(ToString::to_string).collect(),
            left_out: left_out.map(Into::into),
            narrow: None,
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
            proof(EqualityClass::OtherSums, false, Some(1e-8), &[]),
            "a.toml and b.toml, 3 steps: other sums; distances: first gradients 1.8e-7 (at most 4.6e-7), \
             losses 0 (at most 2.7e-7), weights 3.2e-9 (at most 1.0e-8): the promise holds"
        );
        assert_eq!(
            proof(EqualityClass::OtherOrder, false, None, &[]),
            "a.toml and b.toml, 3 steps: other order; distances: first gradients 1.8e-7 (at most 4.6e-7), \
             losses 0 (at most 2.7e-7), weights 3.2e-9 (no bound): no bound for weights; the promise holds for the rest"
        );
        assert_eq!(
            proof(EqualityClass::SameOrder, false, None, &["the bits differ"]),
            "a.toml and b.toml, 3 steps: same order; distances: first gradients 1.8e-7, losses 0, weights 3.2e-9: \
             the promise does not hold"
        );
    }
    #[test]
    fn the_line_says_why_there_is_no_bound() {
        let of = |class| proof_without(class, false, None, &[], Some("the rates are high"));
        assert!(
            of(EqualityClass::OtherSums)
                .ends_with("(no bound): no bound for weights; the promise holds for the rest; the rates are high")
        );
    }
}
