//! The input of the model: rows of the token table, learned positions, dropout.

use device::{DeviceError, DropoutKey, Frame, Op, Tensor, Write};

use crate::binding::EmbeddingParams;
use crate::context::{Batch, Context, DropoutSite};
use crate::linear::clear;
use crate::placement::{Partial, Residual, enter, leave};

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

    /// Gradients of this rank's rows of the table, and of the positions of this rank's tokens: on a step's first microbatch assigned, then accumulated.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn backward_weight(
        &self,
        gradients: &EmbeddingParams,
        output_gradient: Residual,
        pending: &Frame,
        write: Write,
    ) -> Result<(), DeviceError> {
        let (context, dy) = (self.context, self.place_pending(pending).map_or(output_gradient, Residual::new));
        let first_row = self.first_row(gradients);
        // A row of the table is needed by tokens of any rank.
        context.scratch.scoped(|| {
            let dy = enter(context, dy)?.tensor();
            self.accumulate(self.batch.tokens, dy, first_row, gradients.table, write)
        })?;
        let (tokens, dy) = (self.positions(), dy.tensor());
        gradients.positions.map_or(Ok(()), |positions| self.accumulate(tokens, dy, 0, positions, write))
    }

    /// Positions of the tokens that this rank holds.
    fn positions(&self) -> Tensor {
        self.batch.positions.elements(self.context.residual_rows())
    }

    fn accumulate(
        &self,
        tokens: Tensor,
        dy: Tensor,
        first_row: usize,
        dtable: Tensor,
        write: Write,
    ) -> Result<(), DeviceError> {
        clear(self.context, dtable, write)?;
        self.context.submit(Op::EmbeddingBackward { tokens, dy, first_row, dtable })
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
