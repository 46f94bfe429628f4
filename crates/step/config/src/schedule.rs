//! Which schedule a pipeline runs, with what it needs.

use std::path::PathBuf;

/// Declares [`ScheduleKind`]: each schedule with its options, their defaults, and its name in run files.
macro_rules! schedules {
    ($(
        $(#[$doc:meta])*
        $kind:ident $({ $($(#[$of_option:meta])* $option:ident: $type:ty = $default:expr),+ $(,)? })? = $name:literal
    ),+ $(,)?) => {
        /// A schedule that is generated from the number of ranks and microbatches.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ScheduleKind {
            $($(#[$doc])* $kind $({ $($(#[$of_option])* $option: $type),+ })?),+
        }

        impl ScheduleKind {
            /// One of each, its options at their defaults, in the order of messages.
            pub const ALL: [ScheduleKind; [$($name),+].len()] =
                [$(ScheduleKind::$kind $({ $($option: $default),+ })?),+];

            /// The names of [`ScheduleKind::ALL`] in run files.
            pub(crate) const NAMED: &[(&'static str, ScheduleKind)] =
                &[$(($name, ScheduleKind::$kind $({ $($option: $default),+ })?)),+];

            /// Its name in run files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ScheduleKind::$kind { .. } => $name),+
                }
            }
        }
    };
}

schedules! {
    /// All forwards, then all backwards.
    GPipe = "gpipe",
    /// One forward, one backward, with a flush (PipeDream-Flush).
    OneForwardOneBackward = "1f1b",
    /// 1F1B over several stages per rank, placed in turns (Megatron-LM).
    Interleaved {
        /// Stages of each rank.
        stages_per_rank: usize = 2,
    } = "interleaved",
    /// Backward passes split in two, as many activations as 1F1B (Qi et al., ZB-H1).
    ZeroBubbleH1 = "zb-h1",
    /// Backward passes split in two, twice the activations of 1F1B (Qi et al., ZB-H2).
    ZeroBubbleH2 = "zb-h2",
    /// Two stages per rank, placed in a V: the first rank has the first stage and the last (Qi et al., ZB-V).
    ZeroBubbleV = "zb-v",
    /// Backward passes split in two, ordered by a search under a limit of memory (Qi et al., ZB-1p and ZB-2p).
    ZeroBubbleAuto {
        /// Microbatches that a rank may hold, in hundredths of `pp`, which 1F1B's first rank holds: 100 is ZB-1p, 200
        /// is ZB-2p.
        memory_percent: usize = 100,
    } = "zb-auto",
}

/// A schedule that was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenSchedule {
    /// Where.
    pub path: PathBuf,
    /// One line of cells per pipeline rank.
    pub text: String,
}

/// The order of compute cells on pipeline ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleSpec {
    Generated(ScheduleKind),
    /// Read from a file.
    Given(GivenSchedule),
}

impl From<ScheduleKind> for ScheduleSpec {
    fn from(kind: ScheduleKind) -> ScheduleSpec {
        ScheduleSpec::Generated(kind)
    }
}

impl ScheduleKind {
    /// Stages of each rank.
    pub fn stages_per_rank(self) -> usize {
        match self {
            ScheduleKind::Interleaved { stages_per_rank } => stages_per_rank,
            ScheduleKind::ZeroBubbleV => 2,
            ScheduleKind::GPipe
            | ScheduleKind::OneForwardOneBackward
            | ScheduleKind::ZeroBubbleH1
            | ScheduleKind::ZeroBubbleH2
            | ScheduleKind::ZeroBubbleAuto { .. } => 1,
        }
    }

    /// Passes of a microbatch through one stage whose activations a rank holds at once, at most.
    pub fn held_passes(self, pp: usize, num_microbatches: usize) -> usize {
        let all = num_microbatches.saturating_mul(self.stages_per_rank());
        let most = match self {
            ScheduleKind::GPipe => all,
            ScheduleKind::OneForwardOneBackward | ScheduleKind::ZeroBubbleH1 => pp,
            ScheduleKind::Interleaved { stages_per_rank } => (stages_per_rank + 1).saturating_mul(pp) - 1,
            ScheduleKind::ZeroBubbleH2 => 2 * pp - 1,
            ScheduleKind::ZeroBubbleV => 2 * pp,
            ScheduleKind::ZeroBubbleAuto { memory_percent } => memory_percent.saturating_mul(pp) / 100,
        };
        most.min(all)
    }

    /// The multiple of which the microbatches have to be: an interleaved schedule passes them in groups of `pp`.
    pub fn microbatch_group(self, pp: usize) -> usize {
        match self {
            ScheduleKind::Interleaved { .. } => pp,
            ScheduleKind::GPipe
            | ScheduleKind::OneForwardOneBackward
            | ScheduleKind::ZeroBubbleH1
            | ScheduleKind::ZeroBubbleH2
            | ScheduleKind::ZeroBubbleV
            | ScheduleKind::ZeroBubbleAuto { .. } => 1,
        }
    }
}

impl ScheduleSpec {
    /// Stages of each rank; `None` where only the text of a given schedule tells.
    pub fn stages_per_rank(&self) -> Option<usize> {
        match self {
            ScheduleSpec::Generated(kind) => Some(kind.stages_per_rank()),
            ScheduleSpec::Given(_) => None,
        }
    }
}
