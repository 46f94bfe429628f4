//! Gradients of a router's weights: the definition against differences, the kernel against the definition.

use config::{RouterScores, RouterWeights, Routing};
use cpu::experts::RouteBackward;
use cpu::lanes::run;
use cpu::view::{MatMut, MatRef};

use super::route::{Case, roundings, rules, scores, weights};
use crate::kernels::support::{ROUNDING, assert_gradient, dot, double, random, same_on_all_sets};

/// The gradient of `<weights, dweights>` in f64.
fn gradient(routing: Routing, logits: &[f64], choice: &[usize], dweights: &[f64]) -> Vec<f64> {
    let (scores, scale) = (scores(routing.scores, logits), f64::from(routing.scale));
    let sum: f64 = match routing.weights {
        RouterWeights::Scores => 1.0,
        RouterWeights::Normalised => choice.iter().map(|expert| scores[*expert]).sum(),
    };
    let mut dscores = vec![0.0; logits.len()];
    let through_sum: f64 = match routing.weights {
        RouterWeights::Scores => 0.0,
        RouterWeights::Normalised => choice.iter().zip(dweights).map(|(expert, d)| scores[*expert] * d / sum).sum(),
    };
    for (expert, dweight) in choice.iter().zip(dweights) {
        dscores[*expert] = scale * (dweight - through_sum) / sum;
    }
    match routing.scores {
        RouterScores::Softmax => {
            let along = dot(&scores, &dscores);
            scores.iter().zip(&dscores).map(|(score, dscore)| score * (dscore - along)).collect()
        }
        RouterScores::Sigmoid => {
            scores.iter().zip(&dscores).map(|(score, dscore)| score * (1.0 - score) * dscore).collect()
        }
    }
}

#[test]
fn the_definition_agrees_with_differences() {
    for routing in rules() {
        let logits = double(&random("logits", 9, 2.0));
        let (choice, dweights) = ([1, 2, 5, 8], double(&random("dweights", 4, 1.0)));
        let loss = |logits: &[f64]| dot(&weights(routing, logits, &choice), &dweights);
        assert_gradient("dlogits", loss, &logits, &gradient(routing, &logits, &choice, &dweights));
    }
}

/// With `r` roundings of a share, its gradient is `share slope (dw - d) scale`: `d` is off by the shares' roundings and
/// its own chain of `k`, at most of the size of `sum |q dw|`; the slope by 6, the difference and the products by 4.
#[test]
fn gradients_are_within_their_bounds() {
    for (experts, per_token) in [(1, 1), (2, 2), (8, 2), (17, 17), (64, 8), (130, 33)] {
        for routing in rules() {
            let tokens = 21;
            let case = Case::new(tokens, experts, per_token, routing);
            let (choice, _) = case.routed();
            let dweights = random("dweights", tokens * per_token, 1.0);
            let actual = same_on_all_sets(|set| {
                let mut dlogits = vec![f32::NAN; tokens * experts];
                let kernel = RouteBackward {
                    logits: MatRef::dense(&case.logits, tokens, experts),
                    routing,
                    choice: &choice,
                    dweights: MatRef::dense(&dweights, tokens, per_token),
                    dlogits: MatMut::dense(&mut dlogits, tokens, experts),
                };
                run(set, kernel);
                dlogits
            });
            for token in 0..tokens {
                let logits = &case.logits[token * experts..][..experts];
                let of_token: Vec<usize> =
                    choice[token * per_token..][..per_token].iter().map(|expert| *expert as usize).collect();
                let dweights = double(&dweights[token * per_token..][..per_token]);
                let exact = gradient(routing, &double(logits), &of_token, &dweights);
                let scale = f64::from(routing.scale);
                let shares = weights(routing, &double(logits), &of_token);
                let along: f64 = shares.iter().zip(&dweights).map(|(w, d)| (w / scale * d).abs()).sum();
                let of_scores = scores(routing.scores, &double(logits));
                let count = 2.0 * roundings(logits) + per_token as f64 + 10.0;
                for (expert, exact) in exact.iter().enumerate() {
                    let slot = of_token.iter().position(|chosen| *chosen == expert);
                    let size = match slot {
                        Some(slot) => shares[slot] * (dweights[slot].abs() + along),
                        None => scale * of_scores[expert] * along,
                    };
                    let error = (f64::from(actual[token * experts + expert]) - exact).abs();
                    let bound = count * ROUNDING * size;
                    assert!(error <= bound, "{routing:?}, expert {expert}: {error:e} is more than {bound:e}");
                }
            }
        }
    }
}

/// Experts that were not chosen have a gradient through the sum over all scores only.
#[test]
fn experts_that_were_not_chosen_have_no_gradient_but_through_softmax_over_all() {
    for routing in rules() {
        let (logits, choice, dweights) = ([0.5, -1.0, 2.0, 0.0], [0, 2], [1.0, -3.0]);
        let mut dlogits = [f32::NAN; 4];
        let kernel = RouteBackward {
            logits: MatRef::dense(&logits, 1, 4),
            routing,
            choice: &choice,
            dweights: MatRef::dense(&dweights, 1, 2),
            dlogits: MatMut::dense(&mut dlogits, 1, 4),
        };
        run(cpu::instruction_set::InstructionSet::detect(), kernel);
        let reaches_all = (routing.scores, routing.weights) == (RouterScores::Softmax, RouterWeights::Scores);
        assert!(dlogits[0] != 0.0 && dlogits[2] != 0.0, "{dlogits:?}");
        assert_eq!([dlogits[1] != 0.0, dlogits[3] != 0.0], [reaches_all; 2], "{routing:?}: {dlogits:?}");
    }
}
