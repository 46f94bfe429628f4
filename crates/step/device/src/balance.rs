//! Operations that balance experts: counts of choices, losses of routers, corrections of choices.
//!
//! Letters: `T` tokens, `E` experts, `k` chosen ones, `R` runs of equally many tokens that follow each other, such as
//! sequences. A load is relative to that of balanced routing: `load_i = E c_i / sum over j of c_j` for counts `c`, 0
//! for experts of a run without any.

use config::{ModelSpec, RouterScores};

use crate::op::{Family, SUM_WORDS, Write, out_if_accumulated};
use crate::operands::Operands;
use crate::{Op, Tensor};

/// One operation that balances experts, see [`Op`]. Tensors whose type is not said are F32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BalanceOp {
    /// `counts[R,E]` I64 = or += the slots of `choice[T,k]` I32 with each expert, of the tokens of each run whose
    /// `labels[1,T]` I32 are not [`config::IGNORED_LABEL`].
    CountChoices { choice: Tensor, labels: Tensor, counts: Tensor, write: Write },
    /// `kept[T,k]` I32 = `choice[T,k]` I32, but -1 for those beyond `capacity` tokens of a sequence for each of
    /// `experts`: those with the smallest `weights[T,k]`, of equal ones the later tokens. Tokens without a label in
    /// `labels[1,T]` I32 neither count nor are dropped. `dropped[1,1]` I64 += their number.
    LimitChoices {
        choice: Tensor,
        weights: Tensor,
        labels: Tensor,
        sequences: usize,
        experts: usize,
        capacity: usize,
        kept: Tensor,
        dropped: Option<Tensor>,
    },
    /// `load[R,E]` of `counts[R,E]` I64; each number is rounded once.
    Load { counts: Tensor, load: Tensor },
    /// Losses and entropy of each token, from `logits[T,E]`. Tokens without a label have them, too: [`Op::LossSum`]
    /// leaves them out.
    RouterLosses { logits: Tensor, scores: RouterScores, terms: RouterTerms, values: RouterValues },
    /// `dlogits[T,E]` += `scale` times the gradient of the losses of the tokens with a label in `labels[1,T]` I32.
    /// Loads are constants.
    RouterLossesBackward {
        logits: Tensor,
        labels: Tensor,
        scores: RouterScores,
        terms: RouterTerms,
        scale: f32,
        dlogits: Tensor,
    },
    /// `correction[R,E]` += `rate sign(sum over j of c_j - E c_i)`, from `counts[R,E]` I64: integers are compared, and
    /// the sum is rounded once.
    Correct { counts: Tensor, rate: f32, correction: Tensor },
}

/// The losses of a router. Scores `p` add up to 1: softmax, or sigmoids divided by the sum of all plus 1e-20.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RouterTerms {
    /// `coefficient * sum over i of load_i p_i`.
    pub balance: Option<BalanceTerm>,
    /// Coefficient of `log(sum over i of exp(logit_i))^2`.
    pub z_loss: Option<f32>,
}

/// The balance loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BalanceTerm {
    pub coefficient: f32,
    /// `[R,E]`: of the run of each token.
    pub load: Tensor,
}

/// Where values of each token go, `[1,T]`, assigned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RouterValues {
    /// The balance loss; 0 without one.
    pub balance: Option<Tensor>,
    /// The z-loss; 0 without one.
    pub z_loss: Option<Tensor>,
    /// `- sum over i of p_i log p_i`, in nats.
    pub entropy: Option<Tensor>,
}

/// I64 words that a training step of `model` sums over all ranks, besides the squares of gradients: a sum for each
/// loss, then the counts of choices and that of dropped ones.
pub fn step_sum_words(model: &ModelSpec) -> usize {
    model.num_losses() * SUM_WORDS + model.num_choice_counts()
}

impl From<BalanceOp> for Op {
    fn from(op: BalanceOp) -> Op {
        Op::Balance(op)
    }
}

impl BalanceOp {
    /// See [`Op::name`].
    pub(crate) fn name(&self) -> &'static str {
        match self {
            BalanceOp::CountChoices { .. } => "count_choices",
            BalanceOp::LimitChoices { .. } => "limit_choices",
            BalanceOp::Load { .. } => "load",
            BalanceOp::RouterLosses { .. } => "router_losses",
            BalanceOp::RouterLossesBackward { .. } => "router_losses_backward",
            BalanceOp::Correct { .. } => "correct",
        }
    }

    /// See [`Op::family`].
    pub(crate) fn family(&self) -> Family {
        match self {
            BalanceOp::CountChoices { .. } | BalanceOp::Load { .. } | BalanceOp::RouterLosses { .. } => Family::Memory,
            BalanceOp::RouterLossesBackward { .. } | BalanceOp::Correct { .. } => Family::Memory,
            BalanceOp::LimitChoices { .. } => Family::Memory,
        }
    }

    /// See [`Op::operands`].
    pub(crate) fn operands(&self) -> Operands {
        match *self {
            BalanceOp::CountChoices { choice, labels, counts, write } => {
                Operands::new([Some(choice), Some(labels), out_if_accumulated(counts, write)], [Some(counts)])
            }
            BalanceOp::LimitChoices { choice, weights, labels, kept, dropped, .. } => {
                Operands::new([Some(choice), Some(weights), Some(labels), dropped], [Some(kept), dropped])
            }
            BalanceOp::Load { counts, load } => Operands::new([Some(counts)], [Some(load)]),
            BalanceOp::RouterLosses { logits, scores: _, terms, values } => {
                let RouterValues { balance, z_loss, entropy } = values;
                Operands::new([Some(logits), terms.load()], [balance, z_loss, entropy])
            }
            BalanceOp::RouterLossesBackward { logits, labels, scores: _, terms, scale: _, dlogits } => {
                Operands::new([Some(logits), Some(labels), terms.load(), Some(dlogits)], [Some(dlogits)])
            }
            BalanceOp::Correct { counts, rate: _, correction } => {
                Operands::new([counts, correction].map(Some), [Some(correction)])
            }
        }
    }
}

impl RouterTerms {
    /// Whether there is no loss.
    pub fn is_empty(&self) -> bool {
        self.balance.is_none() && self.z_loss.is_none()
    }

    fn load(&self) -> Option<Tensor> {
        self.balance.map(|balance| balance.load)
    }
}
