//! ZB-H2 (Qi et al., Zero Bubble Pipeline Parallelism, section 2.2).

use super::Schedule;
use super::split::{Pace, split};

/// As ZB-H1 with twice the forwards ahead and twice the delay: forwards fill the wait for the first gradient too.
/// Bubble: `(pp - 1) (F + I - 2 W)`, none where all passes take equally long; every rank keeps `2 pp - 1` microbatches.
pub fn zero_bubble_h2(pp: usize, num_microbatches: usize) -> Schedule {
    split(pp, num_microbatches, |rank| Pace { ahead: 2 * (pp - 1 - rank), delay: 2 * rank })
}
