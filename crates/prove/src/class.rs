//! What a change of layout may change in the result.

use std::fmt;

use spec::{GradientReduction, Parallelism};

/// The promise for two layouts of one run, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EqualityClass {
    /// Every sum has the same terms in the same order: bit-identical losses, norms and weights.
    SameOrder,
    /// Sums over sequences are grouped differently: data parallelism, the microbatch size, the sharding groups or the time of
    /// reduction differ.
    OtherOrder,
    /// Sums over hidden dims are split between ranks: tensor parallelism differs.
    OtherSums,
}

impl EqualityClass {
    /// The class of changing `a` into `b`, other things equal.
    pub fn of(a: &Parallelism, b: &Parallelism) -> EqualityClass {
        if a.tp != b.tp {
            EqualityClass::OtherSums
        } else if a.dp != b.dp || a.microbatch_size != b.microbatch_size || gradient_order(a) != gradient_order(b) {
            EqualityClass::OtherOrder
        } else {
            EqualityClass::SameOrder
        }
    }
}

/// What decides the order of a gradient's terms besides dp and the microbatch size: how many replicas are summed before
/// their sums are, and when. Groups of one are summed as all are, in rank order.
pub fn gradient_order(parallelism: &Parallelism) -> (usize, GradientReduction) {
    let group = match parallelism.shard_group() {
        1 => parallelism.dp,
        group => group,
    };
    (group, parallelism.zero.reduction())
}

impl fmt::Display for EqualityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EqualityClass::SameOrder => "same order",
            EqualityClass::OtherOrder => "other order",
            EqualityClass::OtherSums => "other sums",
        })
    }
}
