//! Mixtures of experts: which experts a token chooses, rows sorted by expert, and operations on such rows.
//!
//! Rows after the last are neither read nor written. Threads share row-wise operations by tokens, and products by rows
//! or columns of every group, so that unequal groups are shared equally.

mod activation;
mod choice;
mod count_choices;
mod group_rows;
mod limit_choices;
mod route;
mod route_backward;
mod router_losses;
mod rows;
mod shares;

pub use activation::{ExpertActivationBackward, expert_activation};
pub use count_choices::{correct, count_choices, load};
pub use group_rows::{GroupRows, group_rows};
pub use limit_choices::{LimitChoices, limit_choices};
pub use route::Route;
pub use route_backward::RouteBackward;
pub use router_losses::{RouterLosses, RouterLossesBackward, Terms};
pub use rows::{CombineRows, gather_rows};

/// The row at a place, if there is one.
fn row_at(place: i32) -> Option<usize> {
    usize::try_from(place).ok()
}
