//! GPipe: all forwards, then all backwards.

use super::{Cell, CellKind, Schedule};

/// All microbatches forward, then all backward, in ascending order. Bubble: `(pp - 1) (F + B)`; every rank keeps the
/// activations of all microbatches.
pub fn gpipe(pp: usize, num_microbatches: usize) -> Schedule {
    let cells = |stage: usize| {
        let all = |kind| (0..num_microbatches).map(move |microbatch| Cell::new(stage, kind, microbatch));
        all(CellKind::F).chain(all(CellKind::B)).collect()
    };
    Schedule { ranks: (0..pp).map(cells).collect(), stage_map: (0..pp).collect() }
}
