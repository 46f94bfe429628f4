//! The input of the model: rows of the token table, learned positions, dropout.

use device::{DeviceError, DropoutKey, Frame, Op, Tensor, Write};

use crate::binding::EmbeddingParams;
use crate::context::{Batch, Context, DropoutSite};
use crate::gradient_sums::{Terms, clear, sum_terms};
use crate::placement::{Partial, Residual, enter, leave};

/// Where the embedding's gradients go.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingGradients<'a> {
    /// Accumulators of the table and of the positions.
    pub params: &'a EmbeddingParams,
    /// Assign on a step's first microbatch, then accumulate.
    pub write: Write,
    /// Factor of the table's gradient: below 1 shrinks it, which keeps training stable (GLM-130B, Zeng et al. 2022). Positions have theirs whole.
    pub table_scale: f32,
}

/// Which rows of a table get which gradients.
struct Rows {
    /// Row numbers `[1, R]` of the whole table.
    tokens: Tensor,
    /// `[R, D]`.
    dy: Tensor,
    scale: f32,
    /// Global index of the table's first row.
    first_row: usize,
}

/// The embedding on one microbatch.
#[derive(Clone, Copy)]
pub struct Embedding<'a> {
    /// Device, group, model and sizes.
    pub context: &'a Context<'a>,
    /// Tokens and positions.
    pub batch: &'a Batch,
}

impl Embedding<'_> {
    /// `output[R, D]` assigned: `dropout(table[token] + positions[position])`. Nothing is kept for the backward passes.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn forward(&self, params: &EmbeddingParams, output: Residual) -> Result<(), DeviceError> {
        let (context, out) = (self.context, output.tensor());
        context.scratch.scoped(|| {
            let sum = Partial::place(context, out);
            context.submit(Op::EmbeddingLookup {
                tokens: self.batch.tokens,
                table: params.table,
                first_row: self.first_row(params),
                out: sum,
                write: Write::Assign,
            })?;
            // Each token's row is on one rank, the others have zeros.
            leave(context, Partial::new(sum))?.kept_at(context, out)
        })?;
        if let Some(table) = params.positions {
            let tokens = self.positions();
            context.submit(Op::EmbeddingLookup { tokens, table, first_row: 0, out, write: Write::Accumulate })?;
        }
        match self.dropout() {
            None => Ok(()),
            dropout => context.submit(Op::DropoutAdd { x: out, bias: None, residual: None, dropout, out }),
        }
    }

    /// Leaves in `pending` the gradient in front of the dropout; nothing without dropout. Tokens have no gradient.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_input(&self, output_gradient: Residual, pending: &Frame) -> Result<(), DeviceError> {
        match (self.dropout(), self.place_pending(pending)) {
            (Some(dropout), Some(dx)) => {
                self.context.submit(Op::DropoutBackward { dy: output_gradient.tensor(), dropout, dx })
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Gradients of this rank's rows of the table, scaled, and of the positions of this rank's tokens: on a step's first microbatch assigned, then
    /// accumulated.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn backward_weight(
        &self,
        gradients: &EmbeddingGradients,
        output_gradient: Residual,
        pending: &Frame,
    ) -> Result<(), DeviceError> {
        let (context, dy) = (self.context, self.place_pending(pending).map_or(output_gradient, Residual::new));
        let EmbeddingGradients { params, write, table_scale } = *gradients;
        // A row of the table is needed by tokens of any rank.
        context.scratch.scoped(|| {
            let dy = enter(context, dy)?.tensor();
            let rows = Rows { tokens: self.batch.tokens, dy, scale: table_scale, first_row: self.first_row(params) };
            self.sum_rows(params.table, rows, Terms::of_sequences(context), write)
        })?;
        let Some(positions) = params.positions else { return Ok(()) };
        let rows = Rows { tokens: self.positions(), dy: dy.tensor(), scale: 1.0, first_row: 0 };
        self.sum_rows(positions, rows, Terms::of_residual(context), write)
    }

    /// The table's gradient assigned or accumulated.
    fn sum_rows(&self, table: Tensor, of: Rows, terms: Terms, write: Write) -> Result<(), DeviceError> {
        let Rows { tokens, dy, scale, first_row } = of;
        sum_terms(self.context, terms, [table], write, |rows, [dtable], write| {
            clear(self.context, dtable, write)?;
            let (tokens, dy) = (tokens.elements(rows.clone()), dy.rows_of(rows));
            self.context.submit(Op::EmbeddingBackward { tokens, dy, scale, first_row, dtable })
        })
    }

    /// Positions of the tokens that this rank holds.
    fn positions(&self) -> Tensor {
        self.batch.positions.elements(self.context.residual_rows())
    }

    fn place_pending(&self, frame: &Frame) -> Option<Tensor> {
        self.dropout().map(|_| self.context.residual(frame))
    }

    fn dropout(&self) -> Option<DropoutKey> {
        self.context.residual_dropout(DropoutSite::EMBEDDING)
    }

    /// Global index of the first table row of this rank.
    fn first_row(&self, params: &EmbeddingParams) -> usize {
        self.context.tp.position() * params.table.rows
    }
}
