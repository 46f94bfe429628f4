//! What a change of layout may change in the result.

use std::fmt;

use program::{ContributionOrder, Schedule};
use spec::{Parallelism, ScheduleSpec};

/// The promise for two layouts of one run, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EqualityClass {
    /// Every sum has the same terms in the same order: bit-identical losses, norms and weights.
    SameOrder,
    /// Sums over sequences are grouped differently: data parallelism or the microbatch size differ, or a schedule that was written down
    /// adds microbatches in another order.
    OtherOrder,
    /// Sums over hidden dims are split between ranks: tensor parallelism differs.
    OtherSums,
}

impl EqualityClass {
    /// The class of changing `a` into `b`, other things equal.
    pub fn of(a: &Parallelism, b: &Parallelism) -> EqualityClass {
        if a.tp != b.tp {
            EqualityClass::OtherSums
        } else if a.dp != b.dp || a.microbatch_size != b.microbatch_size || !adds_alike(&a.schedule, &b.schedule) {
            EqualityClass::OtherOrder
        } else {
            EqualityClass::SameOrder
        }
    }
}

/// Whether two schedules add microbatches to gradients in the same order: all that are generated do, in ascending order.
fn adds_alike(a: &ScheduleSpec, b: &ScheduleSpec) -> bool {
    a == b || [a, b].iter().all(|schedule| is_ascending(schedule))
}

fn is_ascending(schedule: &ScheduleSpec) -> bool {
    match schedule {
        ScheduleSpec::Generated(_) => true,
        ScheduleSpec::Given(given) => given
            .text
            .parse::<Schedule>()
            .is_ok_and(|schedule| schedule.contribution_order() == ContributionOrder::Ascending),
    }
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
