//! The tensors of routers that a rank has once: corrections of their choice and loads, and what a step counts.

use config::{Balance, ExpertsSpec, ModelSpec, Statistics};
use device::{Dtype, Frame, SUM_WORDS, Tensor};

/// Tensors of the routers of all layers with experts, a row for each ([`ExpertsSpec::row_of`]): equal on all ranks but
/// for the sums of a step until ranks add them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterConstants {
    /// `[L,E]`, F32: added to choice scores, where these are corrected. It changes between steps alone.
    pub corrections: Option<Tensor>,
    /// `[L,E]`, F32: the load of the step before, where a loss is of it. It changes between steps alone.
    pub loads: Option<Tensor>,
    /// `[L,E]`, I64: choices of the step.
    pub counts: Option<Tensor>,
    /// `[1,1]`, I64: dropped choices of the step, of all layers, where experts have a capacity.
    pub dropped: Option<Tensor>,
    /// I64 `[1, SUM_WORDS]`: sum of the entropy of scores over layers and tokens.
    pub entropy_sums: Option<Tensor>,
    /// The same of the balance loss.
    pub balance_sums: Option<Tensor>,
    /// The same of the z-loss of routers.
    pub z_loss_sums: Option<Tensor>,
}

/// One router's row of each tensor of [`RouterConstants`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RouterRow {
    pub(crate) correction: Option<Tensor>,
    pub(crate) load: Option<Tensor>,
    pub(crate) counts: Option<Tensor>,
}

impl RouterConstants {
    /// Lays out what is kept from step to step in `tables`; `sums` are the last words of the step's sums, of which the
    /// first are those of `of_tokens` losses of other kinds. `None` for a model without experts.
    pub(crate) fn lay_out(tables: &Frame, model: &ModelSpec, (sums, of_tokens): (Tensor, usize)) -> Option<Self> {
        let layers = model.num_expert_layers();
        let ExpertsSpec { number, balance, .. } = model.experts.filter(|_| layers > 0)?;
        let Balance { loss, over: _, z_loss, bias, capacity, statistics } = balance;
        let mut first_word = of_tokens * SUM_WORDS;
        let mut next = |is_summed: bool, words: usize| {
            let place = is_summed.then(|| sums.elements(first_word..first_word + words));
            first_word += if is_summed { words } else { 0 };
            place
        };
        let entropy_sums = next(statistics == Statistics::On, SUM_WORDS);
        let (balance_sums, z_loss_sums) = (next(loss.is_some(), SUM_WORDS), next(z_loss.is_some(), SUM_WORDS));
        let counts = next(balance.counts_choices(), layers * number);
        let dropped = next(balance.counts_choices() && capacity.is_some(), 1);
        let kept = |is_kept: bool| is_kept.then(|| tables.tensor(layers, number, Dtype::F32));
        Some(RouterConstants {
            corrections: kept(bias.is_some()),
            loads: kept(balance.has_load_of_step()),
            counts: counts.map(|counts| counts.reshaped(layers, number)),
            dropped,
            entropy_sums,
            balance_sums,
            z_loss_sums,
        })
    }

    /// The tensors of the router in row `row`.
    pub(crate) fn of_row(&self, row: usize) -> RouterRow {
        let of = |tensor: Option<Tensor>| tensor.map(|tensor| tensor.rows_of(row..row + 1));
        RouterRow { correction: of(self.corrections), load: of(self.loads), counts: of(self.counts) }
    }
}
