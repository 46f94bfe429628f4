//! Forms of sharding over data parallelism.

use std::fmt;

use config::{Degrees, Gathering, GradientReduction, Parallelism, Reshard, ZeroStage};
use prove::gradient_order;

/// The values that are sharded over data parallelism, and the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Form {
    /// The sharded values.
    pub zero: ZeroStage,
    /// Among whom.
    pub shard_groups: ShardGroups,
}

/// Which replicas are a sharding group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardGroups {
    /// All replicas are one.
    One,
    /// As few groups as there can be, but several: of `dp` over its smallest prime factor.
    Several,
}

impl Form {
    /// Nothing is sharded.
    pub const WHOLE: Form = Form::one(ZeroStage::Off);

    /// Every stage, both times of reduction, parameters gathered at once and ahead, freed and kept, in one group and in
    /// several.
    pub const ALL: [Form; 8] = [
        Form::one(ZeroStage::One),
        Form::one(three(STEP, 1, Reshard::AfterUse)),
        Form::one(ZeroStage::Two { reduce: MICROBATCH }),
        Form::several(ZeroStage::One),
        Form::WHOLE,
        Form::one(ZeroStage::Two { reduce: STEP }),
        Form::one(three(MICROBATCH, 0, Reshard::AfterUse)),
        Form::several(three(STEP, 2, Reshard::AfterBackward)),
    ];

    /// The forms of the support matrix: every stage, once without and once with sharding groups where they change
    /// something, gradients summed once a step and per microbatch.
    pub const OF_MATRIX: [Form; 8] = [
        Form::WHOLE,
        Form::one(ZeroStage::One),
        Form::one(ZeroStage::Two { reduce: STEP }),
        Form::one(ZeroStage::Two { reduce: MICROBATCH }),
        Form::one(three(STEP, 1, Reshard::AfterUse)),
        Form::one(three(STEP, 1, Reshard::AfterBackward)),
        Form::several(ZeroStage::One),
        Form::several(three(MICROBATCH, 1, Reshard::AfterUse)),
    ];

    /// The forms of long sequences, in one group.
    pub const OF_LONG: [Form; 5] = [
        Form::WHOLE,
        Form::one(ZeroStage::One),
        Form::one(ZeroStage::Two { reduce: MICROBATCH }),
        Form::one(three(STEP, 1, Reshard::AfterUse)),
        Form::one(three(MICROBATCH, 1, Reshard::AfterUse)),
    ];

    /// All replicas are one sharding group.
    pub const fn one(zero: ZeroStage) -> Form {
        Form { zero, shard_groups: ShardGroups::One }
    }

    /// Replicas are several sharding groups.
    pub const fn several(zero: ZeroStage) -> Form {
        Form { zero, shard_groups: ShardGroups::Several }
    }

    /// Replicas of a sharding group of `dp` replicas, if they are not all.
    pub fn shard_group(&self, dp: usize) -> Option<usize> {
        match self.shard_groups {
            ShardGroups::One => None,
            ShardGroups::Several => mesh::divisors(dp).into_iter().rev().find(|divisor| *divisor < dp),
        }
    }

    /// The plainest form that sums gradients in the same order, over the same numbers of replicas and of ranks that
    /// share sequences.
    pub fn reference(&self, degrees: Degrees) -> Form {
        let plain = testkit::models::plain_layout(degrees.dp, 1, 1, 1);
        let layout = |form: &Form| Parallelism {
            degrees: Degrees { cp: degrees.cp, ..plain.degrees },
            zero: form.zero,
            shard_group: form.shard_group(degrees.dp),
            ..plain.clone()
        };
        let own = gradient_order(&layout(self));
        let plain = Form { zero: ZeroStage::Two { reduce: self.zero.reduction() }, ..*self };
        let grouped = Form { zero: ZeroStage::One, ..*self };
        let has_own_order = |form: &Form| gradient_order(&layout(form)) == own;
        [Form::WHOLE, grouped, plain].into_iter().find(has_own_order).unwrap_or(*self)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zero {
            ZeroStage::Off => f.write_str("ZeRO off")?,
            ZeroStage::One => f.write_str("ZeRO-1")?,
            ZeroStage::Two { .. } => f.write_str("ZeRO-2")?,
            ZeroStage::Three { gathering: Gathering { prefetch, reshard }, .. } => {
                write!(f, "ZeRO-3 ahead {prefetch}")?;
                match reshard {
                    Reshard::AfterUse => {}
                    Reshard::AfterBackward => f.write_str(" kept")?,
                }
            }
        }
        match self.zero.reduction() {
            GradientReduction::Step => {}
            GradientReduction::Microbatch => f.write_str(" per microbatch")?,
        }
        match self.shard_groups {
            ShardGroups::One => Ok(()),
            ShardGroups::Several => f.write_str(" in groups"),
        }
    }
}

const STEP: GradientReduction = GradientReduction::Step;
const MICROBATCH: GradientReduction = GradientReduction::Microbatch;

/// Parameters are sharded, too.
pub const fn three(reduce: GradientReduction, prefetch: usize, reshard: Reshard) -> ZeroStage {
    ZeroStage::Three { reduce, gathering: Gathering { prefetch, reshard } }
}
