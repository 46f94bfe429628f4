//! The balance of experts: counts, loads and the losses of routers, by their definitions.

use config::{IGNORED_LABEL, RouterScores};
use device::{BalanceOp, RouterTerms, RouterValues, Tensor, Write};

use super::Memory;
use super::experts::scores;

pub fn run(memory: &mut Memory, op: &BalanceOp) {
    match *op {
        BalanceOp::CountChoices { choice, labels, counts, write } => {
            if write == Write::Assign {
                memory.assign(counts, &vec![0.0; counts.len()]);
            }
            for token in (0..choice.rows).filter(|token| has_label(memory, labels, *token)).collect::<Vec<_>>() {
                for slot in 0..choice.cols {
                    let expert = memory.integer(choice, token, slot) as usize;
                    memory.add(counts, token * counts.rows / choice.rows, expert, 1.0);
                }
            }
        }
        BalanceOp::LimitChoices { choice, weights, labels, sequences, capacity, kept, dropped, .. } => {
            let limited = limited(memory, (choice, weights, labels), sequences, capacity);
            memory.assign(kept, &limited);
            let number = limited.iter().filter(|expert| **expert < 0.0).count();
            dropped.iter().for_each(|dropped| memory.add(*dropped, 0, 0, number as f64));
        }
        BalanceOp::Load { counts, load } => {
            for run in 0..load.rows {
                let counts = memory.values(counts.rows_of(run..run + 1));
                let mean = counts.iter().sum::<f64>() / counts.len() as f64;
                let loads = counts.iter().map(|count| if mean > 0.0 { count / mean } else { 0.0 });
                let loads: Vec<f64> = loads.collect();
                memory.assign(load.rows_of(run..run + 1), &loads);
            }
        }
        BalanceOp::RouterLosses { logits, scores, terms, values } => {
            let RouterValues { balance, z_loss, entropy } = values;
            for token in 0..logits.rows {
                let shares = shares(memory, logits, token, scores);
                let of_balance = balance_loss(memory, terms, (token, logits.rows), &shares);
                let log_sum_exp = log_sum_exp(memory, logits, token);
                let of_logits = terms.z_loss.map_or(0.0, f64::from) * log_sum_exp.powi(2);
                let of_entropy = -shares.iter().map(|share| share * share.ln()).sum::<f64>();
                let places = [(balance, of_balance), (z_loss, of_logits), (entropy, of_entropy)];
                for (place, value) in places.into_iter().filter_map(|(place, value)| Some((place?, value))) {
                    memory.set(place, 0, token, value);
                }
            }
        }
        BalanceOp::RouterLossesBackward { logits, labels, scores, terms, scale, dlogits } => {
            for token in (0..logits.rows).filter(|token| has_label(memory, labels, *token)).collect::<Vec<_>>() {
                for (expert, slope) in gradient(memory, logits, token, scores, terms).into_iter().enumerate() {
                    memory.add(dlogits, token, expert, f64::from(scale) * slope);
                }
            }
        }
        BalanceOp::Correct { .. } => unreachable!("no layer corrects between steps"),
    }
}

/// Choices, of which those are -1 that as many tokens of the sequence as the capacity want more.
fn limited(
    memory: &Memory,
    (choice, weights, labels): (Tensor, Tensor, Tensor),
    sequences: usize,
    capacity: usize,
) -> Vec<f64> {
    let (choices, weights, slots) = (memory.values(choice), memory.values(weights), choice.cols);
    let per_sequence = choices.len() / sequences;
    let counts = |slot: &usize| has_label(memory, labels, slot / slots);
    let is_dropped = |slot: usize| {
        let of_sequence = slot / per_sequence * per_sequence..(slot / per_sequence + 1) * per_sequence;
        let is_before = |other: &usize| {
            let is_first = weights[*other] > weights[slot] || weights[*other] == weights[slot] && *other < slot;
            choices[*other] == choices[slot] && is_first
        };
        counts(&slot) && of_sequence.filter(counts).filter(is_before).count() >= capacity
    };
    (0..choices.len()).map(|slot| if is_dropped(slot) { -1.0 } else { choices[slot] }).collect()
}

fn has_label(memory: &Memory, labels: Tensor, token: usize) -> bool {
    memory.integer(labels, 0, token) != i64::from(IGNORED_LABEL)
}

fn shares(memory: &Memory, logits: Tensor, token: usize, kind: RouterScores) -> Vec<f64> {
    let scores = scores(memory, logits, token, kind);
    let sum: f64 = scores.iter().sum();
    scores.iter().map(|score| score / sum).collect()
}

fn log_sum_exp(memory: &Memory, logits: Tensor, token: usize) -> f64 {
    (0..logits.cols).map(|expert| memory.get(logits, token, expert).exp()).sum::<f64>().ln()
}

fn loads(memory: &Memory, terms: RouterTerms, (token, tokens): (usize, usize)) -> Option<(f64, Vec<f64>)> {
    let balance = terms.balance?;
    let run = token * balance.load.rows / tokens;
    Some((f64::from(balance.coefficient), memory.values(balance.load.rows_of(run..run + 1))))
}

fn balance_loss(memory: &Memory, terms: RouterTerms, token: (usize, usize), shares: &[f64]) -> f64 {
    let of_loads = |(coefficient, loads): (f64, Vec<f64>)| {
        coefficient * shares.iter().zip(&loads).map(|(share, load)| share * load).sum::<f64>()
    };
    loads(memory, terms, token).map_or(0.0, of_loads)
}

/// By the chain rule from shares to logits, written as a matrix.
fn gradient(memory: &Memory, logits: Tensor, token: usize, kind: RouterScores, terms: RouterTerms) -> Vec<f64> {
    let (shares, of_scores) = (shares(memory, logits, token, kind), scores(memory, logits, token, kind));
    let softmax = self::shares(memory, logits, token, RouterScores::Softmax);
    let of_logits = 2.0 * terms.z_loss.map_or(0.0, f64::from) * log_sum_exp(memory, logits, token);
    let loads = loads(memory, terms, (token, logits.rows));
    let slope_of_score = |expert: usize| match kind {
        RouterScores::Softmax => 1.0,
        RouterScores::Sigmoid => 1.0 - of_scores[expert],
    };
    let through_shares = |expert: usize| {
        let Some((coefficient, loads)) = &loads else { return 0.0 };
        let jacobian = |of: usize| shares[of] * (f64::from(of == expert) - shares[expert]) * slope_of_score(expert);
        coefficient * (0..loads.len()).map(|of| loads[of] * jacobian(of)).sum::<f64>()
    };
    (0..logits.cols).map(|expert| through_shares(expert) + of_logits * softmax[expert]).collect()
}
