//! Gradients of learned tables, whose rows are looked up by number.

use std::ops::Range;

use device::{DeviceError, Op, Tensor, Write};

use crate::context::Context;
use crate::gradient_sums::{Contributions, clear, sum_contributions};

/// Which rows of a table get which gradients.
pub(crate) struct RowGradients {
    /// Row numbers `[1, R]` of the whole table.
    pub(crate) rows: Tensor,
    /// `[R, D]`.
    pub(crate) dy: Tensor,
    pub(crate) scale: f32,
    /// Global index of the table's first row.
    pub(crate) first_row: usize,
    /// The row of the whole table that is not trained.
    pub(crate) untrained: Option<usize>,
    /// The rows of the tensor that holds the table's part which belong to it; no token reads those before.
    pub(crate) held: Range<usize>,
}

impl RowGradients {
    /// Assigned or added to the gradient of the table.
    pub(crate) fn sum(
        &self,
        context: &Context,
        table: Tensor,
        contributions: Contributions,
        write: Write,
    ) -> Result<(), DeviceError> {
        sum_contributions(context, contributions, [table], write, |range, [dtable], write| {
            clear(context, dtable, write)?;
            let (tokens, dy) = (self.rows.elements(range.clone()), self.dy.rows_of(range));
            let RowGradients { scale, first_row, untrained, .. } = *self;
            let dtable = dtable.rows_of(self.held.clone());
            context.submit(Op::EmbeddingBackward { tokens, dy, scale, first_row, untrained, dtable })
        })
    }
}
