//! What two layouts of one run promise each other, and whether their outcomes keep it.

use config::{Activation, Format, ModelSpec, TrainSpec};
use train::{LossScalingReport, StepFate};

use crate::class::{EqualityClass, Promised};
use crate::distance::{Distance, Outcome};
use crate::verdict::Bounds;

/// Steps over which the bounds of losses and weights are derived and measured.
pub const BOUNDED_STEPS: u32 = 20;

/// The smallest epsilon of AdamW for which there is a bound of single-precision weights: with a smaller one, elements whose gradient
/// is all rounding error move by full steps (`docs/numerics.md`, "Weights").
pub const LEAST_EPSILON: f32 = 1e-5;

/// The promise for two layouts of one run over some steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// Which sums have the same order. Where all have, bits are promised, and the bounds below say nothing more.
    pub class: EqualityClass,
    /// Relative Frobenius distance of a tensor of the first gradient; `None` where no bound is derived.
    pub gradient: Option<f64>,
    /// Relative difference of a step's loss; `None` where no bound is derived.
    pub loss: Option<f64>,
    /// Relative Frobenius distance of a tensor of the last weights; `None` where no bound is derived.
    pub weight: Option<f64>,
}

impl Promise {
    /// What two runs of `class` that train `model` promise each other after `steps` steps of `train`.
    pub fn of(class: EqualityClass, model: &ModelSpec, train: &TrainSpec, steps: u32) -> Promise {
        let Bounds { gradient, loss, weight } = bounds(class, model.activation, train);
        let is_short = steps <= BOUNDED_STEPS;
        let holds_for_epsilon = match train.precision.stored() {
            Format::Fp32 => train.epsilon >= LEAST_EPSILON,
            // Derived from steps in the other direction, which no epsilon makes longer.
            Format::Bf16 | Format::Fp16 => true,
        };
        let is_bounded = match class.promises() {
            Promised::Bits | Promised::Bounds => true,
            Promised::Nothing => false,
        };
        Promise {
            class,
            gradient: is_bounded.then_some(gradient),
            loss: (is_bounded && is_short).then_some(loss),
            weight: (is_bounded && is_short && holds_for_epsilon).then_some(weight),
        }
    }

    /// The broken parts of the promise, one clause each, between outcomes that are `distance` apart.
    pub fn faults(&self, outcomes: [&Outcome; 2], distance: &Distance) -> Vec<String> {
        if outcomes.into_iter().any(nothing_learned) {
            return vec!["every step overflowed, so no weight was updated and nothing is shown; use a lower train.initial_loss_scale".into()];
        }
        if distance.same_bits {
            return vec![];
        }
        match self.class.promises() {
            Promised::Bits => return vec!["the bits differ".into()],
            Promised::Bounds => {}
            Promised::Nothing => return vec![],
        }
        let mut faults: Vec<String> = fate_of_one(outcomes).into_iter().collect();
        let Distance { gradient: (gradient, of_gradient), weight: (weight, of_weight), loss, .. } = distance;
        for (what, distance, bound) in [
            (format!("the first gradient of {of_gradient}"), *gradient, self.gradient),
            ("a loss".to_string(), *loss, self.loss),
            (of_weight.clone(), *weight, self.weight),
        ] {
            // A distance that is no number is not within the bound either.
            if let Some(bound) = bound.filter(|bound| distance.is_nan() || distance > *bound) {
                faults.push(format!("{what} is {distance:.1e} away, and {bound:.0e} is the bound"));
            }
        }
        faults
    }
}

/// Whether a run has skipped each of its steps: the first weights have the same bits under every layout.
fn nothing_learned(outcome: &Outcome) -> bool {
    let is_skipped = |report: &Option<LossScalingReport>| report.is_some_and(|report| report.fate == StepFate::Skipped);
    !outcome.scaling.is_empty() && outcome.scaling.iter().all(is_skipped)
}

/// Bounds hold between runs that skip the same steps: the first step that one of the two skipped, if there is one.
fn fate_of_one(outcomes: [&Outcome; 2]) -> Option<String> {
    let [first, second] = outcomes.map(|outcome| &outcome.scaling);
    let fates = first.iter().zip(second).map(|(a, b)| [a, b].map(|report| report.map(|report| report.fate)));
    let step = fates.enumerate().find(|(_, [a, b])| a != b).map(|(step, _)| step + 1)?;
    Some(format!("step {step} was skipped in one of the two"))
}

fn bounds(class: EqualityClass, activation: Activation, train: &TrainSpec) -> Bounds {
    let (stored, tokens) = (train.precision.stored(), train.global_batch * train.sequence_length);
    let bounds = Bounds::of(class, stored).with_products(train.precision.products(), tokens);
    match (stored, class) {
        // Forward passes differ by roundings of the narrow type, from the first step on.
        (Format::Bf16 | Format::Fp16, EqualityClass::LibraryOrder | EqualityClass::OtherSums)
            if activation.has_kink() =>
        {
            bounds.with_kink()
        }
        (Format::Fp32 | Format::Bf16 | Format::Fp16, _) => bounds,
    }
}

#[cfg(test)]
mod tests {
    use config::{Precision, Products};

    use super::*;
    use testkit::models::{Style, proof_model, proof_training};

    #[test]
    fn devices_of_other_kinds_promise_nothing() {
        let promise =
            Promise::of(EqualityClass::OtherDevice, &proof_model(Style::Gpt2, 12, true), &proof_training(), 2);
        assert_eq!((promise.gradient, promise.loss, promise.weight), (None, None, None));
        let far =
            Distance { same_bits: false, loss: 1.0, norm: 1.0, gradient: (1.0, "w".into()), weight: (1.0, "w".into()) };
        let learned = Outcome::default();
        assert_eq!(promise.faults([&learned, &learned], &far), [""; 0]);
        assert_eq!(Bounds::of(EqualityClass::OtherDevice, Format::Bf16).exceeded(&far), [""; 0]);
    }

    #[test]
    fn a_bound_is_promised_where_one_is_derived() {
        let (model, train) = (proof_model(Style::Gpt2, 12, true), proof_training());
        let within = Promise::of(EqualityClass::OtherOrder, &model, &train, BOUNDED_STEPS);
        assert_eq!((within.class, within.loss, within.weight), (EqualityClass::OtherOrder, Some(1e-5), Some(1e-4)));
        let long = Promise::of(EqualityClass::OtherOrder, &model, &train, BOUNDED_STEPS + 1);
        assert_eq!((long.gradient, long.loss, long.weight), (Some(1e-6), None, None));
        let small = TrainSpec { epsilon: 1e-8, ..train.clone() };
        let of_small = Promise::of(EqualityClass::OtherSums, &model, &small, 3);
        assert_eq!((of_small.loss, of_small.weight), (Some(1e-5), None));
        let narrow = TrainSpec { precision: Precision::Bf16(Products::Chained), ..small };
        assert!(Promise::of(EqualityClass::OtherSums, &model, &narrow, 3).weight.is_some());
    }

    /// Narrow roundings move inputs of ReLU across zero where sums are split; where they are only in another order, the first forward pass has the same bits.
    #[test]
    fn a_kink_widens_what_other_sums_of_narrow_numbers_promise() {
        let smooth = proof_model(Style::Gpt2, 12, true);
        let kinked = ModelSpec { activation: Activation::Relu, ..smooth.clone() };
        let gradient = |model: &ModelSpec, precision, class| {
            Promise::of(class, model, &TrainSpec { precision, ..proof_training() }, 3).gradient.expect("a bound")
        };
        let of_both = |precision, class| [&smooth, &kinked].map(|model| gradient(model, precision, class));
        let [near, far] = of_both(Precision::Bf16(Products::Chained), EqualityClass::OtherSums);
        assert!(0.06 < near && near < 0.07 && 0.21 < far && far < 0.22, "{near} {far}");
        for (precision, class) in [
            (Precision::Bf16(Products::Chained), EqualityClass::OtherOrder),
            (Precision::Fp32(Products::Chained), EqualityClass::OtherSums),
        ] {
            let [smooth, kinked] = of_both(precision, class);
            assert_eq!(smooth, kinked);
        }
    }

    /// Sums that are cut off toward zero depend on how many tokens they have: by at most 1.5 last places for each block of a piece.
    #[test]
    fn products_in_blocks_widen_what_other_orders_promise() {
        let model = proof_model(Style::Gpt2, 12, true);
        let gradient = |products, sequence_length| {
            let precision = Precision::Bf16(products);
            let train = TrainSpec { precision, sequence_length, global_batch: 4, ..proof_training() };
            Promise::of(EqualityClass::OtherOrder, &model, &train, 3).gradient.expect("a bound")
        };
        assert_eq!(gradient(Products::Chained, 16), 1e-6);
        let more = |products, length| (gradient(products, length) - 1e-6) * f64::from(1u32 << 24) / 1.5;
        assert!((more(Products::Blocks16, 16) - 4.0).abs() < 1e-6);
        assert!((more(Products::Blocks8, 16) - 8.0).abs() < 1e-6);
        for length in [2048, 1 << 20] {
            assert!((more(Products::Blocks16, length) - 512.0).abs() < 1e-6, "a piece has 512 blocks");
        }
    }

    #[test]
    fn each_broken_part_is_named() {
        let outcome = Outcome::default();
        let mut distance = Distance {
            same_bits: true,
            loss: 2e-5,
            norm: 1.0,
            gradient: (f64::NAN, "g".into()),
            weight: (1.0, "w".into()),
        };
        let train = proof_training();
        let faults = |class: EqualityClass, distance: &Distance| {
            Promise::of(class, &proof_model(Style::Gpt2, 12, true), &train, 3).faults([&outcome, &outcome], distance)
        };
        assert_eq!(faults(EqualityClass::SameOrder, &distance), [""; 0]);
        distance.same_bits = false;
        for class in [EqualityClass::SameOrder, EqualityClass::AnyOrder] {
            assert_eq!(faults(class, &distance), ["the bits differ"]);
        }
        assert_eq!(
            faults(EqualityClass::OtherSums, &distance),
            [
                "the first gradient of g is NaN away, and 1e-6 is the bound",
                "a loss is 2.0e-5 away, and 1e-5 is the bound",
                "w is 1.0e0 away, and 1e-4 is the bound",
            ]
        );
    }

    #[test]
    fn a_step_that_one_run_skips_is_named() {
        let outcome = |fates: [StepFate; 2]| Outcome {
            scaling: fates.map(|fate| Some(LossScalingReport { factor: 1.0, fate, skipped_steps: 0 })).to_vec(),
            ..Outcome::default()
        };
        let (updated, skipped) = (StepFate::Updated, StepFate::Skipped);
        let (all, one) = (outcome([updated; 2]), outcome([updated, skipped]));
        assert_eq!(fate_of_one([&all, &one]), Some("step 2 was skipped in one of the two".into()));
        assert_eq!(fate_of_one([&one, &one]), None);
    }

    #[test]
    fn runs_that_skip_every_step_show_nothing() {
        let outcome = |fates: [StepFate; 2]| Outcome {
            scaling: fates.map(|fate| Some(LossScalingReport { factor: 1.0, fate, skipped_steps: 0 })).to_vec(),
            ..Outcome::default()
        };
        let (updated, skipped) = (StepFate::Updated, StepFate::Skipped);
        let same =
            Distance { same_bits: true, loss: 0.0, norm: 0.0, gradient: (0.0, "g".into()), weight: (0.0, "w".into()) };
        let faults = |fates| {
            let outcome = outcome(fates);
            Promise::of(EqualityClass::SameOrder, &proof_model(Style::Gpt2, 12, true), &proof_training(), 2)
                .faults([&outcome, &outcome], &same)
                .len()
        };
        assert_eq!([faults([skipped, skipped]), faults([skipped, updated])], [1, 0]);
    }
}
