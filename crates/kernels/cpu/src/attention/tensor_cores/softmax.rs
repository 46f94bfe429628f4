//! The running softmax of tiles of 128 keys, whose probabilities are summed in four chains.
//!
//! A warp of an accelerator holds a tile of scores so that four threads share a query: of eight keys in a row, the
//! first has keys 0 and 1, the second 2 and 3, and so on. Each sums its own, in ascending order; the four meet at the
//! end.

use std::f32::consts::{LN_2, LOG2_E};

use crate::attention::QUERIES;
use crate::attention::dropout::{HeadDropout, KEYS_PER_BLOCK};
use crate::attention::query_block::{KeyTile, QueryBlock};
use crate::attention::softmax::{Changes, Mask, Running, lanes, lanes_mut};
use crate::lanes::{Kernel, LANES, Lanes};
use crate::math;

/// Chains of a query's sum.
const CHAINS: usize = 4;
/// Neighbouring keys of one chain.
const NEIGHBOURS: usize = 2;

/// The factors of scores.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    /// Rounds by itself.
    rounding: f32,
    /// Multiplies within the subtraction, and makes powers of two of scores.
    exponent: f32,
}

impl Factors {
    /// Scores that nothing changes between the two factors need one.
    pub fn new(scale: f32, changes: Changes) -> Self {
        if !changes.are_some() && scale > 0.0 {
            Self { rounding: 1.0, exponent: scale * LOG2_E }
        } else {
            Self { rounding: scale, exponent: LOG2_E }
        }
    }
}

/// The running softmax of a block of queries.
pub(super) struct Chains {
    /// The largest score so far, as a power of two.
    max: [f32; QUERIES],
    /// The sums of `exp(score - max)` so far.
    sums: [[f32; QUERIES]; CHAINS],
    /// The factor of earlier sums after the last tile, which may have raised the maximum.
    pub decay: [f32; QUERIES],
}

impl Chains {
    /// Before any key.
    pub fn new() -> Self {
        Self { max: [f32::NEG_INFINITY; QUERIES], sums: [[0.0; QUERIES]; CHAINS], decay: [0.0; QUERIES] }
    }

    /// With the chains added up, (0 + 1) + (2 + 3), and the natural logarithm of the power that is the largest score.
    pub fn joined(&self) -> Running {
        let [a, b, c, d] = self.sums;
        let sum = std::array::from_fn(|query| (a[query] + b[query]) + (c[query] + d[query]));
        Running { max: self.max.map(|max| max * LN_2), sum, decay: self.decay }
    }
}

/// Turns a tile's products into `exp(score - max)`, dropped ones into zero, and updates the running softmax. The sums
/// are those before dropout; the factor of kept values is left to the end.
pub(super) struct ChainedSoftmax<'a> {
    pub block: &'a QueryBlock,
    pub tile: &'a KeyTile,
    /// `[keys, QUERIES]`
    pub scores: &'a mut [[f32; QUERIES]],
    pub running: &'a mut Chains,
    pub factors: Factors,
    pub changes: Changes,
    pub dropout: Option<HeadDropout>,
}

impl Kernel for ChainedSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let first_key = self.tile.keys.start;
        let [rounding, exponent] = [self.factors.rounding, self.factors.exponent].map(L::splat);
        for group in 0..self.block.width() / LANES {
            let mask = Mask::<L>::new(self.block, self.tile, group, self.changes);
            let old = L::load(lanes(&self.running.max, group));
            let mut largest = L::splat(f32::NEG_INFINITY);
            for (row, scores) in self.scores.iter_mut().enumerate() {
                let (scores, key) = (lanes_mut(scores, group), first_key + row);
                let score = mask.biased(key, mask.capped(L::load(scores) * rounding));
                let score = mask.apply(key, score, f32::NEG_INFINITY);
                score.store(scores);
                largest = largest.max(score);
            }
            let max = old.max(largest * exponent);
            max.store(lanes_mut(&mut self.running.max, group));
            // A query that has seen nothing yet subtracts zero, as minus infinity minus itself is not a number.
            let max = L::select(max.less(L::splat(f32::MIN)), L::zero(), max);
            let no_depth = L::splat(math::NO_DEPTH);
            let (shift, decay) = (max + no_depth, math::power_of_depth((max - old) + no_depth));
            decay.store(lanes_mut(&mut self.running.decay, group));
            let mut sums: [L; CHAINS] =
                std::array::from_fn(|chain| L::load(lanes(&self.running.sums[chain], group)) * decay);
            let token = self.block.token + group * LANES;
            for (four, scores) in self.scores.chunks_mut(KEYS_PER_BLOCK).enumerate() {
                let keep = self.dropout.map(|dropout| dropout.keep(token, first_key + four * KEYS_PER_BLOCK));
                for (row, scores) in scores.iter_mut().enumerate() {
                    let scores = lanes_mut(scores, group);
                    let mut power = math::power_of_depth(L::load(scores).mul_add(-exponent, shift));
                    // Tiles begin with the first key of eight.
                    let chain = (four * KEYS_PER_BLOCK + row) / NEIGHBOURS % CHAINS;
                    sums[chain] = sums[chain] + power;
                    if let Some(keep) = &keep {
                        power = power * L::load(&keep[row]);
                    }
                    power.store(scores);
                }
            }
            for (running, sum) in self.running.sums.iter_mut().zip(sums) {
                sum.store(lanes_mut(running, group));
            }
        }
    }
}

/// Turns a tile's products into probabilities after dropout, and the gradients of these into `scale` times those of the
/// scores.
pub(super) struct TileGradient<'a> {
    pub block: &'a QueryBlock,
    pub tile: &'a KeyTile,
    /// `[keys, QUERIES]`
    pub scores: &'a mut [[f32; QUERIES]],
    /// `[keys, QUERIES]`: `dout . v` on entry.
    pub d_scores: &'a mut [[f32; QUERIES]],
    pub log_sum_exp: &'a [f32; QUERIES],
    pub delta: &'a [f32; QUERIES],
    pub scale: f32,
    pub factors: Factors,
    pub changes: Changes,
    pub dropout: Option<HeadDropout>,
}

impl Kernel for TileGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let first_key = self.tile.keys.start;
        let [rounding, exponent] = [self.factors.rounding, self.factors.exponent].map(L::splat);
        let scale = L::splat(self.scale);
        for group in 0..self.block.width() / LANES {
            let mask = Mask::<L>::new(self.block, self.tile, group, self.changes);
            let log_sum_exp = L::load(lanes(self.log_sum_exp, group));
            let shift = log_sum_exp.mul_add(L::splat(LOG2_E), L::splat(math::NO_DEPTH));
            let delta = L::load(lanes(self.delta, group)) * scale;
            let token = self.block.token + group * LANES;
            let fours = self.scores.chunks_mut(KEYS_PER_BLOCK).zip(self.d_scores.chunks_mut(KEYS_PER_BLOCK));
            for (four, (scores, d_scores)) in fours.enumerate() {
                let keep =
                    self.dropout.map(|dropout| (dropout.keep(token, first_key + four * KEYS_PER_BLOCK), dropout.scale));
                for (row, (scores, d_scores)) in scores.iter_mut().zip(d_scores).enumerate() {
                    let (scores, d_scores) = (lanes_mut(scores, group), lanes_mut(d_scores, group));
                    let key = first_key + four * KEYS_PER_BLOCK + row;
                    let capped = mask.capped(L::load(scores) * rounding);
                    let power = math::power_of_depth(mask.biased(key, capped).mul_add(-exponent, shift));
                    let probability = mask.apply(key, power, 0.0);
                    let (mut kept, mut gradient) = (probability, L::load(d_scores));
                    if let Some((keep, keep_scale)) = &keep {
                        let factor = L::load(&keep[row]) * L::splat(*keep_scale);
                        kept = kept * factor;
                        gradient = gradient * factor;
                    }
                    let gradient = probability * gradient.mul_add(scale, -delta);
                    kept.store(scores);
                    mask.before_cap(gradient, capped).store(d_scores);
                }
            }
        }
    }
}
