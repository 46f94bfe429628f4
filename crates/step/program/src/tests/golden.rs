//! Golden files: schedules and programs as text. `UPDATE_GOLDEN=1 cargo test -p program` writes them again.

use std::fmt::Write;
use std::path::Path;

use crate::{CellTimes, Purpose, Schedule, StageCosts, Timeline};
use config::{FullRecompute, Recompute, SavedInputs, ScheduleKind};

use crate::tests::setup::{Setup, ZERO_3};

/// Compares `text` with a golden file, or writes the file where the environment asks for it.
fn check(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = golden.lines().zip(text.lines()).position(|(golden, new)| golden != new);
    assert!(
        golden == text,
        "{file} differs from line {:?} on; if that is meant, renew it with UPDATE_GOLDEN=1\n{text}",
        difference.map(|line| line + 1)
    );
}

const TIMES: CellTimes = CellTimes { forward: 2, backward_input: 2, backward_weight: 2, transfer: 0 };

fn drawn(kind: ScheduleKind, pp: usize, num_microbatches: usize) -> String {
    let schedule = Schedule::generate(kind, pp, num_microbatches, &StageCosts::EVEN);
    let mut text = String::new();
    writeln!(text, "# {kind:?}, {pp} ranks, {num_microbatches} microbatches").unwrap();
    writeln!(text, "{schedule}\n{}", Timeline::new(&schedule, TIMES)).unwrap();
    text
}

#[test]
fn schedules_are_as_printed() {
    let few = [(1, 3), (2, 4), (4, 8), (4, 2)];
    // Microbatches pass in groups of as many as there are ranks.
    let groups = [(1, 3), (2, 4), (4, 8), (4, 4)];
    for (file, kind, sizes) in [
        ("gpipe.txt", ScheduleKind::GPipe, few),
        ("1f1b.txt", ScheduleKind::OneForwardOneBackward, few),
        ("interleaved_2.txt", ScheduleKind::Interleaved { stages_per_rank: 2 }, groups),
        ("interleaved_3.txt", ScheduleKind::Interleaved { stages_per_rank: 3 }, groups),
        ("zb_h1.txt", ScheduleKind::ZeroBubbleH1, few),
        ("zb_h2.txt", ScheduleKind::ZeroBubbleH2, few),
        ("zb_v.txt", ScheduleKind::ZeroBubbleV, few),
        ("zb_auto_100.txt", ScheduleKind::ZeroBubbleAuto { memory_percent: 100 }, few),
        ("zb_auto_200.txt", ScheduleKind::ZeroBubbleAuto { memory_percent: 200 }, few),
    ] {
        let text: String = sizes.map(|(pp, num_microbatches)| drawn(kind, pp, num_microbatches)).concat();
        check(file, &text);
    }
}

#[test]
fn programs_are_as_printed() {
    let small = Setup { num_layers: 3, num_microbatches: 2, ..Setup::default() };
    let one_layer = |recompute| Setup { pp: 1, num_layers: 1, recompute, ..small.clone() };
    let some_sharded = Recompute::Full(FullRecompute { every: 2, inputs: SavedInputs::Sharded });
    let setups = [
        ("train.txt", small.clone()),
        ("train_recompute_one_rank.txt", one_layer(Recompute::FULL)),
        ("train_recompute_core_one_rank.txt", one_layer(Recompute::Selective)),
        ("train_recompute_some_sharded.txt", Setup { recompute: some_sharded, ..small.clone() }),
        ("train_zero_3.txt", Setup { zero: ZERO_3, ..small.clone() }),
        ("evaluate.txt", Setup { purpose: Purpose::Evaluate, ..small.clone() }),
        ("generate.txt", Setup { purpose: Purpose::Generate, num_microbatches: 1, tied: false, ..small.clone() }),
        ("train_v.txt", Setup { kind: ScheduleKind::ZeroBubbleV, num_layers: 2, ..small }),
    ];
    for (file, setup) in setups {
        let programs: Vec<String> = setup.programs().iter().map(ToString::to_string).collect();
        check(file, &programs.join("\n"));
    }
}
