//! Orders of the passes of microbatches.

use std::fmt;

use config::{GivenSchedule, ScheduleKind, ScheduleSpec};

/// Stages of each rank where the schedule is read from a file.
const GIVEN_STAGES: usize = 2;

/// Where the order of passes comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Schedule {
    Generated(ScheduleKind),
    /// It is read from a file: two neighbouring stages on each rank, as no generated schedule has them, all forwards
    /// first, gradients of weights last.
    Given,
}

impl Schedule {
    /// Every schedule that is generated, interleaved with two stages per rank.
    pub const GENERATED: [ScheduleKind; 8] = [
        ScheduleKind::OneForwardOneBackward,
        ScheduleKind::GPipe,
        ScheduleKind::Interleaved { stages_per_rank: 2 },
        ScheduleKind::ZeroBubbleH1,
        ScheduleKind::ZeroBubbleH2,
        ScheduleKind::ZeroBubbleV,
        ScheduleKind::ZeroBubbleAuto { memory_percent: 100 },
        ScheduleKind::ZeroBubbleAuto { memory_percent: 200 },
    ];

    /// All forwards first.
    pub const GPIPE: Schedule = Schedule::Generated(ScheduleKind::GPipe);

    /// All generated schedules, and a file.
    pub fn all() -> Vec<Schedule> {
        Schedule::GENERATED.into_iter().map(Schedule::Generated).chain([Schedule::Given]).collect()
    }

    /// As a run file resolves it for `pp` ranks.
    pub(super) fn spec(self, pp: usize, num_microbatches: usize) -> ScheduleSpec {
        match self {
            Schedule::Generated(kind) => kind.into(),
            Schedule::Given => {
                let lines: Vec<String> = (0..pp).map(|rank| given_line(rank, num_microbatches)).collect();
                ScheduleSpec::Given(GivenSchedule { path: "schedule.txt".into(), text: lines.join("\n") })
            }
        }
    }

    /// Whether a model of `num_layers` has its stages on `pp` ranks, and microbatches make whole groups.
    pub(super) fn suits(self, pp: usize, num_layers: usize, num_microbatches: usize) -> bool {
        let (stages_per_rank, group) = match self {
            Schedule::Generated(kind) => (kind.stages_per_rank(), kind.microbatch_group(pp)),
            Schedule::Given => (GIVEN_STAGES, 1),
        };
        pp * stages_per_rank <= num_layers + 2 && num_microbatches.is_multiple_of(group)
    }
}

/// The cells of one rank: stages ascend in the forward pass and descend in the backward pass.
fn given_line(rank: usize, num_microbatches: usize) -> String {
    let stages = rank * GIVEN_STAGES..(rank + 1) * GIVEN_STAGES;
    let pass = |stage: usize, kind: char| (0..num_microbatches).map(move |number| format!("{stage}{kind}{number}"));
    let forwards = stages.clone().flat_map(|stage| pass(stage, 'F'));
    let inputs = stages.clone().rev().flat_map(|stage| pass(stage, 'I'));
    let weights = stages.rev().flat_map(|stage| pass(stage, 'W'));
    forwards.chain(inputs).chain(weights).collect::<Vec<_>>().join(" ")
}

/// As its authors write it.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Schedule::Generated(kind) = self else { return f.write_str("a given file") };
        match kind {
            ScheduleKind::GPipe => f.write_str("GPipe"),
            ScheduleKind::OneForwardOneBackward => f.write_str("1F1B"),
            ScheduleKind::Interleaved { stages_per_rank } => write!(f, "interleaved x{stages_per_rank}"),
            ScheduleKind::ZeroBubbleH1 => f.write_str("ZB-H1"),
            ScheduleKind::ZeroBubbleH2 => f.write_str("ZB-H2"),
            ScheduleKind::ZeroBubbleV => f.write_str("ZB-V"),
            ScheduleKind::ZeroBubbleAuto { memory_percent } => write!(f, "ZB-auto {memory_percent} %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_generated() {
        let generated = Schedule::GENERATED.map(ScheduleKind::name);
        let missing = ScheduleKind::ALL.map(ScheduleKind::name).into_iter().filter(|name| !generated.contains(name));
        assert_eq!(missing.collect::<Vec<_>>(), [""; 0], "add them to GENERATED");
    }

    #[test]
    fn a_given_file_puts_neighbouring_stages_on_a_rank() {
        let ScheduleSpec::Given(given) = Schedule::Given.spec(2, 2) else { panic!("not given") };
        assert_eq!(
            given.text,
            "0F0 0F1 1F0 1F1 1I0 1I1 0I0 0I1 1W0 1W1 0W0 0W1\n2F0 2F1 3F0 3F1 3I0 3I1 2I0 2I1 3W0 3W1 2W0 2W1"
        );
    }
}
