//! ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, section 2.2).

use super::Schedule;
use super::split::{Pace, split};

/// 1F1B in which rank `r` holds the backward of the weights back by `r` microbatches: gradients of inputs reach the
/// first rank sooner, and what was held back fills the drain. Bubble: `(pp - 1) (F + I - W)`; every rank keeps `pp`
/// microbatches, as 1F1B's first does.
pub fn zero_bubble_h1(pp: usize, num_microbatches: usize) -> Schedule {
    split(pp, num_microbatches, |rank| Pace { ahead: pp - 1 - rank, delay: rank })
}
