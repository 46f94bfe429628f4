//! Rotation and softmax attention, with the whole matrix of probabilities.

use config::Pairing;
use device::{AttentionGradients, AttentionOperands, Direction, Op};

use super::Memory;
use super::random::keep_factor;

pub fn run(memory: &mut Memory, op: &Op) {
    match *op {
        Op::RotaryTable { cos, sin, base, scaling } => {
            for position in 0..cos.rows {
                for pair in 0..cos.cols {
                    let exponent = -(2.0 * pair as f64) / (2.0 * cos.cols as f64);
                    let angle =
                        position as f64 * scaling.of_pairs(base, cos.cols).scaled(pair, f64::from(base).powf(exponent));
                    let magnitude = f64::from(scaling.magnitude());
                    memory.set(cos, position, pair, magnitude * angle.cos());
                    memory.set(sin, position, pair, magnitude * angle.sin());
                }
            }
        }
        Op::Rotary { x, head_dim, positions, cos, sin, pairing, direction } => {
            for row in 0..x.rows {
                let position = usize::try_from(memory.integer(positions, 0, row)).unwrap();
                for head in 0..x.cols / head_dim {
                    for pair in 0..cos.cols {
                        let (first, second) = match pairing {
                            Pairing::Half => (pair, pair + cos.cols),
                            Pairing::Interleaved => (2 * pair, 2 * pair + 1),
                        };
                        let (first, second) = (head * head_dim + first, head * head_dim + second);
                        let (c, s) = (memory.get(cos, position, pair), memory.get(sin, position, pair));
                        let s = match direction {
                            Direction::Forward => s,
                            Direction::Backward => -s,
                        };
                        let (a, b) = (memory.get(x, row, first), memory.get(x, row, second));
                        memory.set(x, row, first, a * c - b * s);
                        memory.set(x, row, second, a * s + b * c);
                    }
                }
            }
        }
        Op::Attention { operands } => {
            let (softmax, AttentionOperands { shape, v, out, log_sum_exp, .. }) = (Softmax(operands), operands);
            for (row, head) in softmax.queries() {
                let (probabilities, log_sum) = softmax.probabilities(memory, row, head);
                memory.set(log_sum_exp, row, head, log_sum);
                for dim in 0..shape.head_dim {
                    let sum =
                        probabilities.iter().map(|p| p.value * p.kept * memory.get(v, p.key, softmax.kv(head, dim)));
                    let sum: f64 = sum.sum();
                    memory.set(out, row, head * shape.head_dim + dim, sum);
                }
            }
        }
        Op::AttentionBackward { operands, gradients } => backward(memory, operands, gradients),
        other => unreachable!("{other:?}"),
    }
}

fn backward(memory: &mut Memory, operands: AttentionOperands, gradients: AttentionGradients) {
    let AttentionOperands { shape, q, k, v, log_sum_exp, out, .. } = operands;
    let AttentionGradients { dout, dq, dk, dv, .. } = gradients;
    assert!(memory.values(log_sum_exp).iter().chain(&memory.values(out)).all(|value| value.is_finite()));
    let softmax = Softmax(operands);
    for gradient in [dq, dk, dv] {
        memory.assign(gradient, &vec![0.0; gradient.len()]);
    }
    for (row, head) in softmax.queries() {
        let (probabilities, _) = softmax.probabilities(memory, row, head);
        let query = |dim| head * shape.head_dim + dim;
        let gradients: Vec<f64> = probabilities
            .iter()
            .map(|p| {
                let dot = (0..shape.head_dim)
                    .map(|d| memory.get(dout, row, query(d)) * memory.get(v, p.key, softmax.kv(head, d)));
                dot.sum::<f64>() * p.kept
            })
            .collect();
        let mean: f64 = probabilities.iter().zip(&gradients).map(|(p, gradient)| p.value * gradient).sum();
        for (p, gradient) in probabilities.iter().zip(&gradients) {
            let score = p.value * (gradient - mean) * p.slope * f64::from(operands.scale);
            for dim in 0..shape.head_dim {
                let key = softmax.kv(head, dim);
                let (q_value, k_value) = (memory.get(q, row, query(dim)), memory.get(k, p.key, key));
                let dout_value = memory.get(dout, row, query(dim));
                memory.add(dq, row, query(dim), score * k_value);
                memory.add(dk, p.key, key, score * q_value);
                memory.add(dv, p.key, key, p.value * p.kept * dout_value);
            }
        }
    }
}

struct Softmax(AttentionOperands);

/// The paper's list of slopes, by its own recursion.
fn slope(head: usize, heads: usize) -> f64 {
    if heads.is_power_of_two() {
        return 2.0_f64.powf(-8.0 * (head + 1) as f64 / heads as f64);
    }
    let power_of_two = heads.next_power_of_two() / 2;
    if head < power_of_two { slope(head, power_of_two) } else { slope(2 * (head - power_of_two), 2 * power_of_two) }
}

struct Probability {
    /// Row of the key.
    key: usize,
    value: f64,
    /// The score's gradient relative to that of its capped value.
    slope: f64,
    /// 0 or `1 / (1 - p)`.
    kept: f64,
}

impl Softmax {
    fn queries(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let heads = self.0.shape.heads;
        (0..self.0.shape.sequences * self.0.shape.sequence_length)
            .flat_map(move |row| (0..heads).map(move |head| (row, head)))
    }

    /// Column of keys and values that query head `head` reads.
    fn kv(&self, head: usize, dim: usize) -> usize {
        head / (self.0.shape.heads / self.0.shape.kv_heads) * self.0.shape.head_dim + dim
    }

    fn probabilities(&self, memory: &Memory, row: usize, head: usize) -> (Vec<Probability>, f64) {
        let sequence_start = row / self.0.shape.sequence_length * self.0.shape.sequence_length;
        let bound = |col| usize::try_from(memory.integer(self.0.visible, row, col)).unwrap();
        let keys: Vec<usize> = (bound(0)..bound(1)).collect();
        let scores: Vec<(f64, f64)> = keys
            .iter()
            .map(|key| {
                let product = |dim| {
                    memory.get(self.0.q, row, head * self.0.shape.head_dim + dim)
                        * memory.get(self.0.k, sequence_start + key, self.kv(head, dim))
                };
                let slope = self.0.alibi.map_or(0.0, |alibi| slope(alibi.first_head + head, alibi.num_heads));
                let score = (0..self.0.shape.head_dim).map(product).sum::<f64>() * f64::from(self.0.scale);
                let (capped, slope_of_cap) = self.0.soft_cap.map_or((score, 1.0), |cap| {
                    let tanh = (score / f64::from(cap)).tanh();
                    (f64::from(cap) * tanh, 1.0 - tanh * tanh)
                });
                (capped + slope * *key as f64, slope_of_cap)
            })
            .collect();
        let log_sum = scores.iter().map(|(score, _)| score.exp()).sum::<f64>().ln();
        let probabilities = keys.iter().zip(scores).map(|(key, (score, slope))| Probability {
            key: sequence_start + key,
            value: (score - log_sum).exp(),
            slope,
            kept: self.0.dropout.map_or(1.0, |dropout| keep_factor(&dropout, row, head, *key)),
        });
        (probabilities.collect(), log_sum)
    }
}
