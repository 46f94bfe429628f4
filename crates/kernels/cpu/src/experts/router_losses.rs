//! Losses of routers, by token: the balance loss and the z-loss, with their gradients, and the entropy of scores.

use config::{IGNORED_LABEL, RouterScores};

use super::shares::{SMALLEST_SUM, Softmax, scores};
use crate::lanes::{Kernel, Lanes, for_each_block, row_sum};
use crate::math::{log, log_f64, sigmoid_and_complement};
use crate::view::{MatMut, MatRef};

/// The losses.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// Coefficient of `sum over i of load_i p_i`, with the loads `[R,E]` of equally long runs of tokens.
    pub balance: Option<(f32, MatRef<'a>)>,
    /// Coefficient of `log(sum over i of exp(logit_i))^2`.
    pub z_loss: Option<f32>,
}

impl<'a> Terms<'a> {
    /// Coefficient and loads of token `token` of `tokens`.
    fn balance_of(&self, token: usize, tokens: usize) -> Option<(f32, &'a [f32])> {
        self.balance.map(|(coefficient, load)| (coefficient, load.row(token * load.rows() / tokens)))
    }
}

/// Values of each token, assigned.
pub struct RouterLosses<'a> {
    /// `[T,E]`
    pub logits: MatRef<'a>,
    /// The scores, which are divided by their sum where that is not 1.
    pub scores: RouterScores,
    pub terms: Terms<'a>,
    /// The balance loss `[T]`.
    pub balance: Option<&'a mut [f32]>,
    /// The z-loss `[T]`.
    pub z_loss: Option<&'a mut [f32]>,
    /// The entropy of scores `[T]`, in nats.
    pub entropy: Option<&'a mut [f32]>,
}

impl Kernel for RouterLosses<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let (tokens, experts) = (self.logits.rows(), self.logits.cols());
        let mut shares = vec![0.0; experts];
        for token in 0..tokens {
            let logits = self.logits.row(token);
            normalised::<L>(self.scores, logits, &mut shares);
            if let Some(balance) = &mut self.balance {
                let of_token = self.terms.balance_of(token, tokens);
                balance[token] = of_token
                    .map_or(0.0, |(coefficient, load)| (f64::from(coefficient) * mean_load::<L>(&shares, load)) as f32);
            }
            if let Some(z_loss) = &mut self.z_loss {
                let coefficient = f64::from(self.terms.z_loss.unwrap_or(0.0));
                z_loss[token] = (coefficient * log_sum_exp(Softmax::of::<L>(logits)).powi(2)) as f32;
            }
            if let Some(entropy) = &mut self.entropy {
                entropy[token] = entropy_of::<L>(&shares) as f32;
            }
        }
    }
}

/// `dlogits[T,E]` += `scale` times the gradient of the losses of tokens with a label: with shares `p`, loads `f`,
/// `d = sum of f_j p_j`, and the logarithm `l` of the sum of exponentials
///
/// | loss, scores | gradient of `z_i` |
/// |---|---|
/// | balance, softmax | `a p_i (f_i - d)` |
/// | balance, sigmoid | `a p_i (1 - s_i) (f_i - d)` |
/// | z-loss | `2 a l softmax_i` |
pub struct RouterLossesBackward<'a> {
    /// `[T,E]`
    pub logits: MatRef<'a>,
    /// `[T]`
    pub labels: &'a [i32],
    pub scores: RouterScores,
    pub terms: Terms<'a>,
    /// Gradient of the objective with respect to one token's loss.
    pub scale: f32,
    /// `[T,E]`
    pub dlogits: MatMut<'a>,
}

impl Kernel for RouterLossesBackward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let (tokens, experts) = (self.logits.rows(), self.logits.cols());
        assert_eq!(self.labels.len(), tokens, "a label for each token");
        let mut shares = vec![0.0; experts];
        for token in (0..tokens).filter(|token| self.labels[*token] != IGNORED_LABEL) {
            let (logits, dlogits) = (self.logits.row(token), self.dlogits.row_mut(token));
            if let Some((coefficient, load)) = self.terms.balance_of(token, tokens) {
                normalised::<L>(self.scores, logits, &mut shares);
                let factor = L::splat((f64::from(coefficient) * f64::from(self.scale)) as f32);
                let mean = L::splat(mean_load::<L>(&shares, load) as f32);
                for_each_block(
                    experts,
                    #[inline(always)]
                    |block| {
                        let slope = block.load::<L>(&shares) * (block.load::<L>(load) - mean) * factor;
                        let slope = match self.scores {
                            RouterScores::Softmax => slope,
                            RouterScores::Sigmoid => slope * sigmoid_and_complement(block.load::<L>(logits)).1,
                        };
                        block.store(dlogits, block.load::<L>(dlogits) + slope);
                    },
                );
            }
            if let Some(coefficient) = self.terms.z_loss {
                let softmax = Softmax::of::<L>(logits);
                let factor = 2.0 * f64::from(coefficient) * log_sum_exp(softmax) * f64::from(self.scale);
                let factor = L::splat(factor as f32);
                for_each_block(
                    experts,
                    #[inline(always)]
                    |block| {
                        let slope = softmax.value(block.load::<L>(logits)) * factor;
                        block.store(dlogits, block.load::<L>(dlogits) + slope);
                    },
                );
            }
        }
    }
}

/// `shares[E]` of `logits[E]`: scores that add up to 1.
#[inline(always)]
fn normalised<L: Lanes>(kind: RouterScores, logits: &[f32], shares: &mut [f32]) {
    scores::<L>(kind, logits, shares);
    match kind {
        RouterScores::Softmax => {}
        RouterScores::Sigmoid => {
            let sum = row_sum(
                shares.len(),
                #[inline(always)]
                |block| block.load::<L>(shares),
            );
            let sum = L::splat(sum as f32 + SMALLEST_SUM);
            for_each_block(
                logits.len(),
                #[inline(always)]
                |block| {
                    let share = block.load::<L>(shares) / sum;
                    block.store(shares, share);
                },
            );
        }
    }
}

#[inline(always)]
fn mean_load<L: Lanes>(shares: &[f32], load: &[f32]) -> f64 {
    row_sum(
        shares.len(),
        #[inline(always)]
        |block| block.load::<L>(shares) * block.load::<L>(load),
    )
}

#[inline(always)]
fn entropy_of<L: Lanes>(shares: &[f32]) -> f64 {
    // A share of zero has the term zero.
    let least = L::splat(f32::MIN_POSITIVE);
    -row_sum(
        shares.len(),
        #[inline(always)]
        |block| block.load::<L>(shares) * log(least.max(block.load::<L>(shares))),
    )
}

fn log_sum_exp(softmax: Softmax) -> f64 {
    f64::from(softmax.max) + log_f64(f64::from(softmax.sum))
}
