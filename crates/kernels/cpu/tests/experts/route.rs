//! Choices by their definition, and weights within the bounds of their roundings.

use config::{ExpertGroups, RouterScores, RouterWeights, Routing};
use cpu::experts::Route;
use cpu::instruction_set::InstructionSet;
use cpu::lanes::run;
use cpu::view::{MatMut, MatRef};

use crate::kernels::support::{ROUNDING, random};

pub const PLAIN: Routing =
    Routing { scores: RouterScores::Softmax, weights: RouterWeights::Normalised, scale: 1.0, groups: None };

/// Every kind of scores and weights.
pub fn rules() -> impl Iterator<Item = Routing> {
    RouterScores::ALL.into_iter().flat_map(|scores| {
        RouterWeights::ALL.into_iter().map(move |weights| Routing { scores, weights, scale: 2.5, groups: None })
    })
}

/// `[T,E]` logits, a correction, and the rule.
pub struct Case {
    pub logits: Vec<f32>,
    pub experts: usize,
    pub per_token: usize,
    pub correction: Option<Vec<f32>>,
    pub routing: Routing,
}

impl Case {
    pub fn new(tokens: usize, experts: usize, per_token: usize, routing: Routing) -> Case {
        let logits = random(&format!("{experts} {per_token}"), tokens * experts, 4.0);
        Case { logits, experts, per_token, correction: None, routing }
    }

    fn tokens(&self) -> usize {
        self.logits.len() / self.experts
    }

    fn run(&self, set: InstructionSet) -> (Vec<i32>, Vec<f32>) {
        let (tokens, slots) = (self.tokens(), self.tokens() * self.per_token);
        let (mut choice, mut weights) = (vec![-7; slots], vec![f32::NAN; slots]);
        let logits = MatRef::dense(&self.logits, tokens, self.experts);
        let correction = self.correction.as_deref();
        let to = MatMut::dense(&mut weights, tokens, self.per_token);
        run(set, Route { logits, correction, routing: self.routing, choice: &mut choice, weights: to });
        (choice, weights)
    }

    /// Choice and weights, of the same bits on all instruction sets.
    pub fn routed(&self) -> (Vec<i32>, Vec<f32>) {
        let expected = self.run(InstructionSet::Scalar);
        for set in InstructionSet::available() {
            let (choice, weights) = self.run(set);
            assert_eq!(choice, expected.0, "{set:?}");
            assert!(weights.iter().zip(&expected.1).all(|(a, b)| a.to_bits() == b.to_bits()), "{set:?}");
        }
        expected
    }

    fn logits(&self, token: usize) -> &[f32] {
        &self.logits[token * self.experts..(token + 1) * self.experts]
    }
}

/// Scores of a token in f64.
pub fn scores(kind: RouterScores, logits: &[f64]) -> Vec<f64> {
    match kind {
        RouterScores::Softmax => {
            let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|z| (z - max).exp()).sum();
            logits.iter().map(|z| (z - max).exp() / sum).collect()
        }
        RouterScores::Sigmoid => logits.iter().map(|z| 1.0 / (1.0 + (-z).exp())).collect(),
    }
}

/// Weights of the chosen experts in f64.
pub fn weights(routing: Routing, logits: &[f64], choice: &[usize]) -> Vec<f64> {
    let scores = scores(routing.scores, logits);
    let sum = match routing.weights {
        RouterWeights::Scores => 1.0,
        RouterWeights::Normalised => choice.iter().map(|expert| scores[*expert]).sum(),
    };
    choice.iter().map(|expert| f64::from(routing.scale) * scores[*expert] / sum).collect()
}

/// Numbers of the `most` best, ascending: by value, then the lower one first.
fn best(values: &[f64], most: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    order.truncate(most);
    order.sort_unstable();
    order
}

/// Choice scores: minus infinity where a group is removed.
fn masked(routing: Routing, mut compared: Vec<f64>) -> Vec<f64> {
    let Some(ExpertGroups { number, kept }) = routing.groups else { return compared };
    let size = compared.len() / number;
    let of_group = |group: &[f64]| {
        let mut sorted = group.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        match routing.scores {
            RouterScores::Softmax => sorted[0],
            RouterScores::Sigmoid => sorted.iter().take(2).sum(),
        }
    };
    let groups: Vec<f64> = compared.chunks(size).map(of_group).collect();
    let kept = best(&groups, kept);
    for (expert, score) in compared.iter_mut().enumerate() {
        if !kept.contains(&(expert / size)) {
            *score = f64::NEG_INFINITY;
        }
    }
    compared
}

fn double(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

fn chosen(choice: &[i32], per_token: usize, token: usize) -> Vec<usize> {
    choice[token * per_token..(token + 1) * per_token].iter().map(|expert| *expert as usize).collect()
}

/// A share is `exp(z - max)`, off by the rounding of its argument and 2 more, divided by a sum of such terms with
/// `E / 16 + 5` roundings of its own; or a sigmoid, off by 5 roundings, divided by a sum of them. The division and the
/// scale are 2 more. Both the numerator and the denominator have the argument's, at most the logits' distance.
pub fn roundings(logits: &[f32]) -> f64 {
    let [low, high] = logits.iter().fold([f32::INFINITY, f32::NEG_INFINITY], |[l, h], z| [l.min(*z), h.max(*z)]);
    18.0 + 2.0 * f64::from(high - low) + logits.len() as f64 / 16.0
}

#[test]
fn choices_are_the_best_logits_and_weights_are_within_their_bounds() {
    for (experts, per_token) in [(1, 1), (2, 2), (5, 1), (8, 2), (17, 17), (64, 8), (60, 4), (130, 33)] {
        for routing in rules() {
            let case = Case::new(37, experts, per_token, routing);
            let (choice, actual) = case.routed();
            for token in 0..case.tokens() {
                let logits = case.logits(token);
                let of_token = chosen(&choice, per_token, token);
                assert_eq!(of_token, best(&double(logits), per_token), "{routing:?}, token {token}");
                let exact = weights(routing, &double(logits), &of_token);
                for (slot, exact) in exact.iter().enumerate() {
                    let error = (f64::from(actual[token * per_token + slot]) - exact).abs();
                    assert!(error <= roundings(logits) * ROUNDING * exact, "{routing:?}: {error:e} of {exact:e}");
                }
            }
        }
    }
}

/// Corrections and groups are compared by scores with roundings, so an expert that is not chosen may be better by
/// these. The correction of a few experts is far below 0: removed groups are worse even so.
#[test]
fn corrections_and_groups_choose_but_weigh_nothing() {
    for (experts, groups) in [(16, (4, 2)), (64, (8, 4)), (160, (8, 3)), (8, (8, 6))] {
        for (scores_kind, with_correction) in
            [(RouterScores::Sigmoid, true), (RouterScores::Sigmoid, false), (RouterScores::Softmax, false)]
        {
            let groups = Some(ExpertGroups { number: groups.0, kept: groups.1 });
            let routing = Routing { scores: scores_kind, groups, scale: 2.5, ..PLAIN };
            let mut case = Case::new(50, experts, 4, routing);
            let correction: Vec<f32> = random("correction", experts, 0.3)
                .iter()
                .map(|value| if *value > 0.0 { -900.0 } else { *value })
                .collect();
            case.correction = with_correction.then_some(correction);
            let (choice, actual) = case.routed();
            for token in 0..case.tokens() {
                let logits = double(case.logits(token));
                let mut compared = scores(routing.scores, &logits);
                for (score, correction) in compared.iter_mut().zip(case.correction.iter().flatten()) {
                    *score += f64::from(*correction);
                }
                let compared = masked(routing, compared);
                let of_token = chosen(&choice, 4, token);
                let worst = of_token.iter().map(|expert| compared[*expert]).fold(f64::INFINITY, f64::min);
                assert!(worst > f64::NEG_INFINITY, "an expert of a removed group is chosen");
                let others = (0..experts).filter(|expert| !of_token.contains(expert)).map(|expert| compared[expert]);
                let best_other = others.fold(f64::NEG_INFINITY, f64::max);
                // Of a sum with the correction, which is at most 901.
                assert!(worst >= best_other - 2.0 * ROUNDING * 902.0, "{worst} is chosen, {best_other} is not");
                let exact = weights(routing, &logits, &of_token);
                for (actual, exact) in actual[token * 4..].iter().zip(exact) {
                    let bound = roundings(case.logits(token)) * ROUNDING * exact;
                    assert!((f64::from(*actual) - exact).abs() <= bound, "{actual} for {exact}");
                }
            }
        }
    }
}

/// With a mask of 0 instead of minus infinity, experts of removed groups would win: all corrected scores of the kept
/// group are below 0.
#[test]
fn removed_groups_lose_to_corrections_far_below_zero() {
    let groups = Some(ExpertGroups { number: 2, kept: 1 });
    let routing = Routing { scores: RouterScores::Sigmoid, groups, ..PLAIN };
    let correction = Some(vec![-5.0, -5.5, -6.0, -7.0, -9.0, -9.0, -9.0, -9.0]);
    let case = Case { logits: vec![0.0; 8], experts: 8, per_token: 3, correction, routing };
    let (choice, weights) = case.routed();
    assert_eq!(choice, [0, 1, 2]);
    assert_eq!(weights, [1.0 / 3.0; 3]);
}

#[test]
fn of_equal_experts_and_groups_the_lower_ones_are_chosen() {
    for scores in RouterScores::ALL {
        let case = |per_token, groups, logits: &[f32]| {
            let routing = Routing { scores, groups, ..PLAIN };
            Case { logits: logits.to_vec(), experts: logits.len(), per_token, correction: None, routing }.routed().0
        };
        assert_eq!(case(3, None, &[1.0; 40]), [0, 1, 2]);
        assert_eq!(case(3, None, &[0.0, 2.0, 1.0, 2.0, 1.0, 1.0]), [1, 2, 3]);
        assert_eq!(case(2, None, &[-0.0, 0.0, -0.0]), [0, 1]);
        let groups = Some(ExpertGroups { number: 3, kept: 1 });
        assert_eq!(case(2, groups, &[0.0, 1.0, 2.0, 5.0, 5.0, 2.0]), [2, 3], "groups 1 and 2 are equal");
        assert_eq!(case(2, groups, &[0.0; 6]), [0, 1]);
        // Beyond 17 all sigmoids are 1.
        assert_eq!(case(1, None, &[20.0, 21.0, 20.5]), [1]);
    }
}

#[test]
fn numbers_that_are_not_finite_still_have_an_order() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for routing in rules() {
        let case = |logits: &[f32], per_token| {
            let (logits, experts) = (logits.to_vec(), logits.len());
            Case { logits, experts, per_token, correction: None, routing }.run(InstructionSet::detect())
        };
        assert_eq!(case(&[nan, -inf, 1.0, nan, inf], 2).0, [2, 4]);
        assert_eq!(case(&[nan, -inf, nan], 2).0, [0, 1]);
        assert_eq!(case(&[nan, nan, nan], 2).0, [0, 1]);
        let (choice, weights) = case(&[-inf, -3.0, -200.0], 2);
        assert_eq!(choice, [1, 2]);
        assert!(weights.iter().all(|weight| weight.is_finite()), "{weights:?}");
    }
}
