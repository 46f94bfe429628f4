//! 1F1B with the backward pass split in two: what ZB-H1 and ZB-H2 have in common.

use super::{Cell, CellKind, Schedule};

/// How a rank's passes follow each other.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Forwards before forwards and backwards of the input alternate.
    pub ahead: usize,
    /// Microbatches by which the backward of the weights follows that of the input.
    pub delay: usize,
}

/// One stage per rank. After `ahead` forwards a rank repeats: one forward, one backward of the input, and the backward
/// of the weights of the microbatch `delay` earlier.
pub(super) fn split(pp: usize, num_microbatches: usize, pace: impl Fn(usize) -> Pace) -> Schedule {
    let cells = |stage: usize| {
        let Pace { ahead, delay } = pace(stage);
        let (ahead, delay) = (ahead.min(num_microbatches), delay.min(num_microbatches));
        let cell = |kind, microbatch: Option<usize>| {
            microbatch.filter(|number| *number < num_microbatches).map(|number| Cell::new(stage, kind, number))
        };
        let warm_up = (0..ahead).map(|number| cell(CellKind::F, Some(number)));
        let steady = (0..num_microbatches).flat_map(|number| {
            [
                cell(CellKind::F, Some(number + ahead)),
                cell(CellKind::I, Some(number)),
                cell(CellKind::W, number.checked_sub(delay)),
            ]
        });
        let rest = (num_microbatches - delay..num_microbatches).map(|number| cell(CellKind::W, Some(number)));
        warm_up.chain(steady).chain(rest).flatten().collect()
    };
    Schedule { ranks: (0..pp).map(cells).collect(), stage_map: (0..pp).collect() }
}
