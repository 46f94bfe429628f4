//! How far two runs may be apart, from the count of roundings; derived in `docs/numerics.md`.

use std::f64::consts::PI;

use config::{Blocks, Format, ModelSpec, TrainSpec, Unit, all_params};

use crate::choices::Choices;
use crate::class::EqualityClass;
use crate::initial::Initial;
use crate::jumps::most_jumps;
use crate::kinks::Kinks;
use crate::loss_bound::{LossBound, StepLoss};
use crate::outweighing::spread_of_gradients;
use crate::parameter_kind::ParameterKind;
use crate::roundings::Roundings;
use crate::unbounded::{BOUNDED_STEPS, sum_of_rates};
use crate::valid_tokens::ValidTokens;
use crate::widths::without_bounds;

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

impl Bounds {
    /// The bounds of two runs of `class` that train `model` for as many steps of `train` as `valid` has; `None` where
    /// nothing is promised, or [`without_bounds`] or [`Choices::without_bounds`] says why.
    pub fn of(class: EqualityClass, model: &ModelSpec, train: &TrainSpec, valid: &ValidTokens) -> Option<Bounds> {
        let run = Run { model, train, valid, steps: valid.steps(), stored: train.precision.stored() };
        match class {
            EqualityClass::OtherDevice => None,
            EqualityClass::SameOrder | EqualityClass::AnyOrder | EqualityClass::OtherOrder => Some(run.other_order()),
            EqualityClass::LibraryOrder | EqualityClass::OtherSums => {
                let choices = Choices::of(class, model, train, run.steps);
                let reason = without_bounds(model).or_else(|| choices.and_then(|choices| choices.without_bounds()));
                reason.is_none().then(|| run.other_sums())
            }
        }
    }

    /// The bound of gradients of `kind`.
    pub fn gradient(&self, kind: ParameterKind) -> f64 {
        let index = ParameterKind::ALL.iter().position(|other| *other == kind);
        index.map_or(f64::INFINITY, |index| self.gradients[index])
    }
}

/// Roundoff of single precision.
pub(crate) const SINGLE: f64 = 1.0 / 16_777_216.0;

/// Root mean square distance of two runs with N roundings each: sqrt(2 x 0.18) u sqrt(N).
fn distance(roundings: f64, roundoff: f64) -> f64 {
    0.6 * roundoff * roundings.sqrt()
}

/// The factor by which root mean square weights of one pair of runs in 100,000 exceed the count's.
const WEIGHT_FACTOR: f64 = 1.5;
/// The share of [`Bounds::least_gradient`] where gradients are known far more precisely.
const LEAST_GRADIENT: f64 = 1.0 / 256.0;
/// Root mean square errors that are between zero and such a gradient at least.
const LEAST_ERRORS: f64 = 8.0;
/// Jumps of all weights together relative to those of one layer's inputs: later layers have none.
const JUMP_OF_ALL: f64 = 0.5;
/// The share of pairs of runs in which a bound is exceeded by chance.
const CHANCE: f64 = 1e-5;
/// Deviations of a root mean square of n elements, times sqrt(2 n), that are exceeded by that chance.
const DEVIATIONS: f64 = 4.3;
/// Tokens whose errors the factors of probability cover.
const COVERED_TOKENS: f64 = 45.0;

struct Run<'a> {
    model: &'a ModelSpec,
    train: &'a TrainSpec,
    valid: &'a ValidTokens,
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
        let few = self.few_tokens(self.counted_tokens());
        let gradient =
            |kind: ParameterKind| few * kind.probability_factor() * distance(first.of_kind(kind), SINGLE) + cut_off;
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
        let of_logits = distance(later.stream + 2.0, self.stored.unit_roundoff());
        self.bounds(ParameterKind::ALL.map(gradient), [0.0, of_logits], error + cut_off)
    }

    fn other_sums(&self) -> Bounds {
        let roundoff = self.stored.unit_roundoff();
        let roundings = Roundings::of_other_sums(self.model, self.train, self.stored);
        let kinks = self.kinks(&roundings);
        let (few, all) = (self.few_tokens(self.outweighing(&roundings)), self.few_tokens(self.counted_tokens()));
        let gradient = |kind: ParameterKind| {
            // The output matrix's gradient is computed before that of any block.
            let few = if kind == ParameterKind::Output { all } else { few };
            let smooth = few * kind.probability_factor() * distance(roundings.of_kind(kind), roundoff) + self.cut_off();
            smooth.hypot(kinks.as_ref().map_or(0.0, |kinks| kinks.distance(kind, CHANCE)))
        };
        let error = distance(roundings.matrix, roundoff).hypot(JUMP_OF_ALL * self.jump(&roundings));
        let of_logits = distance(roundings.stream + 2.0, roundoff);
        self.bounds(ParameterKind::ALL.map(gradient), [of_logits; 2], error + self.cut_off())
    }

    /// The bounds that follow from those of `gradients`, from logits a relative `of_logits` apart in the first step and
    /// in later ones, and from gradients a relative `error`.
    fn bounds(&self, gradients: [f64; ParameterKind::ALL.len()], of_logits: [f64; 2], error: f64) -> Bounds {
        let least_gradient = if LEAST_ERRORS * error < LEAST_GRADIENT { LEAST_GRADIENT } else { 0.0 };
        let weight = self.weight(error, least_gradient, most_jumps(self.flips(error), CHANCE));
        Bounds { gradients, loss: self.loss(of_logits, error), weight, least_gradient }
    }

    /// The factor by which the error of a gradient varies more where few `tokens` count: those of one token share what
    /// it read.
    fn few_tokens(&self, tokens: f64) -> f64 {
        let spread = |tokens: f64| 1.0 + DEVIATIONS / (2.0 * tokens).sqrt();
        (spread(tokens) / spread(COVERED_TOKENS)).max(1.0)
    }

    /// Tokens that outweigh the others where norms after blocks divide their gradients by different lengths; all that
    /// are counted where no norms do.
    fn outweighing(&self, roundings: &Roundings) -> f64 {
        let (tokens, places) = (self.valid.first(), self.train.sequence_length);
        let spread = spread_of_gradients(self.model, &roundings.kinked, tokens, places);
        self.counted_tokens().min(tokens / spread)
    }

    /// Tokens of the first gradient that have one of about the same size. Where a norm follows a block that has none
    /// before it, one place of a sequence outweighs the others.
    fn counted_tokens(&self) -> f64 {
        let counted = match self.model.blocks {
            Blocks::PostNorm => self.valid.first() / self.train.sequence_length.max(1) as f64,
            Blocks::Sequential | Blocks::Parallel | Blocks::Sandwich | Blocks::DeepNorm { .. } => self.valid.first(),
        };
        counted.max(1.0)
    }

    /// Losses of sums over tokens that are cut off, always toward zero: up to 1.5 last places of single precision for
    /// each block of tokens (`docs/numerics.md`, "Products in blocks").
    fn cut_off(&self) -> f64 {
        let Some(blocks) = self.train.precision.products().blocks_over(self.tokens()) else { return 0.0 };
        1.5 * SINGLE * blocks as f64
    }

    /// Jumps of first gradients.
    fn kinks<'r>(&'r self, roundings: &'r Roundings) -> Option<Kinks<'r>> {
        let counted = (self.counted_tokens(), self.train.sequence_length);
        let of_rounding = distance(1.0, self.stored.unit_roundoff());
        self.model.activation.has_kink().then(|| Kinks::of(self.model, &roundings.kinked, counted, of_rounding))
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
            // Of a block of experts those that a token goes through.
            let width = match self.model.experts_of(unit) {
                None => self.model.ffn_hidden_of(unit),
                Some(experts) => experts.per_token * experts.hidden,
            };
            let inputs = self.counted_tokens() * width as f64;
            let jumps = most_jumps(chances * inputs * error / PI, CHANCE);
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
        let share = self.share(error, flips);
        let first = sum_of_rates(self.train, self.steps.min(1));
        let of_first = if least > 0.0 { 0.04 * error * error / least } else { share };
        let moved = (of_first * first * first + share * (self.rates() - first).powi(2)).sqrt();
        // A difference below a last place of the weight is rounded away, or up to a last place.
        let last_places = 0.7 * error * SINGLE * f64::from(self.model.init_std) * f64::from(self.steps.max(1));
        let smooth = WEIGHT_FACTOR * (moved * moved + last_places * self.rates()).sqrt();
        smooth.hypot(self.flips_of_norms(moved))
    }

    /// Mean square difference of a weight after one update, in units of the rate: that of elements that are damped by
    /// AdamW's epsilon, or of `flips` of them that move the other way, whichever is less.
    fn share(&self, error: f64, flips: f64) -> f64 {
        let largest = 4.0 * flips / self.parameters().max(1) as f64;
        // Where gradients are clipped their root mean square has a bound.
        let damped = self.clipped().map(|size| 0.27 * error * error * size / f64::from(self.train.epsilon));
        damped.map_or(largest, |damped| damped * largest / (damped + largest))
    }

    /// Root mean square of an element of a clipped gradient.
    fn clipped(&self) -> Option<f64> {
        self.train.clip_norm.map(|clip| f64::from(clip) / (self.parameters().max(1) as f64).sqrt())
    }

    /// Weights of norms are near 1, and their last places of 2^-23 the largest ones: root mean square of those that
    /// differ in a last place, among all weights, where values are `moved` apart before they are rounded.
    fn flips_of_norms(&self, moved: f64) -> f64 {
        let is_norm = |name: &str| name.ends_with("norm.weight");
        let norms: usize = all_params(self.model).filter(|param| is_norm(&param.name)).map(|param| param.len()).sum();
        let flips = most_jumps(norms as f64 * 0.8 * moved / SINGLE, CHANCE).min(norms as f64);
        2.0 * SINGLE * (flips / self.parameters().max(1) as f64).sqrt()
    }

    fn rates(&self) -> f64 {
        sum_of_rates(self.train, self.steps)
    }

    fn parameters(&self) -> usize {
        all_params(self.model).map(|param| param.len()).sum()
    }

    /// Losses of runs whose logits are a relative `of_logits` apart, in the first step and in later ones, and whose
    /// gradients a relative `error` (`docs/numerics.md`, "Losses").
    fn loss(&self, of_logits: [f64; 2], error: f64) -> LossBound {
        let steps = self.steps.clamp(1, BOUNDED_STEPS);
        let chance = CHANCE / f64::from(steps);
        let hidden = self.model.hidden as f64;
        let head = Initial::of(self.model, self.train.sequence_length).head.sqrt();
        let share = self.share(error, self.flips(error)) * self.crowding(error, chance);
        let of_step = |step: u32| {
            let rates = sum_of_rates(self.train, step);
            let of_step = of_logits[usize::from(step > 0)];
            let size = head * (f64::from(self.model.init_std) * hidden.sqrt() + (2.0 / PI).sqrt() * hidden * rates);
            let last_places = 0.7 * error * SINGLE * f64::from(self.model.init_std) * f64::from(step) * rates;
            let moved = WEIGHT_FACTOR * share.sqrt() * rates;
            StepLoss {
                logits: of_step * size / self.valid.of_step(step).sqrt(),
                moved: (moved * moved + last_places).sqrt().hypot(self.flips_of_norms(moved)),
            }
        };
        LossBound::new((0..steps).map(of_step).collect(), chance)
    }

    /// The most by which the weights next to a gradient of 0 exceed their mean. They carry a difference of weights, and
    /// where a step has one of them on average in many runs, a loss sees that single one.
    fn crowding(&self, error: f64, chance: f64) -> f64 {
        let near = error + self.clipped().map_or(0.0, |size| f64::from(self.train.epsilon) / size);
        let mean = (2.0 / PI).sqrt() * self.parameters() as f64 * near;
        (most_jumps(mean, chance) / mean).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use config::{Precision, Products};
    use testkit::models::{Style, proof_model, proof_training};

    use super::*;

    /// Where they count, in elements with the smallest gradients, weights are left out; in later steps all are
    /// compared.
    #[test]
    fn the_bound_of_a_first_step_depends_on_neither_epsilon_nor_clipping() {
        let model = proof_model(Style::Gpt2, 12, true);
        let of = |epsilon, clip_norm, steps| {
            let train = TrainSpec { epsilon, clip_norm, ..proof_training() };
            let valid = ValidTokens::all(&train, steps);
            Bounds::of(EqualityClass::OtherSums, &model, &train, &valid).expect("bounds").weight
        };
        assert_eq!(of(1e-8, Some(1.0), 1), of(1e-5, None, 1));
        let [small, large, unclipped] = [(1e-8, Some(1.0)), (1e-5, Some(1.0)), (1e-8, None)].map(|(a, b)| of(a, b, 2));
        assert!(large < small && small < unclipped, "{large:.1e} {small:.1e} {unclipped:.1e}");
    }

    /// Where norms follow blocks, fewer tokens outweigh the others, in gradients that pass blocks.
    #[test]
    fn few_tokens_widen_bounds_more_where_norms_follow_blocks() {
        let wider = |blocks, kind| {
            let of = |global_batch| {
                let model = ModelSpec { blocks, hidden: 32, ..proof_model(Style::Gpt2, 4, true) };
                let precision = Precision::Bf16(Products::Chained);
                let train = TrainSpec { global_batch, sequence_length: 8, precision, ..proof_training() };
                let valid = ValidTokens::all(&train, 1);
                Bounds::of(EqualityClass::OtherSums, &model, &train, &valid).expect("bounds").gradient(kind)
            };
            of(4) / of(400)
        };
        let few = (1.0 + DEVIATIONS / 64f64.sqrt()) / (1.0 + DEVIATIONS / (2.0 * COVERED_TOKENS).sqrt());
        let table = wider(Blocks::Sequential, ParameterKind::Table);
        assert!((table / few - 1.0).abs() < 1e-9, "{table} {few}");
        for blocks in [Blocks::Sandwich, Blocks::PostNorm] {
            let table = wider(blocks, ParameterKind::Table);
            assert!(table > 1.1 * few, "{table} {few}");
            assert!(wider(blocks, ParameterKind::Output) < table);
        }
    }
}
