//! Whether a case keeps the promise.

use config::ModelSpec;

use crate::class::{EqualityClass, Promised};
use crate::distance::{Distance, Outcome};
use crate::promise::Promise;

/// The least fall of the loss, as a share of the first loss: equality of runs that learn nothing proves little.
pub const LEAST_FALL: f64 = 0.2;

/// Whether the distance of tensor `name` says nothing: the exact gradient of a key bias is zero in dims that are not
/// rotated.
pub fn is_noise(model: &ModelSpec, name: &str) -> bool {
    model.has_idle_key_biases() && name.ends_with("attention.key.bias")
}

/// The share of the first loss by which the loss fell.
pub fn fall(outcome: &Outcome) -> f64 {
    match (outcome.losses.first(), outcome.losses.last()) {
        (Some(first), Some(last)) => 1.0 - last / first,
        (None, _) | (_, None) => f64::NAN,
    }
}

/// The result of comparing a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The promise of the case to its oracle.
    pub class: EqualityClass,
    /// Whether it has the bits of the run whose sums have the same order.
    pub same_bits: bool,
    /// How far it is from the oracle.
    pub distance: Distance,
    /// The share by which its loss fell.
    pub fall: f64,
    /// Distances from the oracle beyond their bounds, one clause each.
    pub exceeded: Vec<String>,
    /// The largest share that any distance from the oracle is of its bound.
    pub nearest: f64,
}

impl Verdict {
    /// Compares `outcome` of a run of `model` with the run of the same order, and with the oracle, to which it has made
    /// `promise`.
    pub fn of(
        promise: &Promise,
        model: &ModelSpec,
        outcome: &Outcome,
        (reference, oracle): (&Outcome, &Outcome),
    ) -> Verdict {
        let left_out = |name: &str| is_noise(model, name);
        let distances = promise.distances([oracle, outcome]);
        Verdict {
            class: promise.class,
            exceeded: distances.exceeded(),
            nearest: distances.nearest(),
            same_bits: Distance::between(reference, outcome, left_out).same_bits,
            distance: Distance::between(oracle, outcome, left_out),
            fall: fall(outcome),
        }
    }

    /// The broken parts of the promise, one sentence each, and that the loss falls too little.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.broken();
        if self.fall.is_nan() || self.fall < LEAST_FALL {
            faults.push(format!(
                "its loss falls by {:.1} %, and {} % is the least",
                100.0 * self.fall,
                100.0 * LEAST_FALL
            ));
        }
        faults
    }

    /// The broken parts of the promise, one sentence each.
    pub fn broken(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.same_bits {
            faults.push("its bits are not those of one stage in the plain manner".to_string());
        }
        if self.class.promises() == Promised::Bits && !self.distance.same_bits {
            faults.push("its bits are not those of one rank".to_string());
        }
        faults.extend(self.exceeded.iter().cloned());
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(class: EqualityClass) -> Verdict {
        let distance = Distance {
            same_bits: false,
            loss: 1e-6,
            norm: 1.0,
            gradient: (5e-7, "w".into()),
            weight: (1e-5, "w".into()),
        };
        Verdict { class, same_bits: true, distance, fall: 0.3, exceeded: vec![], nearest: 0.5 }
    }

    #[test]
    fn each_part_of_the_promise_is_held() {
        assert_eq!(verdict(EqualityClass::OtherSums).faults(), [""; 0]);
        for class in [EqualityClass::SameOrder, EqualityClass::AnyOrder] {
            assert_eq!(verdict(class).faults(), ["its bits are not those of one rank"]);
        }
        let mut far = verdict(EqualityClass::OtherOrder);
        far.same_bits = false;
        far.exceeded = vec!["a loss is far away".into()];
        far.fall = f64::NAN;
        assert_eq!(far.faults().len(), 3, "{:?}", far.faults());
    }
}
