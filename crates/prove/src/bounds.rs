//! How far two runs may be apart, from the count of roundings; derived in `docs/numerics.md`.

use std::f64::consts::PI;

use config::{Format, ModelSpec, Optimizer, Products, TrainSpec, Unit, all_params};

use crate::class::EqualityClass;
use crate::parameter_kind::ParameterKind;
use crate::roundings::Roundings;
use crate::widths::without_bounds;

/// Steps over which the bounds of losses and weights are derived and measured.
pub const BOUNDED_STEPS: u32 = 20;
/// The largest product of the sum of all rates and the root of the width over which they are. Maps whose elements move
/// by R change an input of mean square 1 by R sqrt(D): beyond a half the model is no longer the one whose roundings are
/// counted.
const BOUNDED_MOVE: f64 = 0.5;
/// The largest sum of all rates over the initial standard deviation. A map whose elements have moved by twice their
/// initial size is another one, too, and of several such layers each multiplies what the one before it makes of a
/// difference.
const BOUNDED_GROWTH: f64 = 2.0;

/// Why losses and weights of two runs have no bound after `steps` steps; `None` where they have.
pub fn left_out(model: &ModelSpec, train: &TrainSpec, steps: u32) -> Option<String> {
    let rates = sum_of_rates(train, steps);
    let of_inputs = BOUNDED_MOVE / (model.hidden.max(1) as f64).sqrt();
    let limit = of_inputs.min(BOUNDED_GROWTH * f64::from(model.init_std));
    if let Optimizer::Muon(_) = train.optimizer {
        let gradients = "gradients of the first step have bounds";
        Some(format!("updates of train.optimizer = \"muon\" amplify differences of small singular values; {gradients}"))
    } else if steps > BOUNDED_STEPS {
        Some(format!("{steps} steps are more than the {BOUNDED_STEPS} over which losses and weights have a bound"))
    } else if rates > limit {
        Some(format!(
            "the learning rates of these steps add up to {rates:.2e}, and losses and weights have a bound up to {limit:.2e} \
             with model.hidden = {} and model.init_std = {}; prove fewer steps, or use a lower train.learning_rate",
            model.hidden, model.init_std
        ))
    } else {
        None
    }
}

/// Sum of the rates of all steps, with the largest factor of any parameter.
fn sum_of_rates(train: &TrainSpec, steps: u32) -> f64 {
    let factors = train.groups.iter().map(|group| f64::from(group.learning_rate_scale));
    let factor = factors.fold(1.0, f64::max);
    factor * (0..steps).map(|step| f64::from(train.learning_rate_at(step))).sum::<f64>()
}

/// The largest distances that rounding alone makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// Of a tensor of the first gradient, relative to its size, by kind in the order of [`ParameterKind::ALL`].
    pub gradients: [f64; ParameterKind::ALL.len()],
    /// Of losses.
    pub loss: LossBound,
    /// Root mean square difference of a weight after the last step.
    pub weight: f64,
    /// Weights whose first gradient is below this share of the size that its errors are relative to are left out of
    /// that difference: rounding may give AdamW's first step of them the other sign.
    pub least_gradient: f64,
}

/// How far the losses of a step may be apart, relative to the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossBound {
    /// Share that roundings of the forward pass make.
    forward: f64,
    /// Share that the distance of the weights makes, for a gradient of norm 1.
    moved: f64,
}

impl LossBound {
    /// That of `step`, counted from 0, whose gradient has this norm before clipping. The first step's weights are the
    /// same.
    pub fn of_step(&self, step: usize, norm: f64) -> f64 {
        if step == 0 { self.forward } else { self.forward + self.moved * norm }
    }
}

impl Bounds {
    /// Those of two runs of `class` that train `model` for `steps` steps of `train`; `None` where nothing is promised,
    /// or [`without_bounds`] says why.
    pub fn of(class: EqualityClass, model: &ModelSpec, train: &TrainSpec, steps: u32) -> Option<Bounds> {
        let run = Run { model, train, steps, stored: train.precision.stored() };
        match class {
            EqualityClass::OtherDevice => None,
            EqualityClass::SameOrder | EqualityClass::AnyOrder | EqualityClass::OtherOrder => Some(run.other_order()),
            EqualityClass::LibraryOrder | EqualityClass::OtherSums => {
                without_bounds(model).is_none().then(|| run.other_sums())
            }
        }
    }

    /// That of gradients of `kind`.
    pub fn gradient(&self, kind: ParameterKind) -> f64 {
        let index = ParameterKind::ALL.iter().position(|other| *other == kind);
        index.map_or(f64::INFINITY, |index| self.gradients[index])
    }
}

/// Roundoff of single precision.
const SINGLE: f64 = 1.0 / 16_777_216.0;

/// Root mean square distance of two runs with N roundings each: sqrt(2 x 0.18) u sqrt(N).
fn distance(roundings: f64, roundoff: f64) -> f64 {
    0.6 * roundoff * roundings.sqrt()
}

/// By how much root mean square weights of one pair of runs in 100,000 exceed the count's.
const WEIGHT_FACTOR: f64 = 1.5;
/// The same for losses, whose error is one normal number: from logits, and from weights, whose distance is a bound
/// already.
const LOGITS_FACTOR: f64 = 4.4;
const MOVED_FACTOR: f64 = 3.0;
/// The share of [`Bounds::least_gradient`] where gradients are known far more precisely.
const LEAST_GRADIENT: f64 = 1.0 / 256.0;
/// Root mean square errors that are between zero and such a gradient at least.
const LEAST_ERRORS: f64 = 8.0;
/// Jumps of all weights together relative to those of one layer's inputs: later layers have none.
const JUMP_OF_ALL: f64 = 0.5;
/// How often more jumps than a bound counts are accepted to happen.
const JUMP_PROBABILITY: f64 = 1e-5;

struct Run<'a> {
    model: &'a ModelSpec,
    train: &'a TrainSpec,
    steps: u32,
    stored: Format,
}

impl Run<'_> {
    fn tokens(&self) -> usize {
        self.train.global_batch * self.train.sequence_length
    }

    /// Activations of the first step are the same bits, and gradients of parameters are summed in single precision.
    fn other_order(&self) -> Bounds {
        let first = Roundings::of_other_order(self.tokens());
        let cut_off = self.cut_off();
        let gradient =
            |kind: ParameterKind| kind.probability_factor() * distance(first.of_kind(kind), SINGLE) + cut_off;
        let first_error = distance(first.matrix, SINGLE);
        let later = Roundings::of_other_sums(self.model, self.train, self.stored);
        // After an update weights differ, and narrow copies of some do: from there on other roundings are made
        // everywhere.
        let error = match (self.stored, self.steps) {
            (_, 0 | 1) => first_error,
            (Format::Fp32, _) => first_error.hypot(JUMP_OF_ALL * self.jump(&later)),
            (Format::Bf16 | Format::Fp16, _) => {
                distance(later.matrix, self.stored.unit_roundoff()).hypot(JUMP_OF_ALL * self.jump(&later))
            }
        };
        let of_logits = match self.stored {
            Format::Fp32 => 0.0,
            Format::Bf16 | Format::Fp16 => distance(later.stream + 2.0, self.stored.unit_roundoff()),
        };
        self.bounds(ParameterKind::ALL.map(gradient), of_logits, error + cut_off)
    }

    fn other_sums(&self) -> Bounds {
        let roundoff = self.stored.unit_roundoff();
        let roundings = Roundings::of_other_sums(self.model, self.train, self.stored);
        let jump = self.jump(&roundings);
        let gradient = |kind: ParameterKind| {
            let smooth = kind.probability_factor() * distance(roundings.of_kind(kind), roundoff) + self.cut_off();
            smooth.hypot(kind.jump_factor() * jump)
        };
        let error = distance(roundings.matrix, roundoff).hypot(JUMP_OF_ALL * jump);
        let of_logits = distance(roundings.stream + 2.0, roundoff);
        self.bounds(ParameterKind::ALL.map(gradient), of_logits, error + self.cut_off())
    }

    /// Those of gradients, logits a relative `of_logits` and gradients a relative `error` apart.
    fn bounds(&self, gradients: [f64; ParameterKind::ALL.len()], of_logits: f64, error: f64) -> Bounds {
        let least_gradient = if LEAST_ERRORS * error < LEAST_GRADIENT { LEAST_GRADIENT } else { 0.0 };
        // A single weight that moves the other way is one whose gradient is nearly 0: losses do not see it.
        let of_weights = self.weight(error, 0.0, self.flips(error));
        let weight = self.weight(error, least_gradient, most_jumps(self.flips(error)));
        Bounds { gradients, loss: self.loss(of_logits, of_weights), weight, least_gradient }
    }

    /// Losses of sums over tokens that are cut off, always toward zero: up to 1.5 last places of single precision for
    /// each block of tokens (`docs/numerics.md`, "Products in blocks").
    fn cut_off(&self) -> f64 {
        let Some(block) = self.train.precision.products().block() else { return 0.0 };
        1.5 * SINGLE * self.tokens().min(Products::PIECE).div_ceil(block) as f64
    }

    /// Distance of the gradients of an activation with a kink whose inputs are on different sides of it.
    ///
    /// Of a layer's inputs, normal numbers that are a relative e apart, a share e / pi has other signs. Half of the
    /// inputs have a gradient, of random sign and independent of the others, so n of them among all make sqrt(2 n /
    /// all).
    fn jump(&self, roundings: &Roundings) -> f64 {
        if !self.model.activation.has_kink() {
            return 0.0;
        }
        // Each later step of a single-precision run is another chance; in narrow ones an average of steps counts.
        let chances = match self.stored {
            Format::Fp32 => f64::from(self.steps.max(1)),
            Format::Bf16 | Format::Fp16 => 1.0,
        };
        let error = distance(roundings.input, self.stored.unit_roundoff());
        let layers = (0..self.model.num_layers as u32).map(Unit::Layer);
        let of_layer = |unit: Unit| {
            let inputs = (self.tokens() * self.model.ffn_hidden_of(unit)) as f64;
            let jumps = most_jumps(chances * inputs * error / PI);
            (2.0 * jumps / inputs).sqrt()
        };
        layers.chain([Unit::Head]).map(of_layer).fold(0.0, f64::max)
    }

    /// Mean number of weights that one step moves the other way, where gradients are a relative `error` apart.
    fn flips(&self, error: f64) -> f64 {
        self.parameters() as f64 * error / PI
    }

    /// Root mean square difference of weights whose gradients are a relative `error` apart, and at least `least` in the
    /// first step, of which a step moves `flips` the other way (`docs/numerics.md`, "Weights").
    fn weight(&self, error: f64, least: f64, flips: f64) -> f64 {
        let largest = 4.0 * flips / self.parameters().max(1) as f64;
        // Where gradients are clipped their root mean square has a bound, and AdamW's epsilon damps small elements.
        let damped = self.train.clip_norm.map(|clip| {
            let size = f64::from(clip) / (self.parameters().max(1) as f64).sqrt();
            0.27 * error * error * size / f64::from(self.train.epsilon)
        });
        let share = damped.map_or(largest, |damped| damped * largest / (damped + largest));
        let first = sum_of_rates(self.train, self.steps.min(1));
        let of_first = if least > 0.0 { 0.04 * error * error / least } else { share };
        let moved = (of_first * first * first + share * (self.rates() - first).powi(2)).sqrt();
        // A difference below a last place of the weight is rounded away, or up to a last place.
        let last_places = 0.7 * error * SINGLE * f64::from(self.model.init_std) * f64::from(self.steps.max(1));
        let smooth = WEIGHT_FACTOR * (moved * moved + last_places * self.rates()).sqrt();
        smooth.hypot(self.flips_of_norms(moved))
    }

    /// Weights of norms are near 1, and their last places of 2^-23 the largest ones: root mean square of those that
    /// differ in a last place, among all weights, where values are `moved` apart before they are rounded.
    fn flips_of_norms(&self, moved: f64) -> f64 {
        let is_norm = |name: &str| name.ends_with("norm.weight");
        let norms: usize = all_params(self.model).filter(|param| is_norm(&param.name)).map(|param| param.len()).sum();
        let flips = most_jumps(norms as f64 * 0.8 * moved / SINGLE).min(norms as f64);
        2.0 * SINGLE * (flips / self.parameters().max(1) as f64).sqrt()
    }

    fn rates(&self) -> f64 {
        sum_of_rates(self.train, self.steps)
    }

    fn parameters(&self) -> usize {
        all_params(self.model).map(|param| param.len()).sum()
    }

    /// Last places of the reported number; logits a relative `of_logits` apart, of random sign over the tokens; weights
    /// `of_weights` apart, along a gradient.
    fn loss(&self, of_logits: f64, of_weights: f64) -> LossBound {
        let logits = f64::from(self.model.init_std) * (self.model.hidden as f64).sqrt() + 30.0 * self.rates();
        let mean = of_logits * logits / (self.tokens().max(1) as f64).sqrt();
        let relative = 1.0 / (self.model.vocabulary.max(2) as f64).ln();
        LossBound {
            forward: 4.5 * SINGLE + LOGITS_FACTOR * relative * mean,
            moved: MOVED_FACTOR * relative * of_weights,
        }
    }
}

/// The least number that a Poisson variable of this mean exceeds with a probability below [`JUMP_PROBABILITY`].
fn most_jumps(mean: f64) -> f64 {
    // Far from zero it is normal.
    if mean > 500.0 {
        return mean + 4.3 * mean.sqrt();
    }
    let (mut number, mut term) = (0.0, (-mean).exp());
    let mut within = term;
    while 1.0 - within > JUMP_PROBABILITY {
        number += 1.0;
        term *= mean / number;
        within += term;
    }
    number
}

#[cfg(test)]
mod tests {
    use testkit::models::{Style, proof_model, proof_training};

    use super::*;

    /// Where they count, in elements with the smallest gradients, weights are left out; in later steps all are
    /// compared.
    #[test]
    fn the_bound_of_a_first_step_depends_on_neither_epsilon_nor_clipping() {
        let model = proof_model(Style::Gpt2, 12, true);
        let of = |epsilon, clip_norm, steps| {
            let train = TrainSpec { epsilon, clip_norm, ..proof_training() };
            Bounds::of(EqualityClass::OtherSums, &model, &train, steps).expect("bounds").weight
        };
        assert_eq!(of(1e-8, Some(1.0), 1), of(1e-5, None, 1));
        let [small, large, unclipped] = [(1e-8, Some(1.0)), (1e-5, Some(1.0)), (1e-8, None)].map(|(a, b)| of(a, b, 2));
        assert!(large < small && small < unclipped, "{large:.1e} {small:.1e} {unclipped:.1e}");
    }

    #[test]
    fn jumps_are_counted_as_poisson_has_them() {
        // P(X > 0) = 1e-6, P(X > 1) = 5e-7, P(X > 1) = 1.2e-5, and of 1,000 the quantile is 4.3 deviations away.
        assert_eq!([1e-6, 1e-3, 5e-3].map(most_jumps), [0.0, 1.0, 2.0]);
        assert_eq!(most_jumps(1.0), 8.0);
        assert!((most_jumps(499.0) - most_jumps(501.0)).abs() < 8.0, "{} {}", most_jumps(499.0), most_jumps(501.0));
    }
}
