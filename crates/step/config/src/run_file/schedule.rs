//! The keys of `[parallelism]` that name a schedule and give it what it needs.

use std::path::Path;

use super::Files;
use super::reader::{Choices, Reader, name_of};
use super::writer::Writer;
use crate::problem::Problem;
use crate::schedule::{GivenSchedule, ScheduleKind, ScheduleSpec};

const SCHEDULE: &str = "parallelism.schedule";
const SCHEDULE_FILE: &str = "parallelism.schedule_file";
const STAGES_PER_RANK: &str = "parallelism.stages_per_rank";
const MEMORY_PERCENT: &str = "parallelism.schedule_memory_percent";

/// A schedule without what it needs.
#[derive(Clone, Copy, PartialEq)]
enum Name {
    GPipe,
    OneForwardOneBackward,
    Interleaved,
    ZeroBubbleH1,
    ZeroBubbleH2,
    ZeroBubbleV,
    ZeroBubbleAuto,
}

const NAMES: &Choices<Name> = &[
    ("gpipe", Name::GPipe),
    ("1f1b", Name::OneForwardOneBackward),
    ("interleaved", Name::Interleaved),
    ("zb-h1", Name::ZeroBubbleH1),
    ("zb-h2", Name::ZeroBubbleH2),
    ("zb-v", Name::ZeroBubbleV),
    ("zb-auto", Name::ZeroBubbleAuto),
];

/// Reads the schedule: by name, or from a file that `files` reads.
pub fn read(reader: &mut Reader, files: &dyn Files) -> ScheduleSpec {
    let name = reader.choice(SCHEDULE, NAMES, Name::OneForwardOneBackward);
    let stages_per_rank = reader.count(STAGES_PER_RANK, 2);
    let memory_percent = reader.count(MEMORY_PERCENT, 100);
    let given = reader.optional_text(SCHEDULE_FILE);
    let is_given = given.is_some();
    for (key, of) in [(STAGES_PER_RANK, Name::Interleaved), (MEMORY_PERCENT, Name::ZeroBubbleAuto)] {
        if reader.is_set(key) && (is_given || name != of) {
            let with = name_of(NAMES, of);
            let rule = format!("has no effect without {SCHEDULE} = \"{with}\"");
            reader.report(Problem::of_key(key, rule, "leave it out"));
        }
    }
    if let Some(path) = given {
        return ScheduleSpec::Given(given_schedule(reader, &path, files));
    }
    ScheduleSpec::Generated(match name {
        Name::GPipe => ScheduleKind::GPipe,
        Name::OneForwardOneBackward => ScheduleKind::OneForwardOneBackward,
        Name::Interleaved => ScheduleKind::Interleaved { stages_per_rank },
        Name::ZeroBubbleH1 => ScheduleKind::ZeroBubbleH1,
        Name::ZeroBubbleH2 => ScheduleKind::ZeroBubbleH2,
        Name::ZeroBubbleV => ScheduleKind::ZeroBubbleV,
        Name::ZeroBubbleAuto => ScheduleKind::ZeroBubbleAuto { memory_percent },
    })
}

fn given_schedule(reader: &mut Reader, path: &str, files: &dyn Files) -> GivenSchedule {
    if reader.is_set(SCHEDULE) {
        let rule = format!("and {SCHEDULE_FILE} are both given");
        reader.report(Problem::of_key(SCHEDULE, rule, "leave one of them out"));
    }
    let text = files.text(Path::new(path)).unwrap_or_else(|reason| {
        reader.report(Problem::of_value(SCHEDULE_FILE, format!("{path:?}"), format!("cannot be read: {reason}"), ""));
        String::new()
    });
    GivenSchedule { path: path.into(), text }
}

/// Writes the keys that have a meaning for this schedule.
pub fn write(schedule: &ScheduleSpec, writer: &mut Writer) {
    let kind = match schedule {
        ScheduleSpec::Given(given) => return writer.text("schedule_file", &given.path.to_string_lossy()),
        ScheduleSpec::Generated(kind) => *kind,
    };
    writer.text("schedule", schedule_name(kind));
    match kind {
        ScheduleKind::Interleaved { stages_per_rank } => writer.count("stages_per_rank", stages_per_rank),
        ScheduleKind::ZeroBubbleAuto { memory_percent } => writer.count("schedule_memory_percent", memory_percent),
        ScheduleKind::GPipe
        | ScheduleKind::OneForwardOneBackward
        | ScheduleKind::ZeroBubbleH1
        | ScheduleKind::ZeroBubbleH2
        | ScheduleKind::ZeroBubbleV => {}
    }
}

/// The name of a schedule in run files.
pub fn schedule_name(kind: ScheduleKind) -> &'static str {
    let name = match kind {
        ScheduleKind::GPipe => Name::GPipe,
        ScheduleKind::OneForwardOneBackward => Name::OneForwardOneBackward,
        ScheduleKind::Interleaved { .. } => Name::Interleaved,
        ScheduleKind::ZeroBubbleH1 => Name::ZeroBubbleH1,
        ScheduleKind::ZeroBubbleH2 => Name::ZeroBubbleH2,
        ScheduleKind::ZeroBubbleV => Name::ZeroBubbleV,
        ScheduleKind::ZeroBubbleAuto { .. } => Name::ZeroBubbleAuto,
    };
    name_of(NAMES, name)
}
