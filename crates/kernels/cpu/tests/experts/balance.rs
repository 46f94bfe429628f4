//! Counts, loads, corrections and the losses of routers: integers as they are counted, losses and their gradients
//! against definitions in f64.

use config::{IGNORED_LABEL, RouterScores};
use cpu::experts::{
    LimitChoices, RouterLosses, RouterLossesBackward, Terms, correct, count_choices, limit_choices, load,
};
use cpu::lanes::run;
use cpu::view::{MatMut, MatRef};
use device::Write;

use super::route::{roundings, scores};
use crate::kernels::support::{ROUNDING, assert_gradient, dot, double, random, same_on_all_sets};

const BALANCE: f32 = 0.75;
const Z_LOSS: f32 = 0.125;

#[test]
fn choices_are_counted_by_run_where_tokens_have_labels() {
    // Six tokens with two slots, in two runs; two tokens have no label.
    let choice = [0, 3, 1, 2, 0, 1, 2, 3, 0, 3, 1, 3];
    let labels = [5, IGNORED_LABEL, 7, 1, IGNORED_LABEL, 0];
    let mut counts = [9; 8];
    count_choices(&choice, &labels, 2, &mut counts, Write::Assign);
    assert_eq!(counts, [2, 1, 0, 1, 0, 1, 1, 2]);
    let mut all = [1, 0, 0, 0];
    count_choices(&choice, &labels, 1, &mut all, Write::Accumulate);
    assert_eq!(all, [3, 2, 1, 3]);
    count_choices(&[], &[], 1, &mut all, Write::Accumulate);
    assert_eq!(all, [3, 2, 1, 3]);
}

#[test]
fn loads_are_shares_of_balanced_routing() {
    let counts = [2, 1, 0, 1, 0, 0, 0, 0, 1 << 40, 1 << 40, 1 << 40, 1 << 40];
    let mut loads = [f32::NAN; 12];
    load(&counts, MatMut::dense(&mut loads, 3, 4));
    assert_eq!(loads, [2.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
}

/// Counts above 2^24, of which single precision has not every one, still decide by one choice.
#[test]
fn corrections_move_against_the_load_by_whole_numbers() {
    let many = 1 << 30;
    let counts = [many + 1, many, many - 1, many, 5, 0, 0, 5];
    let mut correction = [0.5, 0.5, 0.5, -8.0, 0.0, 0.0, 0.0, 0.0];
    correct(&counts, 0.25, MatMut::dense(&mut correction, 2, 4));
    assert_eq!(correction, [0.25, 0.5, 0.75, -8.0, -0.25, 0.25, 0.25, -0.25]);
}

/// An expert keeps the largest weights of each sequence, of equal ones the earlier token's. Tokens without a label keep
/// all and take no place.
#[test]
fn choices_beyond_the_capacity_of_a_sequence_are_dropped_by_weight_then_place() {
    let choice = [0, 1, 0, 2, 0, 1, 0, 1, 0, 1, 0, 1];
    let weights = [0.3, 0.7, 0.5, 0.5, 0.9, 0.1, 0.5, 0.7, 0.2, 0.8, 0.3, 0.7];
    let labels = [1, 1, IGNORED_LABEL, 1, 1, 1];
    let limited = |capacity| {
        let mut kept = [9; 12];
        let (choice, weights, labels) = (&choice[..], &weights[..], &labels[..]);
        let dropped = limit_choices(LimitChoices { choice, weights, labels, sequences: 2, capacity, kept: &mut kept });
        (kept, dropped)
    };
    assert_eq!(limited(1), ([-1, 1, 0, 2, 0, 1, 0, -1, -1, 1, -1, -1], 5));
    assert_eq!(limited(2), ([0, 1, 0, 2, 0, 1, 0, 1, -1, 1, 0, -1], 2));
    assert_eq!(limited(3), (choice, 0));
    assert_eq!(limited(0).1, 10, "all but those of the token without a label");
}

/// The losses of one token in f64, and the entropy.
struct Defined {
    kind: RouterScores,
    loads: Vec<f64>,
}

impl Defined {
    fn shares(&self, logits: &[f64]) -> Vec<f64> {
        let scores = scores(self.kind, logits);
        let sum: f64 = scores.iter().sum();
        scores.iter().map(|score| score / sum).collect()
    }

    fn balance(&self, logits: &[f64]) -> f64 {
        f64::from(BALANCE) * dot(&self.shares(logits), &self.loads)
    }

    fn log_sum_exp(logits: &[f64]) -> f64 {
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + logits.iter().map(|z| (z - max).exp()).sum::<f64>().ln()
    }

    fn z_loss(logits: &[f64]) -> f64 {
        f64::from(Z_LOSS) * Defined::log_sum_exp(logits).powi(2)
    }

    fn entropy(&self, logits: &[f64]) -> f64 {
        -self.shares(logits).iter().map(|share| share * share.ln()).sum::<f64>()
    }

    /// The parts of the gradient: of the balance loss, and of the z-loss.
    fn gradients(&self, logits: &[f64]) -> [Vec<f64>; 2] {
        let (shares, scores) = (self.shares(logits), scores(self.kind, logits));
        let mean = dot(&shares, &self.loads);
        let slope = |expert: usize| match self.kind {
            RouterScores::Softmax => 1.0,
            RouterScores::Sigmoid => 1.0 - scores[expert],
        };
        let balance = |expert: usize| f64::from(BALANCE) * shares[expert] * slope(expert) * (self.loads[expert] - mean);
        let raised = 2.0 * f64::from(Z_LOSS) * Defined::log_sum_exp(logits);
        let softmax = super::route::scores(RouterScores::Softmax, logits);
        [(0..logits.len()).map(balance).collect(), softmax.iter().map(|share| raised * share).collect()]
    }
}

#[test]
fn the_definition_agrees_with_differences() {
    for kind in RouterScores::ALL {
        let logits = double(&random("logits", 9, 2.0));
        let defined = Defined { kind, loads: double(&random("loads", 9, 2.0)) };
        let loss = |logits: &[f64]| defined.balance(logits) + Defined::z_loss(logits);
        let [balance, z_loss] = defined.gradients(&logits);
        let gradient: Vec<f64> = balance.iter().zip(&z_loss).map(|(one, other)| one + other).collect();
        assert_gradient("dlogits", loss, &logits, &gradient);
    }
}

/// Twelve tokens in three runs.
struct Case {
    kind: RouterScores,
    experts: usize,
    logits: Vec<f32>,
    loads: Vec<f32>,
    labels: Vec<i32>,
}

const TOKENS: usize = 12;
const RUNS: usize = 3;

impl Case {
    fn all() -> impl Iterator<Item = Case> {
        let sizes = [1, 2, 8, 17, 64, 130];
        RouterScores::ALL
            .into_iter()
            .flat_map(move |kind| sizes.into_iter().map(move |experts| Case::new(kind, experts)))
    }

    fn new(kind: RouterScores, experts: usize) -> Case {
        let logits = random(&format!("{experts}"), TOKENS * experts, 4.0);
        let loads = random("loads", RUNS * experts, 2.0).into_iter().map(f32::abs).collect();
        let labels = (0..TOKENS as i32).map(|token| if token % 5 == 1 { IGNORED_LABEL } else { token }).collect();
        Case { kind, experts, logits, loads, labels }
    }

    fn terms(&self) -> Terms<'_> {
        Terms { balance: Some((BALANCE, MatRef::dense(&self.loads, RUNS, self.experts))), z_loss: Some(Z_LOSS) }
    }

    fn of_token(&self, token: usize) -> (Defined, Vec<f64>) {
        let experts = self.experts;
        let loads = double(&self.loads[token / (TOKENS / RUNS) * experts..][..experts]);
        (Defined { kind: self.kind, loads }, double(&self.logits[token * experts..][..experts]))
    }
}

/// With `r` roundings of a share, which a sum over `E` experts of one sign has as well, and those of the loads' product
/// with it: the balance loss is off by `2 r + 70` of them at most. The logarithm of a sum within `r` roundings is off
/// by `r` roundings of 1 and one of its own, the z-loss by twice that relative to it, and the entropy by `2 r + 70` of
/// the sum of magnitudes and by the shares' `r` times the largest slope `1 + |log p|` of a term.
#[test]
fn losses_and_entropy_are_within_their_bounds() {
    for case in Case::all() {
        let (experts, kind) = (case.experts, case.kind);
        let values = same_on_all_sets(|set| {
            let mut values = vec![f32::NAN; 3 * TOKENS];
            let (balance, rest) = values.split_at_mut(TOKENS);
            let (z_loss, entropy) = rest.split_at_mut(TOKENS);
            let kernel = RouterLosses {
                logits: MatRef::dense(&case.logits, TOKENS, experts),
                scores: kind,
                terms: case.terms(),
                balance: Some(balance),
                z_loss: Some(z_loss),
                entropy: Some(entropy),
            };
            run(set, kernel);
            values
        });
        for token in 0..TOKENS {
            let (defined, logits) = case.of_token(token);
            let count = 2.0 * roundings(&case.logits[token * experts..][..experts]) + 70.0;
            let log_sum_exp = Defined::log_sum_exp(&logits);
            let off = count * ROUNDING * (1.0 + log_sum_exp.abs());
            let sizes: f64 = defined.shares(&logits).iter().map(|share| share * (1.0 + share.ln().abs())).sum();
            let expected = [
                ("balance loss", defined.balance(&logits), count * ROUNDING * defined.balance(&logits)),
                ("z-loss", Defined::z_loss(&logits), f64::from(Z_LOSS) * off * (2.0 * log_sum_exp.abs() + off)),
                ("entropy", defined.entropy(&logits), count * ROUNDING * sizes),
            ];
            for (place, (what, exact, bound)) in expected.into_iter().enumerate() {
                let error = (f64::from(values[place * TOKENS + token]) - exact).abs();
                assert!(error <= bound, "{kind:?}, {experts} experts, {what}: {error:e} is more than {bound:e}");
            }
        }
    }
}

/// The mean load is off by the shares' roundings and its sum's, relative to the largest load; the slope by 6 more, the
/// products by 4. The two parts are added to what was there, each sum rounded once.
#[test]
fn gradients_are_added_within_their_bounds_and_tokens_without_labels_have_none() {
    let scale = 0.5;
    for case in Case::all() {
        let (experts, kind) = (case.experts, case.kind);
        let before = random("before", TOKENS * experts, 1.0);
        let actual = same_on_all_sets(|set| {
            let mut dlogits = before.clone();
            let kernel = RouterLossesBackward {
                logits: MatRef::dense(&case.logits, TOKENS, experts),
                labels: &case.labels,
                scores: kind,
                terms: case.terms(),
                scale,
                dlogits: MatMut::dense(&mut dlogits, TOKENS, experts),
            };
            run(set, kernel);
            dlogits
        });
        for token in 0..TOKENS {
            let (defined, logits) = case.of_token(token);
            let [balance, z_loss] = defined.gradients(&logits);
            let count = 2.0 * roundings(&case.logits[token * experts..][..experts]) + 80.0;
            let (shares, largest) = (defined.shares(&logits), defined.loads.iter().copied().fold(0.0, f64::max));
            for expert in 0..experts {
                let place = token * experts + expert;
                if case.labels[token] == IGNORED_LABEL {
                    assert_eq!(actual[place].to_bits(), before[place].to_bits(), "token {token} has no label");
                    continue;
                }
                let (own, start) = (f64::from(scale) * (balance[expert] + z_loss[expert]), f64::from(before[place]));
                let sizes = f64::from(BALANCE) * shares[expert] * 2.0 * largest + z_loss[expert].abs();
                // Roundings of the logarithm are relative to 1.
                let of_logarithm = 2.0 * f64::from(Z_LOSS) * shares[expert].max(1.0 / experts as f64);
                let bound = count * ROUNDING * f64::from(scale) * (sizes + of_logarithm)
                    + 2.0 * ROUNDING * (start.abs() + f64::from(scale) * sizes);
                let error = (f64::from(actual[place]) - start - own).abs();
                assert!(error <= bound, "{kind:?}, {experts} experts: {error:e} is more than {bound:e}");
            }
        }
    }
}

/// With equal loads the balance loss is its coefficient times the load, whatever the scores, and has no gradient.
#[test]
fn balanced_loads_have_the_coefficient_as_the_loss_and_no_gradient() {
    for kind in RouterScores::ALL {
        let (logits, loads) = ([1.0, -2.0, 0.5, 3.0], [1.0; 4]);
        let terms = Terms { balance: Some((BALANCE, MatRef::dense(&loads, 1, 4))), z_loss: None };
        let set = cpu::instruction_set::InstructionSet::detect();
        let (mut balance, logits) = ([f32::NAN], MatRef::dense(&logits, 1, 4));
        let losses =
            RouterLosses { logits, scores: kind, terms, balance: Some(&mut balance), z_loss: None, entropy: None };
        run(set, losses);
        assert!((balance[0] / BALANCE - 1.0).abs() <= 16.0 * ROUNDING as f32, "{kind:?}: {balance:?}");
        let mut dlogits = [0.0; 4];
        let dlogits_of = MatMut::dense(&mut dlogits, 1, 4);
        let (labels, scores) = (&[1], kind);
        run(set, RouterLossesBackward { logits, labels, scores, terms, scale: 1.0, dlogits: dlogits_of });
        assert!(dlogits.iter().all(|slope| slope.abs() <= 16.0 * ROUNDING as f32), "{kind:?}: {dlogits:?}");
    }
}
