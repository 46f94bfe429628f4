//! 1F1B with a flush (PipeDream-Flush).

use super::{Cell, CellKind, Schedule};

/// Each rank runs `pp - 1 - rank` forwards ahead, then alternates one forward and one backward, then drains.
/// Bubble: `(pp - 1) (F + B)`, as GPipe's; rank `i` keeps the activations of `min(m, pp - i)` microbatches.
pub fn one_forward_one_backward(pp: usize, num_microbatches: usize) -> Schedule {
    let cells = |stage: usize| {
        let ahead = (pp - 1 - stage).min(num_microbatches);
        let forward = |microbatch| Cell::new(stage, CellKind::F, microbatch);
        let backward = |microbatch| Cell::new(stage, CellKind::B, microbatch);
        let warm_up = (0..ahead).map(forward);
        let steady = (ahead..num_microbatches).flat_map(|next| [forward(next), backward(next - ahead)]);
        let drain = (num_microbatches - ahead..num_microbatches).map(backward);
        warm_up.chain(steady).chain(drain).collect()
    };
    Schedule { ranks: (0..pp).map(cells).collect(), stage_map: (0..pp).collect() }
}
