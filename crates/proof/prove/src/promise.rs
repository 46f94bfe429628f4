//! The promise between two layouts of one run, and whether their outcomes keep it.

use std::cmp::Ordering;

use config::{ModelSpec, TrainSpec};

use crate::bounds::Bounds;
use crate::choices::Choices;
use crate::class::{EqualityClass, Promised};
use crate::distance::{Distance, Outcome};
use crate::loss_bound::LossBound;
use crate::measured::{Measured, StepDistance};
use crate::parameter_kind::ParameterKind;
use crate::skipped_steps::{first_update, nothing_learned, parted, parted_at};
use crate::unbounded::left_out;
use crate::valid_tokens::ValidTokens;
use crate::widths::{narrow, without_bounds};

/// The promise for two layouts of one run over some steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Promise {
    /// Which sums have the same order. Where all have, bits are promised, and the bounds below say nothing more.
    pub class: EqualityClass,
    /// The largest distances where every token has a label; `None` where no bound is derived.
    pub bounds: Option<Bounds>,
    /// The reason why losses and weights have no bound after these steps, or why no value has one; `None` where all
    /// have.
    pub left_out: Option<String>,
    /// The reason why a distance beyond a bound need not be a fault; `None` where it is one.
    pub narrow: Option<String>,
    model: ModelSpec,
    train: TrainSpec,
    steps: u32,
}

/// A distance with its bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounded {
    /// The value that differs.
    pub what: String,
    /// The distance of the two runs.
    pub distance: f64,
    /// The largest distance that is permitted; `None` where no bound is derived.
    pub bound: Option<f64>,
}

impl Bounded {
    /// Whether the distance is within its bound. NaN is not.
    fn is_kept(&self) -> bool {
        self.bound.is_none_or(|bound| self.distance <= bound)
    }

    /// The distance as a share of the bound.
    pub fn share(&self) -> f64 {
        match self.bound {
            Some(bound) if self.distance > 0.0 => self.distance / bound,
            Some(_) | None => 0.0,
        }
    }
}

/// The distances of two outcomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Distances {
    /// Of each kind of parameters the first gradient that is farthest.
    pub gradients: Vec<(ParameterKind, Bounded)>,
    /// The farthest loss.
    pub loss: Bounded,
    /// All last weights.
    pub weight: Bounded,
}

impl Distances {
    /// The gradient that is nearest to its bound, or farthest beyond it.
    pub fn gradient(&self) -> Bounded {
        let order = |bounded: &Bounded| (bounded.share(), bounded.distance);
        let nearest = self.gradients.iter().map(|(_, bounded)| bounded);
        let nearest = nearest.max_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal));
        nearest.cloned().unwrap_or(Bounded { what: "none".into(), distance: 0.0, bound: None })
    }

    /// The largest share that any distance is of its bound.
    pub fn nearest(&self) -> f64 {
        let gradients = self.gradients.iter().map(|(_, bounded)| bounded);
        gradients.chain([&self.loss, &self.weight]).map(Bounded::share).fold(0.0, f64::max)
    }

    /// Every distance beyond its bound, one clause each.
    pub fn exceeded(&self) -> Vec<String> {
        let gradients = self.gradients.iter().map(|(_, bounded)| ("the first gradient of ", bounded));
        let beyond = gradients.chain([("", &self.loss), ("", &self.weight)]).filter(|(_, bounded)| !bounded.is_kept());
        let said = |(of, Bounded { what, distance, bound }): (&str, &Bounded)| {
            format!("{of}{what} is {distance:.1e} away, and {:.1e} is the bound", bound.unwrap_or(f64::INFINITY))
        };
        beyond.map(said).collect()
    }
}

impl Promise {
    /// The promise between two runs of `class` that train `model`, after `steps` steps of `train`.
    pub fn of(class: EqualityClass, model: &ModelSpec, train: &TrainSpec, steps: u32) -> Promise {
        let bounds = Bounds::of(class, model, train, &ValidTokens::all(train, steps));
        let apart = bounds.as_ref().map_or(0.0, |bounds| bounds.weight);
        let choices = Choices::of(class, model, train, steps);
        let of_choices = |reason: fn(&Choices) -> Option<String>| choices.as_ref().and_then(reason);
        let of_first = || without_bounds(model).or_else(|| of_choices(Choices::without_bounds));
        let of_last = || of_choices(Choices::left_out).or_else(|| left_out(model, train, steps, apart));
        let (left_out, narrow) = match class.promises() {
            Promised::Bounds => (of_first().or_else(of_last), narrow(model).or_else(|| of_choices(Choices::narrow))),
            Promised::Bits | Promised::Nothing => (None, None),
        };
        Promise { class, bounds, left_out, narrow, model: model.clone(), train: train.clone(), steps }
    }

    /// The largest distances of two runs with the labels of `outcomes`.
    pub fn bounds_of(&self, outcomes: [&Outcome; 2]) -> Option<Bounds> {
        let valid = ValidTokens::of(&self.train, self.steps, outcomes);
        Bounds::of(self.class, &self.model, &self.train, &valid)
    }

    /// Every distance of two outcomes, each with its bound. Where one run [skips](parted_at) a step that the other does
    /// not, losses up to that step are compared, and gradients if both are of the same step.
    pub fn distances(&self, outcomes: [&Outcome; 2]) -> Distances {
        let bounds = self.bounds_of(outcomes);
        let least_gradient = bounds.as_ref().map_or(0.0, |bounds| bounds.least_gradient);
        let Measured { gradients, mut losses, weight } = Measured::between(&self.model, outcomes, least_gradient);
        let parted = parted_at(outcomes);
        losses.truncate(parted.map_or(losses.len(), |step| step + 1));
        let [first, second] = outcomes.map(first_update);
        let of_gradients = bounds.as_ref().filter(|_| first == second);
        let of_kind = |(kind, (distance, what))| {
            let bound = of_gradients.map(|bounds| bounds.gradient(kind));
            (kind, Bounded { what, distance, bound })
        };
        let short = bounds.as_ref().filter(|_| self.left_out.is_none());
        Distances {
            gradients: gradients.into_iter().map(of_kind).collect(),
            loss: nearest_loss(&losses, short.map(|bounds| &bounds.loss)),
            weight: Bounded {
                what: "the root mean square of the weights".into(),
                distance: weight,
                bound: short.filter(|_| parted.is_none()).map(|bounds| bounds.weight),
            },
        }
    }

    /// The broken parts of the promise, one clause each, between outcomes that are `distance` apart.
    pub fn faults(&self, outcomes: [&Outcome; 2], distance: &Distance) -> Vec<String> {
        if outcomes.into_iter().any(nothing_learned) {
            let said = "every step overflowed, so no weight was updated and nothing is shown; use a lower \
                        train.initial_loss_scale";
            return vec![said.into()];
        }
        if distance.same_bits {
            return vec![];
        }
        match self.class.promises() {
            Promised::Bits => return vec!["the bits differ".into()],
            Promised::Bounds => {}
            Promised::Nothing => return vec![],
        }
        let mut faults: Vec<String> = parted_at(outcomes).map(parted).into_iter().collect();
        faults.extend(self.distances(outcomes).exceeded());
        faults
    }
}

/// The loss that is the largest share of its bound, of all steps; the most distant one where there is none.
fn nearest_loss(losses: &[StepDistance], bound: Option<&LossBound>) -> Bounded {
    let of_step = |(step, measured): (usize, &StepDistance)| Bounded {
        what: format!("the loss of step {}", step + 1),
        distance: measured.distance,
        bound: bound.map(|bound| bound.of_step(step, measured.norm, measured.loss)),
    };
    let order = |bounded: &Bounded| (bounded.share(), bounded.distance);
    let all = losses.iter().enumerate().map(of_step);
    let nearest = all.max_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal));
    nearest.unwrap_or(Bounded { what: "a loss".into(), distance: 0.0, bound: None })
}

#[cfg(test)]
mod tests {
    use config::{Activation, Precision, Products};
    use testkit::models::{Style, proof_model, proof_training};
    use train::{LossScalingReport, UpdateOutcome};

    use super::*;
    use crate::unbounded::BOUNDED_STEPS;

    const WEIGHT: &str = "layers.0.ffn.up.weight";

    fn promise(class: EqualityClass, train: &TrainSpec, steps: u32) -> Promise {
        Promise::of(class, &proof_model(Style::Gpt2, 12, true), train, steps)
    }

    fn gradient(promise: &Promise) -> f64 {
        promise.bounds.as_ref().expect("bounds").gradient(ParameterKind::Matrix)
    }

    /// An outcome of one tensor, one loss and one weight.
    fn outcome(gradient: f32, loss: f64, weight: f32) -> Outcome {
        let tensor = |value| [(WEIGHT.to_string(), vec![value])].into();
        Outcome { gradients: tensor(gradient), losses: vec![loss], weights: tensor(weight), ..Outcome::default() }
    }

    fn different() -> Distance {
        Distance { same_bits: false, loss: 1.0, norm: 1.0, gradient: (1.0, "w".into()), weight: (1.0, "w".into()) }
    }

    #[test]
    fn devices_of_other_kinds_promise_nothing() {
        let promise = promise(EqualityClass::OtherDevice, &proof_training(), 2);
        assert_eq!(promise.bounds, None);
        let outcomes = [outcome(1.0, 1.0, 1.0), outcome(2.0, 2.0, 2.0)];
        let distances = promise.distances([&outcomes[0], &outcomes[1]]);
        assert!(distances.exceeded().is_empty() && distances.gradient().distance > 0.5);
        assert_eq!(promise.faults([&outcomes[0], &outcomes[1]], &different()), [""; 0]);
    }

    #[test]
    fn long_runs_have_a_bound_of_the_first_gradient_only() {
        let train = proof_training();
        let outcomes = [outcome(1.0, 1.0, 1.0), outcome(2.0, 2.0, 2.0)];
        let count = |steps| {
            let promise = promise(EqualityClass::OtherSums, &train, steps);
            promise.faults([&outcomes[0], &outcomes[1]], &different()).len()
        };
        assert_eq!([count(BOUNDED_STEPS), count(BOUNDED_STEPS + 1)], [3, 1]);
    }

    /// 4 rates of 0.3, of which three warm up, add up to 0.75; 1 / (2 sqrt(48)) is 0.072.
    #[test]
    fn rates_that_make_another_model_have_a_bound_of_the_first_gradient_only() {
        let outcomes = [outcome(1.0, 1.0, 1.0), outcome(2.0, 2.0, 2.0)];
        let of = |learning_rate| {
            let train = TrainSpec { learning_rate, ..proof_training() };
            let promise = promise(EqualityClass::OtherSums, &train, 4);
            (promise.faults([&outcomes[0], &outcomes[1]], &different()).len(), promise.left_out)
        };
        assert_eq!(of(2e-2), (3, None));
        let (faults, left_out) = of(0.3);
        assert_eq!(faults, 1);
        assert!(
            left_out.is_some_and(|said| said.contains("add up to 7.50e-1") && said.contains("train.learning_rate"))
        );
        // The rates of 2e-2 add up to 0.05, which is more than twice 0.02.
        let model = ModelSpec { init_std: 0.02, ..proof_model(Style::Gpt2, 12, true) };
        let train = TrainSpec { learning_rate: 2e-2, ..proof_training() };
        let left_out = Promise::of(EqualityClass::OtherSums, &model, &train, 4).left_out;
        assert!(left_out.is_some_and(|said| {
            said.contains("up to 4.00e-2 with model.hidden = 48, model.num_layers = 16 and model.init_std = 0.02")
        }));
    }

    /// Where sums are only in another order, the first gradients are sums of the same terms, whatever the heads are.
    #[test]
    fn short_heads_with_norms_have_no_bound_but_of_first_gradients_in_another_order() {
        let proof = proof_model(Style::Gpt2, 12, true);
        let model = ModelSpec { qk_norm: config::QkNorm::Heads, ..proof.clone() };
        let outcomes = [outcome(1.0, 1.0, 1.0), outcome(2.0, 2.0, 2.0)];
        let of = |class, model| {
            let promise = Promise::of(class, model, &proof_training(), 4);
            (promise.faults([&outcomes[0], &outcomes[1]], &different()).len(), promise.left_out)
        };
        let [order, sums] = [EqualityClass::OtherOrder, EqualityClass::OtherSums];
        assert_eq!([order, sums].map(|class| of(class, &proof)), [(3, None), (3, None)]);
        let said = "norms of heads (model.qk_norm) have a bound from model.head_dim = 8 on; got 4";
        assert_eq!([order, sums].map(|class| of(class, &model)), [(1, Some(said.into())), (0, Some(said.into()))]);
        assert_eq!(of(EqualityClass::SameOrder, &model), (1, None), "bits are promised");
    }

    #[test]
    fn other_orders_are_nearer_than_other_sums_and_narrow_values_farther() {
        let train = |precision| TrainSpec { precision, ..proof_training() };
        let bound = |class, precision| gradient(&promise(class, &train(precision), 3));
        let (single, narrow) = (Precision::Fp32(Products::Chained), Precision::Bf16(Products::Chained));
        let [order, sums] = [EqualityClass::OtherOrder, EqualityClass::OtherSums];
        assert!(bound(order, single) < bound(sums, single), "{:.1e} {:.1e}", bound(order, single), bound(sums, single));
        assert_eq!(bound(order, single), bound(order, narrow), "the first activations have the same bits");
        assert!(bound(sums, narrow) > 1000.0 * bound(sums, single));
        assert_eq!(bound(EqualityClass::LibraryOrder, single), bound(sums, single));
    }

    /// bf16 and fp16 roundings move inputs of ReLU across zero where sums are split; where they are only in another
    /// order, the first forward pass has the same bits.
    #[test]
    fn a_kink_widens_the_bounds_of_other_sums_but_not_that_of_the_output_matrix() {
        let smooth = proof_model(Style::Gpt2, 12, true);
        let kinked = ModelSpec { activation: Activation::Relu, ..smooth.clone() };
        let train = TrainSpec { precision: Precision::Bf16(Products::Chained), ..proof_training() };
        let bounds = |model: &ModelSpec, class| Promise::of(class, model, &train, 3).bounds.expect("bounds");
        let of_both = |class, kind| [&smooth, &kinked].map(|model| bounds(model, class).gradient(kind));
        let [near, far] = of_both(EqualityClass::OtherSums, ParameterKind::Matrix);
        assert!(near < 0.1 && far > near + 0.01, "{near} {far}");
        let [near, far] = of_both(EqualityClass::OtherSums, ParameterKind::Output);
        assert!((near / far - 1.0).abs() < 0.2, "{near} {far}");
        let [near, far] = of_both(EqualityClass::OtherOrder, ParameterKind::Matrix);
        assert_eq!(near, far);
    }

    /// Sums that are cut off toward zero depend on how many tokens they have: by at most 1.5 last places for each block
    /// of a piece.
    #[test]
    fn products_in_blocks_widen_what_other_orders_promise() {
        let of = |products, sequence_length| {
            let precision = Precision::Bf16(products);
            let train = TrainSpec { precision, sequence_length, global_batch: 4, ..proof_training() };
            gradient(&promise(EqualityClass::OtherOrder, &train, 3))
        };
        let more =
            |products, length| (of(products, length) - of(Products::Chained, length)) * f64::from(1u32 << 24) / 1.5;
        assert!((more(Products::Blocks16, 16) - 4.0).abs() < 1e-6);
        assert!((more(Products::Blocks8, 16) - 8.0).abs() < 1e-6);
        for length in [2048, 1 << 20] {
            assert!((more(Products::Blocks16, length) - 512.0).abs() < 1e-6, "a piece has 512 blocks");
        }
    }

    #[test]
    fn each_broken_part_is_named() {
        let train = proof_training();
        let (first, second) = (outcome(1.0, 1.0, 1.0), outcome(f32::NAN, 1.5, 2.0));
        let faults =
            |class: EqualityClass, distance: &Distance| promise(class, &train, 3).faults([&first, &second], distance);
        let same = Distance { same_bits: true, ..different() };
        assert_eq!(faults(EqualityClass::SameOrder, &same), [""; 0]);
        for class in [EqualityClass::SameOrder, EqualityClass::AnyOrder] {
            assert_eq!(faults(class, &different()), ["the bits differ"]);
        }
        let found = faults(EqualityClass::OtherSums, &different());
        let starts = [
            "the first gradient of layers.0.ffn.up.weight is inf away, and ",
            "the loss of step 1 is 5.0e-1 away, and ",
            "the root mean square of the weights is 1.0e0 away, and ",
        ];
        assert!(
            found.len() == 3 && found.iter().zip(starts).all(|(fault, start)| fault.starts_with(start)),
            "{found:?}"
        );
    }

    fn skipping(updates: [UpdateOutcome; 2]) -> Outcome {
        Outcome {
            scaling: updates.map(|update| Some(LossScalingReport { factor: 1.0, update, skipped_steps: 0 })).to_vec(),
            ..Outcome::default()
        }
    }

    /// From the step on that one run skips alone, the two have other updates.
    #[test]
    fn runs_that_skip_different_steps_are_compared_up_to_the_first_of_them() {
        let (updated, skipped) = (UpdateOutcome::Updated, UpdateOutcome::Skipped);
        let faults = |updates: [[UpdateOutcome; 2]; 2], losses: [f64; 2]| {
            let of = |updates, losses: [f64; 2]| Outcome {
                losses: losses.to_vec(),
                scaling: skipping(updates).scaling,
                ..outcome(losses[1] as f32, 1.0, losses[1] as f32)
            };
            let outcomes = [of(updates[0], [1.0, 1.0]), of(updates[1], losses)];
            let [a, b] = &outcomes;
            promise(EqualityClass::OtherSums, &proof_training(), 2).faults([a, b], &different())
        };
        // Gradients are of the first step in both, the second loss is computed before it overflows, and weights differ.
        let found = faults([[updated, updated], [updated, skipped]], [1.0, 2.0]);
        assert!(
            found.len() == 3 && found[0].starts_with("step 2 overflowed fp16 in one of the two alone"),
            "{found:?}"
        );
        assert!(found[1].starts_with("the first gradient") && found[2].starts_with("the loss of step 2"), "{found:?}");
        // The first updates are those of different steps.
        let found = faults([[updated, updated], [skipped, updated]], [1.0, 2.0]);
        assert!(found.len() == 1 && found[0].starts_with("step 1 overflowed fp16"), "{found:?}");
        assert_eq!(faults([[skipped, updated]; 2], [1.0, 2.0]).len(), 3);
    }

    #[test]
    fn runs_that_skip_every_step_show_nothing() {
        let (updated, skipped) = (UpdateOutcome::Updated, UpdateOutcome::Skipped);
        let same = Distance { same_bits: true, ..different() };
        let faults = |updates| {
            let outcome = skipping(updates);
            promise(EqualityClass::SameOrder, &proof_training(), 2).faults([&outcome, &outcome], &same).len()
        };
        assert_eq!([faults([skipped, skipped]), faults([skipped, updated])], [1, 0]);
    }
}
