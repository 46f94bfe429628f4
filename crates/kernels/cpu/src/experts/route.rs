//! The choice of a router.

use config::{RouterScores, Routing};

use super::choice::Best;
use super::shares::{Chosen, scores};
use crate::lanes::{Kernel, Lanes};
use crate::view::{MatMut, MatRef};

/// `choice[T,k]` and `weights[T,k]` from `logits[T,E]`, assigned. Of equal experts, and of equal groups, the lower one
/// is better; a NaN is worse than all numbers.
///
/// Experts are compared by their scores plus `correction`. Without one that is their order by logits, which are
/// compared instead, for two logits may have one score. Sums of sigmoid scores, by which groups are compared, have an
/// order of their own.
pub struct Route<'a> {
    /// `[T,E]`
    pub logits: MatRef<'a>,
    /// `[E]`
    pub correction: Option<&'a [f32]>,
    /// The rule.
    pub routing: Routing,
    /// `[T,k]`, in ascending order for each token.
    pub choice: &'a mut [i32],
    /// `[T,k]`
    pub weights: MatMut<'a>,
}

impl Kernel for Route<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let (tokens, experts, per_token) = (self.logits.rows(), self.logits.cols(), self.weights.cols());
        assert_eq!((self.choice.len(), self.weights.rows()), (tokens * per_token, tokens), "k slots for each token");
        assert!(self.correction.is_none_or(|correction| correction.len() == experts), "a correction for each expert");
        let mut chooser = Chooser::new(self.routing, experts, per_token);
        let (mut chosen, mut of_scores) = (Chosen::new(per_token), vec![0.0; experts]);
        for (row, choice) in self.choice.chunks_exact_mut(per_token).enumerate() {
            let logits = self.logits.row(row);
            let compared = if chooser.compares_scores(self.correction) {
                scores::<L>(self.routing.scores, logits, &mut of_scores);
                for (score, correction) in of_scores.iter_mut().zip(self.correction.unwrap_or_default()) {
                    *score += correction;
                }
                &of_scores
            } else {
                logits
            };
            chooser.choose(compared, choice);
            chosen.compute::<L>(self.routing, logits, choice);
            for (weight, share) in self.weights.row_mut(row).iter_mut().zip(&chosen.shares) {
                *weight = share * self.routing.scale;
            }
        }
    }
}

/// Chooses experts by scores, token by token.
struct Chooser {
    routing: Routing,
    experts: usize,
    best: Best,
    /// Best groups.
    groups: Best,
    /// Best experts of a group.
    of_group: Best,
}

impl Chooser {
    fn new(routing: Routing, experts: usize, per_token: usize) -> Chooser {
        let kept = routing.groups.map_or(1, |groups| groups.kept);
        let counted = match routing.scores {
            RouterScores::Softmax => 1,
            RouterScores::Sigmoid => 2,
        };
        Chooser { routing, experts, best: Best::new(per_token), groups: Best::new(kept), of_group: Best::new(counted) }
    }

    /// Whether scores are compared rather than logits.
    fn compares_scores(&self, correction: Option<&[f32]>) -> bool {
        let sums = self.routing.groups.is_some() && self.routing.scores == RouterScores::Sigmoid;
        correction.is_some() || sums
    }

    /// The best experts by `scores[E]`, in ascending order.
    fn choose(&mut self, scores: &[f32], choice: &mut [i32]) {
        self.best.clear();
        match self.routing.groups {
            None => {
                for (expert, score) in scores.iter().enumerate() {
                    self.best.offer(expert, *score);
                }
            }
            Some(groups) => {
                let size = self.experts / groups.number;
                self.groups.clear();
                for (group, of_group) in scores.chunks_exact(size).enumerate() {
                    self.of_group.clear();
                    for (expert, score) in of_group.iter().enumerate() {
                        self.of_group.offer(expert, *score);
                    }
                    self.groups.offer(group, self.of_group.sum());
                }
                for group in self.groups.in_ascending_order() {
                    let first = group * size;
                    for (expert, score) in scores[first..first + size].iter().enumerate() {
                        self.best.offer(first + expert, *score);
                    }
                }
            }
        }
        for (slot, expert) in choice.iter_mut().zip(self.best.in_ascending_order()) {
            *slot = expert as i32;
        }
    }
}
