//! Choices of experts that rounding changes: a choice is a step function of logits, so no bound of smooth errors covers
//! one that differs. Derived in `docs/numerics.md`, "Choices".

use std::f64::consts::PI;

use config::{ExpertGroups, ExpertsSpec, ModelSpec, TrainSpec};

use crate::class::EqualityClass;
use crate::roundings::Roundings;

/// The most choices that may be expected to differ where values have bounds: with more, a difference is likelier than
/// none.
const MOST_EXPECTED: f64 = 0.5;
/// Roundings of the norm in front of a router.
const OF_NORM: f64 = 4.0;
/// Deviations of a normal number beyond which none of a router's logits is expected.
const FARTHEST: f64 = 8.0;
/// Steps of the integral over a deviation.
const STEPS: i32 = 64;

/// Choices of experts that are expected to differ between two runs, by the step from which on they do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choices {
    /// In the forward pass of the first step.
    pub first: f64,
    /// In all steps.
    pub all: f64,
    /// Choices of a run: one for each token, layer with experts and step.
    pub made: f64,
}

impl Choices {
    /// The choices that are expected to differ between two runs of `class` that train `model` for `steps` steps;
    /// `None` for a model without experts and for runs that promise the same bits, or nothing.
    pub fn of(class: EqualityClass, model: &ModelSpec, train: &TrainSpec, steps: u32) -> Option<Choices> {
        let experts = model.experts.as_ref()?;
        let of_step = (train.global_batch * train.sequence_length * model.num_expert_layers()) as f64;
        let stored = train.precision.stored();
        let roundings = Roundings::of_other_sums(model, train, stored);
        let logit = 0.6 * stored.unit_roundoff() * (roundings.stream + OF_NORM).sqrt();
        let differing = of_step * chance(experts) * logit;
        // Where sums over sequences alone differ, the first step has the same logits. From the first update on weights
        // differ, and the roundings of everything that reads them.
        let first = match class {
            EqualityClass::SameOrder | EqualityClass::AnyOrder | EqualityClass::OtherDevice => return None,
            EqualityClass::OtherOrder => 0.0,
            EqualityClass::LibraryOrder | EqualityClass::OtherSums => differing,
        };
        let later = f64::from(steps.saturating_sub(1));
        Some(Choices { first, all: first + later * differing, made: f64::from(steps) * of_step })
    }

    /// Why no value of the first step has a bound; `None` where all may have one.
    pub fn without_bounds(&self) -> Option<String> {
        (self.first > MOST_EXPECTED).then(|| {
            format!(
                "of {:.0} choices of experts {:.1} are expected to differ by rounding in the first step, and gradients \
                 with them; compare layouts that split no sum of a layer, or use train.precision = \"fp32\"",
                self.made, self.first
            )
        })
    }

    /// Why losses and weights have no bound after all steps; `None` where they may have one.
    pub fn left_out(&self) -> Option<String> {
        (self.all > MOST_EXPECTED).then(|| {
            format!(
                "of {:.0} choices of experts {:.1} are expected to differ by rounding, and losses and weights with \
                 them; prove fewer steps",
                self.made, self.all
            )
        })
    }

    /// Why a distance beyond a bound need not be a fault; `None` where no choice can differ.
    pub fn narrow(&self) -> Option<String> {
        (self.all > 0.0).then(|| {
            format!(
                "of {:.0} choices of experts {:.1e} are expected to differ by rounding, and two runs in which one does \
                 may exceed a bound without a fault",
                self.made, self.all
            )
        })
    }
}

/// The probability that a token chooses otherwise where its logits are a relative `e` apart, over e.
///
/// Logits of a token are independent normal numbers. Two that are next to each other change places where the difference
/// of their errors, which has the deviation sqrt(2) e, is larger than their distance. The mean of its positive part is
/// e / sqrt(pi), so the probability is that times the density at 0 of the distance between the last that is chosen and
/// the first that is not.
fn chance(experts: &ExpertsSpec) -> f64 {
    let ExpertsSpec { number, per_token, routing, .. } = experts;
    let among = |number: usize, chosen: usize, of_group: usize| density(number, chosen, of_group) / PI.sqrt();
    match routing.groups {
        None => among(*number, *per_token, 1),
        Some(ExpertGroups { number: groups, kept }) => {
            let of_group = number / groups.max(1);
            among(kept * of_group, *per_token, 1) + among(groups, kept, of_group)
        }
    }
}

/// The density at 0 of the distance between numbers `chosen` and `chosen + 1` in descending order of `number`
/// independent ones, each the largest of `of_group` normal numbers; 0 where all are chosen.
///
/// With the density p and the probability P of one of them it is n! / ((k - 1)! (n - k - 1)!) times the integral of p^2
/// (1 - P)^(k - 1) P^(n - k - 1), the joint density of two neighbours in order at one place (H. A. David, Order
/// Statistics, 2.2.1).
fn density(number: usize, chosen: usize, of_group: usize) -> f64 {
    if chosen == 0 || chosen >= number {
        return 0.0;
    }
    let step = 1.0 / f64::from(STEPS);
    let (mut below, mut integral) = (0.0f64, 0.0);
    for index in -(FARTHEST as i32) * STEPS..FARTHEST as i32 * STEPS {
        let normal = |at: f64| (-0.5 * at * at).exp() / (2.0 * PI).sqrt();
        let at = (f64::from(index) + 0.5) * step;
        let half = 0.5 * step * normal(at);
        let (probability, members) = ((below + half).min(1.0), of_group as i32);
        let largest = members as f64 * probability.powi(members - 1) * normal(at);
        let within = probability.powi(members);
        let (above, under) = ((1.0 - within).ln() * (chosen - 1) as f64, within.ln() * (number - chosen - 1) as f64);
        let logarithm = ln_factor(number, chosen) + power(above, chosen - 1) + power(under, number - chosen - 1);
        integral += step * largest * largest * logarithm.exp();
        below += 2.0 * half;
    }
    integral
}

/// `logarithm`, or that of 1 for the power 0 of anything.
fn power(logarithm: f64, exponent: usize) -> f64 {
    if exponent == 0 { 0.0 } else { logarithm }
}

/// The logarithm of n! / ((k - 1)! (n - k - 1)!).
fn ln_factor(number: usize, chosen: usize) -> f64 {
    let ln_factorial = |of: usize| (1..=of).map(|factor| (factor as f64).ln()).sum::<f64>();
    ln_factorial(number) - ln_factorial(chosen - 1) - ln_factorial(number - chosen - 1)
}

#[cfg(test)]
mod tests {
    use config::{Balance, Precision, Products, RouterScores, RouterWeights, Routing};
    use philox::philox4x32_10;
    use testkit::models::{Style, proof_model, proof_training};

    use super::*;

    const NORMALISED: Routing =
        Routing { scores: RouterScores::Softmax, weights: RouterWeights::Normalised, scale: 1.0, groups: None };

    fn experts(number: usize, per_token: usize, groups: Option<ExpertGroups>) -> ExpertsSpec {
        let routing = Routing { groups, ..NORMALISED };
        let balance = Balance::NONE;
        ExpertsSpec { number, per_token, hidden: 32, shared: None, first_layer: 0, layer_interval: 1, routing, balance }
    }

    fn model(spec: ExpertsSpec) -> ModelSpec {
        ModelSpec { num_layers: 4, experts: Some(spec), ..proof_model(Style::Llama, 12, false) }
    }

    /// Two normal numbers are a distance of density 1 / sqrt(pi) apart at 0, so one of them wins otherwise with the
    /// probability e / pi: the angle between the runs over half a turn. Of three, the first and the second are twice a
    /// third of 3! / 2 times as near.
    #[test]
    fn the_density_is_that_of_neighbours_in_order() {
        assert!((density(2, 1, 1) - 1.0 / PI.sqrt()).abs() < 1e-6);
        assert!((chance(&experts(2, 1, None)) - 1.0 / PI).abs() < 1e-6);
        assert!((density(3, 1, 1) - 1.5 / PI.sqrt()).abs() < 1e-6);
        assert_eq!([density(4, 4, 1), density(4, 0, 1)], [0.0; 2]);
        // Of two groups, of which a token uses all experts of one, the better group is that of the larger of two
        // maxima.
        let of_groups = chance(&experts(4, 2, Some(ExpertGroups { number: 2, kept: 1 })));
        assert!((of_groups - density(2, 1, 2) / PI.sqrt()).abs() < 1e-12);
        // Maxima are nearer to each other than the numbers that they are of.
        assert!(density(2, 1, 2) > density(2, 1, 1));
    }

    /// Tokens whose logits are sums of twelve uniform numbers, so normal ones of deviation 1.
    #[test]
    fn drawn_tokens_choose_otherwise_as_often_as_expected() {
        const ERROR: f64 = 0.02;
        const TOKENS: u32 = 20_000;
        let normal = |token: u32, expert: usize, run: u32| -> f64 {
            let words = (0..3).flat_map(|part| philox4x32_10([token, expert as u32, run, part], [5, 0]));
            words.map(|word| f64::from(word) / 4_294_967_296.0).sum::<f64>() - 6.0
        };
        let best = |logits: &[f64], per_token: usize| -> Vec<usize> {
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
            order.truncate(per_token);
            order.sort_unstable();
            order
        };
        for (number, per_token) in [(8, 2), (8, 7), (16, 4)] {
            let is_other = |token: &u32| {
                let first: Vec<f64> = (0..number).map(|expert| normal(*token, expert, 0)).collect();
                let second: Vec<f64> =
                    first.iter().enumerate().map(|(expert, logit)| logit + ERROR * normal(*token, expert, 1)).collect();
                best(&first, per_token) != best(&second, per_token)
            };
            let differing = (0..TOKENS).filter(is_other).count() as f64;
            let expected = f64::from(TOKENS) * chance(&experts(number, per_token, None)) * ERROR;
            // Errors of 0.02 exchange more than neighbours, and a draw has its own deviation: a tenth, and 4
            // deviations.
            let allowed = 0.1 * expected + 4.0 * expected.sqrt();
            assert!((differing - expected).abs() < allowed, "{per_token} of {number}: {differing}, not {expected:.0}");
        }
    }

    #[test]
    fn narrow_values_leave_no_bound_where_sums_are_split_and_that_of_gradients_where_their_order_differs() {
        let model = model(experts(8, 2, None));
        let of = |class, precision, steps| {
            let train = config::TrainSpec { global_batch: 8, precision, ..proof_training() };
            let choices = Choices::of(class, &model, &train, steps)?;
            Some([choices.without_bounds(), choices.left_out(), choices.narrow()].map(|reason| reason.is_some()))
        };
        let (single, narrow) = (Precision::Fp32(Products::Chained), Precision::Bf16(Products::Chained));
        let [same, order, sums] = [EqualityClass::SameOrder, EqualityClass::OtherOrder, EqualityClass::OtherSums];
        assert_eq!([of(same, narrow, 3), of(EqualityClass::OtherDevice, narrow, 3)], [None, None]);
        assert_eq!(of(sums, single, 3), Some([false, false, true]));
        assert_eq!(of(sums, narrow, 1), Some([true, true, true]));
        assert_eq!(of(order, narrow, 1), Some([false, false, false]));
        assert_eq!(of(order, narrow, 3), Some([false, true, true]));
        let dense = ModelSpec { experts: None, ..model.clone() };
        assert_eq!(Choices::of(sums, &dense, &proof_training(), 3), None);
    }
}
