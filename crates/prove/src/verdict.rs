//! Whether a case keeps the promise.

use std::f64::consts::PI;

use config::{Format, ModelSpec, Products};

use crate::class::{EqualityClass, Promised};
use crate::distance::{Distance, Outcome};

/// How far sums in another order may be apart; derived in `docs/numerics.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Relative Frobenius distance of a tensor of the first gradient.
    pub gradient: f64,
    /// Relative difference of a step's loss.
    pub loss: f64,
    /// Relative Frobenius distance of a tensor of the last weights.
    pub weight: f64,
}

impl Bounds {
    /// What is promised in single precision.
    pub const PROMISE: Bounds = Bounds { gradient: 1e-6, loss: 1e-5, weight: 1e-4 };

    /// No bound.
    pub const NOTHING: Bounds = Bounds { gradient: f64::INFINITY, loss: f64::INFINITY, weight: f64::INFINITY };

    /// What layouts of `class` promise each other whose parameters and activations are `stored`.
    ///
    /// Infinite where nothing is promised. Where only the order of sums over sequences differs, a narrow run's first
    /// gradient is as near as a single one's: activations are
    /// the same bits, and gradients of parameters are summed in single precision. A library also adds activations of
    /// tensor-parallel ranks, so its order is bounded as other sums are.
    pub fn of(class: EqualityClass, stored: Format) -> Bounds {
        // As many unit roundoffs as in single precision.
        let gradient = Bounds::PROMISE.gradient * stored.unit_roundoff() / Format::Fp32.unit_roundoff();
        // From the first update on, rounded weights differ under every class.
        let narrow = Bounds { gradient, loss: stored.unit_roundoff(), weight: weight_bound(gradient) };
        match (stored, class) {
            (Format::Fp32 | Format::Bf16 | Format::Fp16, EqualityClass::OtherDevice) => Bounds::NOTHING,
            (
                Format::Fp32,
                EqualityClass::SameOrder
                | EqualityClass::AnyOrder
                | EqualityClass::OtherOrder
                | EqualityClass::LibraryOrder
                | EqualityClass::OtherSums,
            ) => Bounds::PROMISE,
            (Format::Bf16 | Format::Fp16, EqualityClass::LibraryOrder | EqualityClass::OtherSums) => narrow,
            (
                Format::Bf16 | Format::Fp16,
                EqualityClass::SameOrder | EqualityClass::AnyOrder | EqualityClass::OtherOrder,
            ) => Bounds { gradient: Bounds::PROMISE.gradient, ..narrow },
        }
    }
}

impl Bounds {
    /// These, of runs that round activations to a narrow type, where an activation has a kink: a share of its inputs, as large as their relative error,
    /// changes sides, and the gradients behind them come or go.
    pub fn with_kink(self) -> Bounds {
        let gradient = self.gradient.hypot((2.0 * self.gradient / PI).sqrt());
        Bounds { gradient, weight: weight_bound(gradient), ..self }
    }

    /// These, of runs of at most `tokens` tokens a step whose gradients sum products in this order: one that cuts off loses up to
    /// 1.5 last places of single precision for each block of tokens, always toward zero, so that another number of tokens
    /// in a microbatch shows (`docs/numerics.md`, "Products in blocks").
    pub fn with_products(self, products: Products, tokens: usize) -> Bounds {
        let Some(block) = products.block() else { return self };
        let blocks = tokens.min(Products::PIECE).div_ceil(block);
        let gradient = self.gradient + 1.5 * Format::Fp32.unit_roundoff() * blocks as f64;
        Bounds { gradient, ..self }
    }

    /// What of `distance` is not within the bounds, one sentence each.
    pub fn exceeded(&self, distance: &Distance) -> Vec<String> {
        let Distance { gradient: (gradient, g), weight: (weight, w), loss, .. } = distance;
        let parts = [
            (format!("the first gradient of {g}"), *gradient, self.gradient),
            ("a loss".to_string(), *loss, self.loss),
            (format!("the last {w}"), *weight, self.weight),
        ];
        // A distance that is no number is not within the bound either.
        let beyond = parts.into_iter().filter(|(_, distance, bound)| distance.is_nan() || distance > bound);
        let said =
            |(what, distance, bound)| format!("{what} is {distance:.2e} from one rank's, and {bound:.0e} is the bound");
        beyond.map(said).collect()
    }
}

/// How far narrow runs' weights may be apart whose gradients are: steps of elements that have either sign.
fn weight_bound(gradient: f64) -> f64 {
    1.8 * gradient.sqrt()
}

/// By how much the loss must fall at least, as a share of the first loss: equality of runs that learn nothing proves little.
pub const LEAST_FALL: f64 = 0.2;

/// Whether the distance of tensor `name` says nothing: the exact gradient of a key bias is zero in dims that are not rotated.
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

/// What comparing a case showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What the case promises its oracle.
    pub class: EqualityClass,
    /// Whether it has the bits of the run whose sums have the same order.
    pub same_bits: bool,
    /// How far it is from the oracle.
    pub distance: Distance,
    /// The share by which its loss fell.
    pub fall: f64,
}

impl Verdict {
    /// Compares `outcome` with the run of the same order and with the oracle.
    pub fn of(
        class: EqualityClass,
        model: &ModelSpec,
        outcome: &Outcome,
        (reference, oracle): (&Outcome, &Outcome),
    ) -> Verdict {
        let left_out = |name: &str| is_noise(model, name);
        Verdict {
            class,
            same_bits: Distance::between(reference, outcome, left_out).same_bits,
            distance: Distance::between(oracle, outcome, left_out),
            fall: fall(outcome),
        }
    }

    /// The broken parts of the promise, one sentence each.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.same_bits {
            faults.push("its bits are not those of one stage in the plain manner".to_string());
        }
        if self.class.promises() == Promised::Bits && !self.distance.same_bits {
            faults.push("its bits are not those of one rank".to_string());
        }
        faults.extend(Bounds::of(self.class, Format::Fp32).exceeded(&self.distance));
        if self.fall.is_nan() || self.fall < LEAST_FALL {
            faults.push(format!(
                "its loss falls by {:.1} %, and {} % is the least",
                100.0 * self.fall,
                100.0 * LEAST_FALL
            ));
        }
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
        Verdict { class, same_bits: true, distance, fall: 0.3 }
    }

    #[test]
    fn each_part_of_the_promise_is_held() {
        assert_eq!(verdict(EqualityClass::OtherSums).faults(), [""; 0]);
        for class in [EqualityClass::SameOrder, EqualityClass::AnyOrder] {
            assert_eq!(verdict(class).faults(), ["its bits are not those of one rank"]);
        }
        let mut far = verdict(EqualityClass::OtherOrder);
        far.same_bits = false;
        far.distance.gradient.0 = 1.1e-6;
        far.distance.loss = f64::INFINITY;
        far.distance.weight.0 = 2e-4;
        far.fall = f64::NAN;
        assert_eq!(far.faults().len(), 5, "{:?}", far.faults());
    }
}
