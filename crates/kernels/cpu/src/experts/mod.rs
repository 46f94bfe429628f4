//! Mixtures of experts: which experts a token chooses, rows sorted by expert, and operations on such rows.
//!
//! Rows after the last are neither read nor written. Threads share row-wise operations by tokens, and products by rows
//! or columns of every group, so that unequal groups are shared equally.

mod activation;
mod choice;
mod group_rows;
mod route;
mod route_backward;
mod rows;
mod shares;

pub use activation::{ExpertActivationBackward, expert_activation};
pub use group_rows::{GroupRows, group_rows};
pub use route::Route;
pub use route_backward::RouteBackward;
pub use rows::{CombineRows, gather_rows};

/// The row at a place, if there is one.
fn row_at(place: i32) -> Option<usize> {
    usize::try_from(place).ok()
}
