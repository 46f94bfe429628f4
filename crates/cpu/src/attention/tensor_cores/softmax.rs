//! The running softmax of tiles of 128 keys, whose probabilities are summed in four chains.
//!
//! A warp of an accelerator holds a tile of scores so that four threads share a query: of eight keys in a row, the
//! first has keys 0 and 1, the second 2 and 3, and so on. Each sums its own, in ascending order; the four meet at the
//! end.

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

/// The running softmax of a block of queries.
pub(super) struct Chains {
    /// The largest score so far.
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

    /// With the chains added up: (0 + 1) + (2 + 3).
    pub fn joined(&self) -> Running {
        let [a, b, c, d] = self.sums;
        let sum = std::array::from_fn(|query| (a[query] + b[query]) + (c[query] + d[query]));
        Running { max: self.max, sum, decay: self.decay }
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
    pub scale: f32,
    pub changes: Changes,
    pub dropout: Option<HeadDropout>,
}

impl Kernel for ChainedSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let first_key = self.tile.keys.start;
        let scale = L::splat(self.scale);
        for group in 0..self.block.width() / LANES {
            let mask = Mask::<L>::new(self.block, self.tile, group, self.changes);
            let old = L::load(lanes(&self.running.max, group));
            let mut max = old;
            for (row, scores) in self.scores.iter_mut().enumerate() {
                let (scores, key) = (lanes_mut(scores, group), first_key + row);
                let score = mask.biased(key, mask.capped(L::load(scores) * scale));
                let score = mask.apply(key, score, f32::NEG_INFINITY);
                score.store(scores);
                max = max.max(score);
            }
            max.store(lanes_mut(&mut self.running.max, group));
            // A query that has seen nothing yet subtracts zero, as minus infinity minus itself is not a number.
            let max = L::select(max.less(L::splat(f32::MIN)), L::zero(), max);
            let decay = math::exp(old - max);
            decay.store(lanes_mut(&mut self.running.decay, group));
            let mut sums: [L; CHAINS] =
                std::array::from_fn(|chain| L::load(lanes(&self.running.sums[chain], group)) * decay);
            let token = self.block.token + group * LANES;
            for (four, scores) in self.scores.chunks_mut(KEYS_PER_BLOCK).enumerate() {
                let keep = self.dropout.map(|dropout| dropout.keep(token, first_key + four * KEYS_PER_BLOCK));
                for (row, scores) in scores.iter_mut().enumerate() {
                    let scores = lanes_mut(scores, group);
                    let mut power = math::exp(L::load(scores) - max);
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
