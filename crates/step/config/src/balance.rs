//! How the load of experts is balanced, and what a step counts of it.

use crate::names::names;

/// The losses of routers, the correction of their choice, and the statistics of a step.
///
/// The load of expert `i` in a set of tokens is `E c_i / sum of c`, where `c` counts the choices of these tokens: 1 for
/// each expert where routing is balanced. Tokens without a label that counts are in no set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balance {
    /// Coefficient `a` of the balance loss `a sum over experts of load_i p_i` of each token and layer, with the token's
    /// scores `p`, which add up to 1 (Fedus et al., arXiv 2101.03961, section 2.2); `None` for none.
    pub loss: Option<f32>,
    /// The set of tokens of whose load the loss is.
    pub over: LoadSet,
    /// Coefficient `a` of the z-loss `a log(sum of exp(logit))^2` of each token and layer (Zoph et al., arXiv
    /// 2202.08906, section 3.3); `None` for none.
    pub z_loss: Option<f32>,
    /// The correction of choice scores; `None` where routers choose by their scores.
    pub bias: Option<RouterBias>,
    /// The most tokens of a sequence that an expert computes in training, relative to its share where routing is
    /// balanced; `None` where it computes all.
    pub capacity: Option<f32>,
    /// Whether the load, the entropy and the losses of routers are reported.
    pub statistics: Statistics,
}

/// The set of tokens of whose load the balance loss is. Neither depends on ranks or microbatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSet {
    /// The sequence of the token.
    Sequence,
    /// All tokens of the step before: its counts are known before this step begins. The first step has no such loss.
    Step,
}

names! { LoadSet: "sequence" = Sequence, "step" = Step }

/// A bias for each expert that is added to choice scores alone, and has no gradient. After each step that updates
/// weights it grows by `rate` where the load of the expert in this step was below 1, and shrinks by it where it was
/// above (Wang et al., arXiv 2408.15664, algorithm 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterBias {
    /// 0 leaves it as it is.
    pub rate: f32,
}

/// Whether the statistics of routers are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    On,
    Off,
}

names! { Statistics: "true" = On, "false" = Off }

impl Balance {
    /// No losses and no correction, with statistics.
    pub const NONE: Balance = Balance {
        loss: None,
        over: LoadSet::Sequence,
        z_loss: None,
        bias: None,
        capacity: None,
        statistics: Statistics::On,
    };

    /// Whether choices of a step are counted.
    pub fn counts_choices(&self) -> bool {
        self.statistics == Statistics::On || self.moves_bias() || self.has_load_of_step()
    }

    /// Whether the correction changes with the load.
    pub fn moves_bias(&self) -> bool {
        self.bias.is_some_and(|bias| bias.rate > 0.0)
    }

    /// Whether the load of the step before is kept.
    pub fn has_load_of_step(&self) -> bool {
        self.loss.is_some() && self.over == LoadSet::Step
    }

    /// Sums of real numbers over the tokens of a step: the entropy, the balance loss, the z-loss.
    pub fn num_sums(&self) -> usize {
        [self.statistics == Statistics::On, self.loss.is_some(), self.z_loss.is_some()].map(usize::from).iter().sum()
    }
}
