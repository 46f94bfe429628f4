//! Layouts before and after a resumption.

use std::sync::OnceLock;

use config::{
    Degrees, Format, Gathering, GradientReduction, GradientSums, Parallelism, Recompute, Reshard, ScheduleKind,
    SequenceParallel, Tied, TrainSpec, ZeroStage,
};
use prove::{EqualityClass, Outcome};
use testkit::layout::Layout;
use testkit::models::plain_layout;

use crate::resume::rig::layout;
use crate::resume::text;

/// One layout before the resumption and one after it.
#[derive(Clone)]
pub struct Pair {
    pub before: Layout,
    pub after: Layout,
    /// The run of `before` that is not stopped, once somebody has asked for it.
    undisturbed: OnceLock<Result<Outcome, String>>,
}

pub const THREE: ZeroStage = ZeroStage::Three {
    reduce: GradientReduction::Step,
    gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse },
};

pub fn zero(zero: ZeroStage, dp: usize, tp: usize, pp: usize) -> Parallelism {
    Parallelism { zero, ..plain_layout(dp, tp, pp, 1) }
}

impl Pair {
    pub fn new(before: Parallelism, after: Parallelism) -> Pair {
        let [before, after] = [before, after].map(|parallelism| layout(Tied::Yes, Format::Fp32, parallelism));
        Pair::of(before, after)
    }

    pub fn of(before: Layout, after: Layout) -> Pair {
        Pair { before, after, undisturbed: OnceLock::new() }
    }

    /// The outcome of the run of `before` that is not stopped: one for all faults.
    pub fn undisturbed(&self) -> Result<&Outcome, String> {
        let run = || self.before.outcome(&*text::shuffled(&self.before.train)).map_err(|error| error.to_string());
        self.undisturbed.get_or_init(run).as_ref().map_err(String::clone)
    }

    /// The same, both trained as `change` says.
    pub fn trained(self, change: impl Fn(TrainSpec) -> TrainSpec) -> Pair {
        let of = |layout: Layout| Layout { train: change(layout.train), ..layout };
        Pair::of(of(self.before), of(self.after))
    }

    pub fn is_same_layout(&self) -> bool {
        self.before.parallelism == self.after.parallelism
    }

    pub fn class(&self) -> EqualityClass {
        let [before, after] = [&self.before, &self.after];
        EqualityClass::of(&before.parallelism, &after.parallelism).in_sums([before.train.sums, after.train.sums])
    }
}

/// GradientSums that do not depend on their order: replicas may change, and the bits are the same.
fn exact(train: TrainSpec) -> TrainSpec {
    TrainSpec { sums: GradientSums::Exact, ..train }
}

/// The same, where two ranks share each sequence.
fn sharing(layout: Parallelism) -> Parallelism {
    Parallelism { degrees: Degrees { cp: 2, ..layout.degrees }, ..layout }
}

/// The same layout of everything at once, and other dp, tp, pp, ZeRO stages, sharding groups, schedules, recomputation
/// and sequence parallelism.
pub fn pairs() -> Vec<Pair> {
    let grouped = Parallelism { shard_group: Some(2), ..zero(THREE, 4, 1, 1) };
    let recomputing = Parallelism { recompute: Recompute::FULL, ..zero(ZeroStage::Off, 2, 1, 3) };
    let v = Parallelism { schedule: ScheduleKind::ZeroBubbleV.into(), ..zero(ZeroStage::One, 2, 1, 2) };
    let of_tokens = Parallelism { sequence_parallel: SequenceParallel::On, ..zero(ZeroStage::Off, 1, 2, 2) };
    vec![
        Pair::new(zero(ZeroStage::One, 2, 2, 2), zero(ZeroStage::One, 2, 2, 2)),
        Pair::new(zero(ZeroStage::One, 2, 1, 2), zero(THREE, 2, 1, 1)),
        Pair::new(v, recomputing),
        Pair::new(zero(ZeroStage::Off, 2, 1, 1), zero(ZeroStage::One, 4, 1, 2)).trained(exact),
        Pair::new(grouped, zero(ZeroStage::Off, 1, 1, 3)).trained(exact),
        Pair::new(zero(ZeroStage::Off, 1, 2, 1), zero(THREE, 2, 1, 2)),
        Pair::new(zero(THREE, 2, 1, 2), of_tokens),
        Pair::new(sharing(zero(ZeroStage::One, 2, 1, 1)), zero(THREE, 2, 1, 1)),
        Pair::new(zero(ZeroStage::One, 2, 1, 1), sharing(zero(THREE, 1, 1, 2))),
    ]
}

/// The finding of a check for a fault that changes the learned weights: classes whose sums have other orders have
/// bounds instead of bits.
pub fn learns_something_else(pair: &Pair) -> &'static str {
    match pair.class() {
        EqualityClass::SameOrder | EqualityClass::AnyOrder => "the bits differ",
        EqualityClass::OtherOrder | EqualityClass::LibraryOrder | EqualityClass::OtherSums => "is the bound",
        EqualityClass::OtherDevice => unreachable!("one engine runs both"),
    }
}
