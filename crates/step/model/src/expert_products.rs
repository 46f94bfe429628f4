//! Products of the rows of each expert with its own matrix, and with other rows.

use device::{DeviceError, ExpertOp, ExpertRows, Orientation, Tensor, TokenRange, Write};

use crate::context::Context;
use crate::gradient_sums::{Contributions, add_term, sum_contributions};

/// Rows of experts, and the terms that they make of the gradient of a weight.
#[derive(Clone, Copy)]
pub(crate) enum RowTerms {
    /// Rows of all sequences of a microbatch: a term for each.
    Sequences(ExpertRows),
    /// Rows of one sequence: one term.
    One(ExpertRows),
}

impl RowTerms {
    pub(crate) fn rows(self) -> ExpertRows {
        match self {
            RowTerms::Sequences(rows) | RowTerms::One(rows) => rows,
        }
    }

    /// `accumulator` = or += the terms, each of which `compute` writes or adds, from the rows of these tokens or of
    /// all.
    ///
    /// # Errors
    /// The errors of `compute` and the device.
    pub(crate) fn sum(
        self,
        context: &Context,
        accumulator: Tensor,
        write: Write,
        compute: impl Fn(Tensor, Write, Option<TokenRange>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let (contributions, all) = (Contributions::of_sequences(context), 0..context.shape.tokens());
        match self {
            RowTerms::Sequences(_) => {
                sum_contributions(context, contributions, [accumulator], write, |tokens, [out], write| {
                    let range = TokenRange { start: tokens.start, end: tokens.end };
                    compute(out, write, (tokens != all).then_some(range))
                })
            }
            RowTerms::One(_) => {
                add_term(context, contributions, [accumulator], write, |[out], write| compute(out, write, None))
            }
        }
    }
}

/// `out` assigned or added to: each expert's rows of `a` with its matrix of `b`.
///
/// # Errors
/// The device's.
pub(crate) fn product(
    context: &Context,
    orientation: Orientation,
    (a, b): (Tensor, Tensor),
    (out, write): (Tensor, Write),
    rows: ExpertRows,
) -> Result<(), DeviceError> {
    context.submit(ExpertOp::MatMul { orientation, a, b, out, rows, tokens: None, write }.into())
}

/// `accumulator[G N, K]` = or += `a[R, N]^T b[R, K]` of the rows of each expert.
///
/// # Errors
/// The device's.
pub(crate) fn add_products(
    context: &Context,
    accumulator: Tensor,
    (a, b): (Tensor, Tensor),
    (terms, write): (RowTerms, Write),
) -> Result<(), DeviceError> {
    let (orientation, rows) = (Orientation::Tn, terms.rows());
    terms.sum(context, accumulator, write, |out, write, tokens| {
        context.submit(ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write }.into())
    })
}
