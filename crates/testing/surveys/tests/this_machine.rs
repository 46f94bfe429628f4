//! The memory of layouts on this machine: ranks write what their plan has places for, and resident memory follows.
//!
//! Times on a machine that others use say nothing here.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use std::path::Path;

use cluster::{Cluster, named};
use config::{Overlap, UnitClass};
use program::{Sizes, plan_memory};
use surveys::this_machine::{LAYOUTS, PlannedArena, Predicted, predict, prepared, run_in_child, run_layout};

/// ZeRO-3, sequence parallelism and ZB-H1.
const SHARDED_AND_SPLIT: [usize; 3] = [6, 8, 11];

/// The smallest buffer between two units: the residual stream of one sequence, 128 tokens of 256 channels of 4 bytes.
const BUFFER_BYTES: usize = 128 * 256 * 4;

/// Places that a run leaves unwritten: less than a buffer in all, or the plan has a buffer too many.
fn is_met(planned: PlannedArena, written_bytes: usize) -> bool {
    written_bytes <= planned.used_bytes && planned.used_bytes - written_bytes < BUFFER_BYTES
}

fn predicted(index: usize) -> Predicted {
    let cluster = Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap();
    predict(&cluster, LAYOUTS[index]).unwrap()
}

/// The arena of the first rank, where the sizes of values are others.
fn planned_with(index: usize, change: impl FnOnce(&mut Sizes)) -> PlannedArena {
    let step = prepared(LAYOUTS[index]).unwrap();
    let mut sizes = step.sizes;
    change(&mut sizes);
    PlannedArena::of(&plan_memory(&step.graph, &sizes, Overlap::Off).ranks[0])
}

#[test]
fn ranks_write_what_their_plan_has_places_for() {
    for index in SHARDED_AND_SPLIT {
        let (name, _) = LAYOUTS[index];
        let written = run_layout(LAYOUTS[index]).unwrap().written_bytes;
        let arenas = predicted(index).arenas;
        assert_eq!(written.len(), arenas.len());
        for (arena, written) in arenas.iter().zip(&written) {
            assert!(is_met(*arena, *written), "{name}: {written} bytes written, {arena:?}");
        }
        // A plan of layers that keep or exchange one buffer more, or less, is not met by what was written.
        let more = planned_with(index, |sizes| {
            sizes.footprints.units[UnitClass::Layer(0)].saved_until_weight_bytes += BUFFER_BYTES
        });
        let less = planned_with(index, |sizes| {
            sizes.footprints.units[UnitClass::Layer(0)].saved_until_weight_bytes -= BUFFER_BYTES
        });
        assert!(!is_met(more, written[0]), "{name}: {} bytes written, {more:?}", written[0]);
        assert!(!is_met(less, written[0]), "{name}: {} bytes written, {less:?}", written[0]);
    }
}

/// Per rank, its stack and what the process allocates for messages and reports: at most the stack of a thread.
const STACK_BYTES: usize = 2 << 20;

#[cfg(target_os = "linux")]
#[test]
fn the_process_grows_by_its_arenas_and_packing_buffers() {
    let grown: Vec<(usize, usize)> = SHARDED_AND_SPLIT
        .into_iter()
        .map(|index| {
            let measured = run_in_child(Path::new(env!("CARGO_BIN_EXE_survey")), index).unwrap();
            let grown = measured.peak_bytes.unwrap() - measured.before_bytes.unwrap();
            (grown, measured.written_bytes.iter().sum())
        })
        .collect();
    for (index, (grown, written)) in SHARDED_AND_SPLIT.into_iter().zip(&grown) {
        let (name, _) = LAYOUTS[index];
        let predicted = predicted(index);
        let most = predicted.resident_bytes() + STACK_BYTES * predicted.arenas.len();
        assert!(
            written <= grown && *grown <= most,
            "{name}: {written} bytes written, {grown} more resident, {most} at most"
        );
    }
    // The bounds tell layouts apart: ZeRO-3 does not fit into the bound of sequence parallelism.
    let of_sequence_parallelism = predicted(SHARDED_AND_SPLIT[1]);
    let most = of_sequence_parallelism.resident_bytes() + STACK_BYTES * of_sequence_parallelism.arenas.len();
    assert!(grown[0].0 > most, "{} more resident, {most} at most", grown[0].0);
}
