//! The gradient of a router's weights.

use config::{RouterScores, RouterWeights, Routing};

use super::shares::{Chosen, Softmax};
use crate::lanes::{Kernel, Lanes, for_each_block};
use crate::view::{MatMut, MatRef};

/// `dlogits[T,E]` from `dweights[T,k]`, assigned. With shares `q` (weights before the scale) of chosen experts `i`:
///
/// | scores, weights | gradient of chosen `z_i` | of others |
/// |---|---|---|
/// | softmax, scores | `scale q_i (dw_i - d)` | `- scale p_j d` |
/// | softmax, normalised | `scale q_i (dw_i - d)` | 0 |
/// | sigmoid, scores | `scale q_i (1 - s_i) dw_i` | 0 |
/// | sigmoid, normalised | `scale q_i (1 - s_i) (dw_i - d)` | 0 |
///
/// `d = sum q_i dw_i` is one chain of fused multiply-adds in ascending order.
pub struct RouteBackward<'a> {
    /// `[T,E]`
    pub logits: MatRef<'a>,
    /// The rule.
    pub routing: Routing,
    /// `[T,k]`
    pub choice: &'a [i32],
    /// `[T,k]`
    pub dweights: MatRef<'a>,
    /// `[T,E]`
    pub dlogits: MatMut<'a>,
}

impl Kernel for RouteBackward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let (tokens, experts, per_token) = (self.logits.rows(), self.logits.cols(), self.dweights.cols());
        assert_eq!((self.dlogits.rows(), self.dlogits.cols()), (tokens, experts), "gradients of the shape of logits");
        assert_eq!((self.choice.len(), self.dweights.rows()), (tokens * per_token, tokens), "k slots for each token");
        let mut chosen = Chosen::new(per_token);
        for (row, choice) in self.choice.chunks_exact(per_token).enumerate() {
            let (logits, dweights, dlogits) = (self.logits.row(row), self.dweights.row(row), self.dlogits.row_mut(row));
            chosen.compute::<L>(self.routing, logits, choice);
            let along = |sum: f32, (share, dweight): (&f32, &f32)| share.mul_add(*dweight, sum);
            let sum = chosen.shares.iter().zip(dweights).fold(0.0, along);
            let subtracted = match (self.routing.scores, self.routing.weights) {
                (RouterScores::Softmax, RouterWeights::Scores) => {
                    let (softmax, factor) = (Softmax::of::<L>(logits), L::splat(-sum));
                    let scale = L::splat(self.routing.scale);
                    for_each_block(
                        experts,
                        #[inline(always)]
                        |block| block.store(dlogits, softmax.value(block.load::<L>(logits)) * factor * scale),
                    );
                    sum
                }
                (RouterScores::Softmax | RouterScores::Sigmoid, RouterWeights::Normalised) => {
                    dlogits.fill(0.0);
                    sum
                }
                (RouterScores::Sigmoid, RouterWeights::Scores) => {
                    dlogits.fill(0.0);
                    0.0
                }
            };
            for (slot, expert) in choice.iter().enumerate() {
                let slope = chosen.shares[slot] * chosen.slopes[slot];
                dlogits[*expert as usize] = slope * (dweights[slot] - subtracted) * self.routing.scale;
            }
        }
    }
}
