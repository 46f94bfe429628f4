//! Attention with products in AMX order as it is defined, a query at a time in plain Rust.

use cpu::attention::KEYS;
use cpu::instruction_set::InstructionSet;
use cpu::lanes::{self, Kernel, LANES, Lanes};
use cpu::math;
use device::{Bf16, Element};

use crate::attention::case::{Case, Outputs};
use crate::attention::reference::keep_factor;
use crate::pairs::definition::continued;

/// A function of one number, as all lanes compute it.
#[derive(Clone, Copy)]
enum Function {
    Exp,
    Log,
}

struct Of(Function, f32);

impl Kernel for Of {
    type Output = f32;
    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let x = L::splat(self.1);
        let mut values = [0.0; LANES];
        match self.0 {
            Function::Exp => math::exp(x),
            Function::Log => math::log(x),
        }
        .store(&mut values);
        values[0]
    }
}

pub fn exp(x: f32) -> f32 {
    lanes::run(InstructionSet::Scalar, Of(Function::Exp, x))
}

pub fn log(x: f32) -> f32 {
    lanes::run(InstructionSet::Scalar, Of(Function::Log, x))
}

fn rounded(value: f32) -> f32 {
    Bf16::narrow(value).widen()
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
}

/// Per key of one query: what is multiplied with.
struct Weights {
    probabilities: Vec<f32>,
    gradients: Vec<f32>,
}

impl Head<'_> {
    /// The score of a key, with its bias; `None` where it is not seen.
    fn score(&self, query: usize, key: usize) -> Option<f32> {
        let attention = self.case.attention();
        let [first, last] =
            attention.visible[self.first_token + query].map(|border| border.clamp(0, self.k.len() as i32));
        if !(first..last).contains(&(key as i32)) {
            return None;
        }
        let product = continued(0.0, self.q[query].len(), |i| (self.k[key][i], self.q[query][i]));
        let score = product * attention.scale;
        let distance = (key + 1) as f32 - last as f32;
        Some(attention.alibi.map_or(score, |alibi| distance.mul_add(alibi.slope(self.head), score)))
    }

    /// The query's output and log-sum-exp.
    fn forward(&self, query: usize) -> (Vec<f32>, f32) {
        let attention = self.case.attention();
        let (mut max, mut sum, mut sums) = (f32::NEG_INFINITY, 0.0f32, vec![0.0f32; self.q[query].len()]);
        for tile in (0..self.k.len()).step_by(KEYS) {
            let keys: Vec<usize> = (tile..self.k.len().min(tile + KEYS)).collect();
            let scores: Vec<_> = keys.iter().map(|key| self.score(query, *key)).collect();
            if scores.iter().all(Option::is_none) {
                continue;
            }
            let new = scores.iter().flatten().fold(max, |max, score| max.max(*score));
            let decay = exp(max - new);
            max = new;
            let powers: Vec<f32> = scores.iter().map(|score| score.map_or(0.0, |score| exp(score - max))).collect();
            sum = sum.mul_add(decay, powers.iter().fold(0.0, |sum, power| sum + power));
            let kept = |at: usize| {
                let keep = keep_factor(&attention, self.first_token + query, self.head, keys[at]) != 0.0;
                rounded(if keep { powers[at] } else { 0.0 })
            };
            for (channel, total) in sums.iter_mut().enumerate() {
                *total = continued(*total * decay, keys.len(), |at| (self.v[keys[at]][channel], kept(at)));
            }
        }
        let keep_scale = attention.dropout.map_or(1.0, |dropout| 1.0 / (1.0 - dropout.probability));
        let factor = if sum > 0.0 { keep_scale / sum } else { 0.0 };
        (sums.iter().map(|sum| rounded(sum * factor)).collect(), max + log(sum))
    }

    /// The weights in the sums of gradients.
    fn weights(&self, query: usize, out: &[f32], log_sum_exp: f32) -> Weights {
        let attention = self.case.attention();
        let dout = &self.dout[query];
        let delta = dout.iter().zip(out).fold(0.0f32, |dot, (dout, out)| dout.mul_add(*out, dot));
        let (mut probabilities, mut gradients) = (Vec::new(), Vec::new());
        for key in 0..self.k.len() {
            let probability = self.score(query, key).map_or(0.0, |score| exp(score - log_sum_exp));
            let product = continued(0.0, dout.len(), |i| (self.v[key][i], dout[i]));
            let factor = attention.dropout.map_or(1.0, |dropout| {
                let keep = keep_factor(&attention, self.first_token + query, self.head, key) != 0.0;
                if keep { 1.0 / (1.0 - dropout.probability) } else { 0.0 }
            });
            probabilities.push(rounded(probability * factor));
            gradients.push(rounded(probability * (product * factor - delta) * attention.scale));
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
        let of_head = Head { case, q, k, v, dout, head, first_token };
        let mut weights = Vec::new();
        for query in 0..length {
            let (outputs, statistic) = of_head.forward(query);
            let of_query = of_head.weights(query, &outputs, statistic);
            let at = (first_token + query) * q_cols + head * d;
            out[at..at + d].copy_from_slice(&outputs);
            log_sum_exp[(first_token + query) * shape.heads + head] = statistic;
            for (i, dq) in dq[at..at + d].iter_mut().enumerate() {
                *dq = rounded(continued(0.0, length, |key| (of_head.k[key][i], of_query.gradients[key])));
            }
            weights.push(of_query);
        }
        for key in 0..length {
            let at = (first_token + key) * kv_cols + kv_head * d;
            for i in 0..d {
                // Sums continue from head to head, and are rounded at the end.
                dk[at + i] =
                    continued(dk[at + i], length, |query| (weights[query].gradients[key], of_head.q[query][i]));
                dv[at + i] =
                    continued(dv[at + i], length, |query| (weights[query].probabilities[key], of_head.dout[query][i]));
            }
        }
    }
    for gradient in dk.iter_mut().chain(&mut dv) {
        *gradient = rounded(*gradient);
    }
    Outputs { out, log_sum_exp, dq, dk, dv }
}
