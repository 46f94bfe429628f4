//! Scores of experts, and the shares of a token's chosen experts: their weights before the scale.

use config::{RouterScores, RouterWeights, Routing};

use crate::lanes::{Lanes, for_each_block, row_sum};
use crate::math::{exp, sigmoid_and_complement};

/// Added to a sum of sigmoids: the shares of experts whose scores are all zero are zero.
pub(super) const SMALLEST_SUM: f32 = 1e-20;

/// Softmax of `row`: `exp(z - max) / sum`.
#[derive(Clone, Copy)]
pub(super) struct Softmax {
    pub(super) max: f32,
    pub(super) sum: f32,
}

impl Softmax {
    #[inline(always)]
    pub(super) fn of<L: Lanes>(row: &[f32]) -> Softmax {
        let mut max = L::splat(f32::NEG_INFINITY);
        for_each_block(
            row.len(),
            #[inline(always)]
            |block| max = max.max(block.load_or(row, f32::NEG_INFINITY)),
        );
        let max = max.reduce_max();
        let sum = row_sum(
            row.len(),
            #[inline(always)]
            |block| exp(block.load::<L>(row) - L::splat(max)),
        );
        Softmax { max, sum: sum as f32 }
    }

    #[inline(always)]
    pub(super) fn value<L: Lanes>(self, logits: L) -> L {
        exp(logits - L::splat(self.max)) / L::splat(self.sum)
    }
}

/// `scores[E]` of `logits[E]`.
#[inline(always)]
pub(super) fn scores<L: Lanes>(kind: RouterScores, logits: &[f32], scores: &mut [f32]) {
    match kind {
        RouterScores::Softmax => {
            let softmax = Softmax::of::<L>(logits);
            for_each_block(
                logits.len(),
                #[inline(always)]
                |block| block.store(scores, softmax.value(block.load::<L>(logits))),
            );
        }
        RouterScores::Sigmoid => for_each_block(
            logits.len(),
            #[inline(always)]
            |block| block.store(scores, sigmoid_and_complement(block.load::<L>(logits)).0),
        ),
    }
}

/// The chosen experts of a token.
pub(super) struct Chosen {
    /// `[k]`: their logits, then their shares.
    pub(super) shares: Vec<f32>,
    /// `[k]`: what the slope of the logarithm of a score is, apart from sums that it is divided by: 1 for exponentials,
    /// `1 - s` for sigmoids.
    pub(super) slopes: Vec<f32>,
}

impl Chosen {
    pub(super) fn new(per_token: usize) -> Chosen {
        Chosen { shares: vec![0.0; per_token], slopes: vec![1.0; per_token] }
    }

    /// Computes shares and slopes of `choice[k]`.
    #[inline(always)]
    pub(super) fn compute<L: Lanes>(&mut self, routing: Routing, logits: &[f32], choice: &[i32]) {
        let Chosen { shares, slopes } = self;
        for (share, expert) in shares.iter_mut().zip(choice) {
            *share = logits[*expert as usize];
        }
        let count = shares.len();
        match (routing.scores, routing.weights) {
            (RouterScores::Softmax, weights) => {
                let softmax = match weights {
                    RouterWeights::Scores => Softmax::of::<L>(logits),
                    RouterWeights::Normalised => Softmax::of::<L>(shares),
                };
                for_each_block(
                    count,
                    #[inline(always)]
                    |block| {
                        let value = softmax.value(block.load::<L>(shares));
                        block.store(shares, value);
                    },
                );
            }
            (RouterScores::Sigmoid, weights) => {
                for_each_block(
                    count,
                    #[inline(always)]
                    |block| {
                        let (sigmoid, complement) = sigmoid_and_complement(block.load::<L>(shares));
                        block.store(shares, sigmoid);
                        block.store(slopes, complement);
                    },
                );
                match weights {
                    RouterWeights::Scores => {}
                    RouterWeights::Normalised => {
                        let sum = row_sum(
                            count,
                            #[inline(always)]
                            |block| block.load::<L>(shares),
                        );
                        let sum = sum as f32 + SMALLEST_SUM;
                        shares.iter_mut().for_each(|share| *share /= sum);
                    }
                }
            }
        }
    }
}
