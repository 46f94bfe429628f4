//! Attention and its gradient from the definition in f64, with bounds on the error of a computation in f32, or with
//! products in another order.
//!
//! Bounds are to first order in u = 2^-24, times 1.1 for the rest. A sum of n products as chains over tiles of t
//! terms has a relative error of at most (t + n / t) u with respect to the sum of magnitudes. `exp` has 1 ulp = 2 u.
//! In AMX order a chain has half of a block of 32, the sum of its halves and one sum for each block; probabilities,
//! gradients of scores and results are rounded to bf16. In blocks of 16 each block loses at most 10.5 u of the sum of
//! magnitudes, in blocks of 8 at most 11 u (`docs/numerics.md`).

use cpu::attention::{Attention, KEYS, QUERIES};
use cpu::gemm::PAIRS_BLOCK;
use philox::{key_of_seed, philox4x32_10, probability_threshold};

const U: f64 = f32::EPSILON as f64 / 2.0;

/// How products are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// In f32 throughout.
    Chained,
    /// Of bf16, in AMX order.
    Pairs,
    /// Of bf16, in blocks of 16.
    Blocks16,
    /// Of fp16, in blocks of 8.
    Blocks8OfFp16,
}

impl Products {
    pub const ALL: [Products; 4] = [Products::Chained, Products::Pairs, Products::Blocks16, Products::Blocks8OfFp16];

    /// Roundings on the longest path of a sum of products.
    fn chain(self, steps: usize) -> f64 {
        match self {
            Products::Chained => steps as f64,
            Products::Pairs => (steps.min(PAIRS_BLOCK).div_ceil(2) + 1 + steps.div_ceil(PAIRS_BLOCK)) as f64,
            Products::Blocks16 => 10.5 * steps.div_ceil(16) as f64,
            Products::Blocks8OfFp16 => 11.0 * steps.div_ceil(8) as f64,
        }
    }

    /// Roundings of a sum over keys in addition to those of its tiles, and of one over queries in addition to those of
    /// its blocks.
    fn besides_tiles(self, terms: usize) -> f64 {
        match self {
            Products::Chained | Products::Pairs => 0.0,
            Products::Blocks16 | Products::Blocks8OfFp16 => self.chain(terms),
        }
    }

    /// Absolute errors of numbers that are too small for the stored type: half of its smallest one.
    fn least(self) -> f64 {
        match self {
            Products::Chained | Products::Pairs | Products::Blocks16 => 0.0,
            Products::Blocks8OfFp16 => 2.0f64.powi(-25),
        }
    }

    /// Relative error of an exponential, in u.
    fn power(self) -> f64 {
        match self {
            Products::Chained | Products::Pairs => 2.0,
            Products::Blocks16 | Products::Blocks8OfFp16 => 2.0f64.powf(24.0 - 18.4) + 1.0,
        }
    }

    /// Relative error, in u, of powers of scores of at most this size by their factor, which has two roundings, and by
    /// what is subtracted: a product or a logarithm times the factor (four roundings), and a sum.
    fn factor(self, size: f64) -> f64 {
        match self {
            Products::Chained | Products::Pairs => 0.0,
            Products::Blocks16 | Products::Blocks8OfFp16 => 7.0 * (size + 1.0),
        }
    }

    /// Relative error of what is stored, or multiplied after it was computed.
    fn rounding(self) -> f64 {
        match self {
            Products::Chained => 0.0,
            Products::Pairs | Products::Blocks16 => 2.0f64.powi(-8),
            Products::Blocks8OfFp16 => 2.0f64.powi(-11),
        }
    }
}

/// f64 copies of the operands, dense `[tokens, heads, head_dim]`.
#[derive(Clone)]
pub struct Operands {
    pub q: Vec<f64>,
    pub k: Vec<f64>,
    pub v: Vec<f64>,
    pub dout: Vec<f64>,
}

/// A value per element and how far an f32 result may be from it.
#[derive(Clone)]
pub struct Bounded {
    pub values: Vec<f64>,
    pub bounds: Vec<f64>,
}

impl Bounded {
    fn zeros(len: usize) -> Self {
        Self { values: vec![0.0; len], bounds: vec![0.0; len] }
    }

    fn add(&mut self, at: usize, value: f64, bound: f64) {
        self.values[at] += value;
        self.bounds[at] += bound;
    }

    /// Results are rounded.
    fn round(&mut self, products: Products) {
        for (value, bound) in self.values.iter().zip(&mut self.bounds) {
            *bound += products.rounding() * (value.abs() + *bound) + products.least();
        }
    }

    /// The largest share of a bound that an f32 result uses; panics if it uses more than all.
    pub fn assert_holds(&self, results: &[f32], name: &str) -> f64 {
        assert_eq!(results.len(), self.values.len());
        let mut largest = 0.0f64;
        for (at, (result, value)) in results.iter().zip(&self.values).enumerate() {
            let error = (f64::from(*result) - value).abs();
            let bound = 1.1 * self.bounds[at] + 1e-37;
            assert!(
                error <= bound || f64::from(*result) == *value,
                "{name}[{at}] is {result}, should be {value} within {bound}"
            );
            largest = largest.max(error / bound);
        }
        largest
    }
}

pub struct Results {
    pub out: Bounded,
    pub log_sum_exp: Bounded,
    pub dq: Bounded,
    pub dk: Bounded,
    pub dv: Bounded,
}

/// Everything about one query of one head.
struct Query {
    q_at: usize,
    lse_at: usize,
    /// Per visible key: its element of k and v, score and factor of dropout.
    keys: Vec<(usize, f64, f64)>,
    lse: f64,
    /// Error of a score, of the log-sum-exp, and relative error of an output's sums.
    score_error: f64,
    lse_error: f64,
    out_error: f64,
    /// Largest magnitude of score - lse.
    range: f64,
    /// Largest magnitude of a score.
    size: f64,
}

/// The factor of a probability.
pub fn keep_factor(attention: &Attention<'_>, token: usize, head: usize, key: usize) -> f64 {
    let Some(dropout) = attention.dropout else { return 1.0 };
    let counter = [
        (key / 4) as u32 | (dropout.first_channel + head as u32) << 16,
        (dropout.first_token + token as u64) as u32,
        dropout.step,
        dropout.site,
    ];
    let word = philox4x32_10(counter, key_of_seed(dropout.seed))[key % 4];
    if word >= probability_threshold(dropout.probability) { 1.0 / (1.0 - f64::from(dropout.probability)) } else { 0.0 }
}

fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    a.iter().zip(b).fold((0.0, 0.0), |(sum, size), (a, b)| (sum + a * b, size + (a * b).abs()))
}

fn query(attention: &Attention<'_>, operands: &Operands, (token, head): (usize, usize), products: Products) -> Query {
    let shape = attention.shape;
    let (length, d) = (shape.sequence_length, shape.head_dim);
    let kv_head = head / (shape.heads / shape.kv_heads);
    let q_at = (token * shape.heads + head) * d;
    let scale = f64::from(attention.scale);
    let [first, last] = attention.visible[token];
    let mut score_error = 0.0f64;
    let mut keys = Vec::new();
    for position in first.max(0)..last.min(length as i32) {
        let key_token = token / length * length + position as usize;
        let k_at = (key_token * shape.kv_heads + kv_head) * d;
        let (score, size) = dot(&operands.q[q_at..q_at + d], &operands.k[k_at..k_at + d]);
        // The scaled query is rounded, or the scaled product, and there is a chain of d.
        let product_error = (products.chain(d) + 1.0) * U * scale * size;
        score_error = score_error.max(product_error);
        let mut score = score * scale;
        if let Some(alibi) = attention.alibi {
            // The distance is exact, and its product with the slope is rounded once with the sum.
            score += f64::from(alibi.slope(head)) * f64::from(position + 1 - last.min(length as i32));
            score_error = score_error.max(product_error + U * score.abs());
        }
        keys.push((k_at, score, keep_factor(attention, token, head, position as usize)));
    }
    let max = keys.iter().map(|(_, score, _)| *score).fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = keys.iter().map(|(_, score, _)| (score - max).exp()).sum();
    let lse = if keys.is_empty() { f64::NEG_INFINITY } else { max + sum.ln() };
    let range = keys.iter().map(|(_, score, _)| (score - lse).abs()).fold(0.0, f64::max);
    let tiles = (length / KEYS + 2) as f64;
    // A power: its score, the subtraction and exp. A sum of them: a chain per tile, and per tile a decay and an
    // addition.
    let size = keys.iter().map(|(_, score, _)| score.abs()).fold(0.0, f64::max);
    let power_error = score_error + (range + products.power() + products.factor(size)) * U;
    let sum_error = power_error + (KEYS as f64 + tiles * (range + 2.0 + products.power())) * U;
    Query {
        q_at,
        lse_at: token * shape.heads + head,
        keys,
        lse,
        score_error,
        // The logarithm of the sum (1 ulp), added to the maximum.
        lse_error: sum_error + if lse.is_finite() { (3.0 * sum.ln().abs() + lse.abs()) * U } else { 0.0 },
        // Numerator and denominator, the factor's two roundings and its product; probabilities may be rounded.
        out_error: 2.0 * sum_error + products.besides_tiles(length) * U + 4.0 * U + products.rounding(),
        range,
        size,
    }
}

/// Outputs and gradients with bounds.
pub fn compute(attention: &Attention<'_>, operands: &Operands, products: Products) -> Results {
    let shape = attention.shape;
    let tokens = shape.sequences * shape.sequence_length;
    let (q_len, kv_len) = (tokens * shape.heads * shape.head_dim, tokens * shape.kv_heads * shape.head_dim);
    let mut results = Results {
        out: Bounded::zeros(q_len),
        log_sum_exp: Bounded::zeros(tokens * shape.heads),
        dq: Bounded::zeros(q_len),
        dk: Bounded::zeros(kv_len),
        dv: Bounded::zeros(kv_len),
    };
    for token in 0..tokens {
        for head in 0..shape.heads {
            let query = query(attention, operands, (token, head), products);
            forward(&query, operands, (shape.head_dim, products), &mut results);
            backward(attention, &query, operands, products, &mut results);
        }
    }
    for results in [&mut results.dq, &mut results.dk, &mut results.dv] {
        results.round(products);
    }
    results
}

fn forward(query: &Query, operands: &Operands, (d, products): (usize, Products), results: &mut Results) {
    results.log_sum_exp.add(query.lse_at, query.lse, query.lse_error);
    for (k_at, score, factor) in &query.keys {
        let weight = (score - query.lse).exp() * factor;
        for i in 0..d {
            let product = weight * operands.v[k_at + i];
            let small = products.least() * operands.v[k_at + i].abs();
            results.out.add(query.q_at + i, product, product.abs() * query.out_error + small);
        }
    }
    for at in query.q_at..query.q_at + d {
        let rounded = products.rounding() * (results.out.values[at].abs() + results.out.bounds[at]);
        results.out.bounds[at] += rounded + products.least();
    }
}

fn backward(attention: &Attention<'_>, query: &Query, operands: &Operands, products: Products, results: &mut Results) {
    let shape = attention.shape;
    let (d, q_at) = (shape.head_dim, query.q_at);
    let scale = f64::from(attention.scale);
    let dout = &operands.dout[q_at..q_at + d];
    let (delta, delta_size) = dot(dout, &results.out.values[q_at..q_at + d]);
    let out_bounds = &results.out.bounds[q_at..q_at + d];
    let delta_error = d as f64 * U * delta_size + dot(dout, out_bounds).1;
    // Of what is multiplied after it was computed.
    let rounding = products.rounding();
    let tiles = (shape.sequence_length / KEYS + 2) as f64;
    let blocks = ((shape.sequence_length / QUERIES + 1) * shape.heads / shape.kv_heads) as f64;
    // Of a probability that is recomputed, and of the sums over keys and over queries.
    let power = query.range + products.power() + products.factor(query.size + query.range);
    let p_error = query.score_error + query.lse_error + power * U;
    let over_keys = KEYS as f64 + tiles + products.besides_tiles(shape.sequence_length);
    let group = shape.heads / shape.kv_heads;
    let over_queries = QUERIES as f64 + blocks + group as f64 * products.besides_tiles(shape.sequence_length);
    let (key_sum_error, query_sum_error) = (over_keys * U, over_queries * U);
    for (k_at, score, factor) in &query.keys {
        let p = (score - query.lse).exp();
        let (dp, dp_size) = dot(dout, &operands.v[*k_at..k_at + d]);
        let gradient = factor * dp - delta;
        let ds = p * gradient * scale;
        let inner = factor * dp_size * (products.chain(d) + 3.0) * U + delta_error + U * (gradient.abs() + delta.abs());
        let ds_error = ds.abs() * (p_error + 3.0 * U + rounding) + p * scale * inner + products.least();
        for (i, dout) in dout.iter().enumerate() {
            let (k, q) = (operands.k[k_at + i], operands.q[q_at + i]);
            results.dq.add(q_at + i, ds * k, k.abs() * (ds_error + ds.abs() * key_sum_error));
            results.dk.add(k_at + i, ds * q, q.abs() * (ds_error + ds.abs() * query_sum_error));
            let value = p * factor * dout;
            let small = products.least() * dout.abs();
            results.dv.add(k_at + i, value, value.abs() * (p_error + 3.0 * U + rounding + query_sum_error) + small);
        }
    }
}
