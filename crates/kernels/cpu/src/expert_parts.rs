//! How an operation of experts is cut into parts: row-wise operations by tokens, for each of which the rows are known.

use std::ops::Range;

use device::{ExpertOp, ExpertRows};

use crate::share::Share;

/// The part of `op` for one share; `None` where nothing is left for it.
pub(crate) fn part(op: &ExpertOp, share: Share) -> Option<ExpertOp> {
    let tokens = |count: usize| share.of(count, 1);
    Some(match *op {
        ExpertOp::Route { logits, correction, routing, choice, weights } => {
            let tokens = tokens(logits.rows)?;
            let [logits, choice, weights] = [logits, choice, weights].map(|tensor| tensor.rows_of(tokens.clone()));
            ExpertOp::Route { logits, correction, routing, choice, weights }
        }
        ExpertOp::RouteBackward { logits, routing, choice, dweights, dlogits } => {
            let tokens = tokens(logits.rows)?;
            let [logits, choice, dweights, dlogits] =
                [logits, choice, dweights, dlogits].map(|tensor| tensor.rows_of(tokens.clone()));
            ExpertOp::RouteBackward { logits, routing, choice, dweights, dlogits }
        }
        ExpertOp::GroupRows { .. } | ExpertOp::MatMul { .. } => return (share.index == 0).then_some(*op),
        ExpertOp::GatherRows { from, rows, to } => {
            let tokens = tokens(from.rows)?;
            ExpertOp::GatherRows { from: from.rows_of(tokens.clone()), rows: of_tokens(rows, tokens), to }
        }
        ExpertOp::CombineRows { y, weights, rows, out, write } => {
            let tokens = tokens(out.rows)?;
            let weights = weights.map(|weights| weights.rows_of(tokens.clone()));
            let out = out.rows_of(tokens.clone());
            ExpertOp::CombineRows { y, weights, rows: of_tokens(rows, tokens), out, write }
        }
        ExpertOp::Activation { activation, x, y, rows } => {
            let tokens = tokens(rows.places.rows)?;
            ExpertOp::Activation { activation, x, y, rows: of_tokens(rows, tokens) }
        }
        ExpertOp::ActivationBackward { activation, x, dy, weights, dx, y, dweights, rows } => {
            let tokens = tokens(rows.places.rows)?;
            let [weights, dweights] = [weights, dweights].map(|tensor| tensor.rows_of(tokens.clone()));
            let rows = of_tokens(rows, tokens);
            ExpertOp::ActivationBackward { activation, x, dy, weights, dx, y, dweights, rows }
        }
    })
}

/// The rows of some tokens.
fn of_tokens(rows: ExpertRows, tokens: Range<usize>) -> ExpertRows {
    ExpertRows { places: rows.places.rows_of(tokens), ..rows }
}
