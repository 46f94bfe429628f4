//! Attention with products in blocks as it is defined, a query at a time in plain Rust.

use std::f32::consts::{LN_2, LOG2_E};

use cpu::attention::BLOCK_KEYS;
use device::{Bf16, Element, F16};

use crate::attention::case::{Case, Outputs};
use crate::attention::pairs_oracle::log;
use crate::attention::reference::{Products, keep_factor};
use crate::blocks::definition::Definition;

/// The operands of a case, and the format of its results.
#[derive(Clone, Copy)]
struct Numbers {
    definition: Definition,
    rounded: fn(f32) -> f32,
}

impl Numbers {
    fn of(case: &Case) -> Numbers {
        match case.products {
            Products::Blocks16 => {
                Numbers { definition: Definition::BLOCKS16, rounded: |value| Bf16::narrow(value).widen() }
            }
            Products::Blocks8OfFp16 => {
                Numbers { definition: Definition::BLOCKS8.of_fp16(), rounded: |value| F16::narrow(value).widen() }
            }
            Products::Chained | Products::Pairs => panic!("{:?} are not in blocks", case.products),
        }
    }
}

/// `2^(1 - depth)`; zero below 2^-125.
fn power(depth: f32) -> f32 {
    if depth > 126.0 {
        return 0.0;
    }
    let count = (-depth).round_ties_even();
    let coefficients = [0.009_582_853, 0.055_906_426, 0.240_240_99, 0.693_124_2, 1.0];
    let power = coefficients.into_iter().reduce(|sum: f32, next| sum.mul_add(-depth - count, next)).expect("some");
    (f64::from(power) * f64::from(count + 1.0).exp2()) as f32
}

/// The operands of one head of one sequence.
struct Head<'a> {
    case: &'a Case,
    /// `[length, head_dim]` each.
    q: Vec<Vec<f32>>,
    k: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
    dout: Vec<Vec<f32>>,
    head: usize,
    first_token: usize,
    numbers: Numbers,
}

/// Factors of a query, per key.
struct Weights {
    probabilities: Vec<f32>,
    gradients: Vec<f32>,
}

impl Head<'_> {
    fn continued(&self, sum: f32, steps: usize, factors: impl Fn(usize) -> (f32, f32)) -> f32 {
        self.numbers.definition.continued(sum, steps, factors)
    }

    /// The factors of products and of scores: one is enough where there is no bias.
    fn factors(&self) -> [f32; 2] {
        let attention = self.case.attention();
        if attention.alibi.is_some() { [attention.scale, LOG2_E] } else { [1.0, attention.scale * LOG2_E] }
    }

    /// The depth of a score below `shift`, and one more.
    fn depth(&self, score: f32, shift: f32) -> f32 {
        score.mul_add(-self.factors()[1], shift)
    }

    /// The score of a key, with its bias; `None` where it is not seen.
    fn score(&self, query: usize, key: usize) -> Option<f32> {
        let attention = self.case.attention();
        let [first, last] =
            attention.visible[self.first_token + query].map(|border| border.clamp(0, self.k.len() as i32));
        if !(first..last).contains(&(key as i32)) {
            return None;
        }
        let product = self.continued(0.0, self.q[query].len(), |i| (self.k[key][i], self.q[query][i]));
        let score = product * self.factors()[0];
        let distance = (key + 1) as f32 - last as f32;
        Some(attention.alibi.map_or(score, |alibi| distance.mul_add(alibi.slope(self.head), score)))
    }

    /// The query's output and log-sum-exp.
    fn forward(&self, query: usize) -> (Vec<f32>, f32) {
        let attention = self.case.attention();
        let (mut max, mut chains, mut sums) = (f32::NEG_INFINITY, [0.0f32; 4], vec![0.0f32; self.q[query].len()]);
        for tile in (0..self.k.len()).step_by(BLOCK_KEYS) {
            let keys: Vec<usize> = (tile..self.k.len().min(tile + BLOCK_KEYS)).collect();
            let scores: Vec<_> = keys.iter().map(|key| self.score(query, *key)).collect();
            if scores.iter().flatten().count() == 0 {
                continue;
            }
            let new = scores.iter().flatten().fold(max, |max, score| max.max(*score * self.factors()[1]));
            let decay = power((new - max) + 1.0);
            max = new;
            let power_of = |score: &Option<f32>| score.map_or(0.0, |score| power(self.depth(score, max + 1.0)));
            let powers: Vec<f32> = scores.iter().map(power_of).collect();
            // Two neighbours of each eight keys belong to a chain.
            for (chain, sum) in chains.iter_mut().enumerate() {
                let own = keys.iter().zip(&powers).filter(|(key, _)| *key % 8 / 2 == chain);
                *sum = own.fold(*sum * decay, |sum, (_, power)| sum + power);
            }
            let kept = |at: usize| {
                let keep = keep_factor(&attention, self.first_token + query, self.head, keys[at]) != 0.0;
                (self.numbers.rounded)(if keep { powers[at] } else { 0.0 })
            };
            for (channel, total) in sums.iter_mut().enumerate() {
                *total = self.continued(*total * decay, keys.len(), |at| (self.v[keys[at]][channel], kept(at)));
            }
        }
        let keep_scale = attention.dropout.map_or(1.0, |dropout| 1.0 / (1.0 - dropout.probability));
        let sum = (chains[0] + chains[1]) + (chains[2] + chains[3]);
        let factor = if sum > 0.0 { keep_scale / sum } else { 0.0 };
        (sums.iter().map(|sum| (self.numbers.rounded)(sum * factor)).collect(), max * LN_2 + log(sum))
    }

    /// The terms of gradients.
    fn weights(&self, query: usize, out: &[f32], log_sum_exp: f32) -> Weights {
        let attention = self.case.attention();
        let dout = &self.dout[query];
        let delta = dout.iter().zip(out).fold(0.0f32, |dot, (dout, out)| dout.mul_add(*out, dot));
        let (shift, scale) = (log_sum_exp.mul_add(LOG2_E, 1.0), attention.scale);
        let (mut probabilities, mut gradients) = (Vec::new(), Vec::new());
        for key in 0..self.k.len() {
            let probability = self.score(query, key).map_or(0.0, |score| power(self.depth(score, shift)));
            let product = self.continued(0.0, dout.len(), |i| (self.v[key][i], dout[i]));
            let factor = attention.dropout.map_or(1.0, |dropout| {
                let keep = keep_factor(&attention, self.first_token + query, self.head, key) != 0.0;
                if keep { 1.0 / (1.0 - dropout.probability) } else { 0.0 }
            });
            probabilities.push((self.numbers.rounded)(probability * factor));
            gradients.push((self.numbers.rounded)(probability * (product * factor).mul_add(scale, -(delta * scale))));
        }
        Weights { probabilities, gradients }
    }
}

/// Outputs and gradients.
pub fn compute(case: &Case) -> Outputs {
    let (shape, operands) = (case.shape, case.operands());
    let (length, d) = (shape.sequence_length, shape.head_dim);
    let ((q_cols, kv_cols), tokens) = (case.widths(), case.tokens());
    let [mut out, mut dq] = [q_cols, q_cols].map(|cols| vec![0.0; tokens * cols]);
    let [mut dk, mut dv] = [kv_cols, kv_cols].map(|cols| vec![0.0f32; tokens * cols]);
    let mut log_sum_exp = vec![0.0; tokens * shape.heads];
    for (sequence, head) in (0..shape.sequences).flat_map(|sequence| (0..shape.heads).map(move |head| (sequence, head)))
    {
        let (first_token, kv_head) = (sequence * length, head / (shape.heads / shape.kv_heads));
        let rows = |values: &[f64], cols: usize, column: usize| -> Vec<Vec<f32>> {
            let row = |token: usize| &values[token * cols + column * d..][..d];
            (first_token..first_token + length).map(|token| row(token).iter().map(|x| *x as f32).collect()).collect()
        };
        let (q, dout) = (rows(&operands.q, q_cols, head), rows(&operands.dout, q_cols, head));
        let (k, v) = (rows(&operands.k, kv_cols, kv_head), rows(&operands.v, kv_cols, kv_head));
        let numbers = Numbers::of(case);
        let of_head = Head { case, q, k, v, dout, head, first_token, numbers };
        let mut weights = Vec::new();
        for query in 0..length {
            let (outputs, statistic) = of_head.forward(query);
            let of_query = of_head.weights(query, &outputs, statistic);
            let at = (first_token + query) * q_cols + head * d;
            out[at..at + d].copy_from_slice(&outputs);
            log_sum_exp[(first_token + query) * shape.heads + head] = statistic;
            for (i, dq) in dq[at..at + d].iter_mut().enumerate() {
                let sum = of_head.continued(0.0, length, |key| (of_head.k[key][i], of_query.gradients[key]));
                *dq = (numbers.rounded)(sum);
            }
            weights.push(of_query);
        }
        for key in 0..length {
            let at = (first_token + key) * kv_cols + kv_head * d;
            for i in 0..d {
                // Sums continue from head to head, and are rounded at the end.
                dk[at + i] =
                    of_head.continued(dk[at + i], length, |query| (weights[query].gradients[key], of_head.q[query][i]));
                dv[at + i] = of_head
                    .continued(dv[at + i], length, |query| (weights[query].probabilities[key], of_head.dout[query][i]));
            }
        }
    }
    for gradient in dk.iter_mut().chain(&mut dv) {
        *gradient = (Numbers::of(case).rounded)(*gradient);
    }
    Outputs { out, log_sum_exp, dq, dk, dv }
}
