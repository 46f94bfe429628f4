//! The input of the model: rows of the token table, learned positions, a norm, dropout.

use std::ops::Range;

use config::Position;
use device::{DeviceError, Frame, Op, Tensor, Write};

use crate::binding::EmbeddingParams;
use crate::context::{Batch, Context, DropoutSite};
use crate::dropout::{self, DropoutSum, ResidualDropout};
use crate::gradient_sums::Contributions;
use crate::norm::NormParams;
use crate::placement::{Partial, Residual, enter, leave};
use crate::saved::SavedFrames;
use crate::table::RowGradients;

/// Where the embedding's gradients go.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingGradients<'a> {
    /// Accumulators of the table, the positions and the norm.
    pub params: &'a EmbeddingParams,
    /// Assign on a step's first microbatch, then accumulate.
    pub write: Write,
    /// Factor of the table's gradient: below 1 shrinks it, which keeps training stable (GLM-130B, Zeng et al. 2022).
    /// Positions have theirs whole.
    pub table_scale: f32,
}

/// Values that the backward passes of an embedding with a norm read.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NormInput {
    /// `[R, D]`: the norm's input.
    sum: Tensor,
    /// `[R, 2]`.
    stats: Tensor,
    /// `[1, D]`: a copy of the norm's weight, as the backward pass of the input is handed no parameters.
    weight: Tensor,
}

/// Values that the backward pass of the input leaves for that of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pending {
    /// `[R, D]`: gradient in front of the dropout. Without dropout that is the gradient of the output, which is read
    /// again.
    dropped: Option<Tensor>,
    /// `[R, D]`: gradient of the norm's input. Without a norm it is the one in front of the dropout.
    sum: Option<Tensor>,
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
    /// `output[R, D]` assigned: `dropout(norm(scale table[token] + positions[position]))`, as far as the model has
    /// them; leaves in `frames` what the backward passes of a norm read.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn forward(&self, params: &EmbeddingParams, output: Residual, frames: SavedFrames) -> Result<(), DeviceError> {
        let (context, out) = (self.context, output.tensor());
        match (&params.norm, self.place_norm_input(frames)) {
            (Some(norm), Some(saved)) => {
                self.add_up(params, saved.sum)?;
                context.submit(Op::Copy { from: norm.weight, to: saved.weight })?;
                norm.forward(context, Residual::new(saved.sum), out, saved.stats)?;
            }
            (Some(_) | None, _) => self.add_up(params, out)?,
        }
        match self.dropout() {
            None => Ok(()),
            masked => {
                let sum = DropoutSum { x: out, bias: None, residual: None, residual_scale: 1.0, out };
                dropout::add(context, sum, masked)
            }
        }
    }

    /// `out[R, D]` assigned: the sum of both tables' rows.
    fn add_up(&self, params: &EmbeddingParams, out: Tensor) -> Result<(), DeviceError> {
        let context = self.context;
        context.scratch.scoped(|| {
            // Scaled from one place into another.
            let place = match context.model.embedding_scale {
                None => out,
                Some(_) => context.residual(context.scratch),
            };
            let sum = Partial::target(context, place);
            context.submit(Op::EmbeddingLookup {
                tokens: self.batch.tokens,
                table: params.table,
                first_row: self.first_row(params),
                out: sum,
                write: Write::Assign,
            })?;
            // Each token's row is on one rank, the others have zeros.
            let sum = leave(context, Partial::new(sum))?;
            let Some(scale) = context.model.embedding_scale else { return sum.kept_at(context, out).map(|_| ()) };
            let (x, residual_scale) = (sum.tensor(), scale - 1.0);
            dropout::add(context, DropoutSum { x, bias: None, residual: Some(x), residual_scale, out }, None)
        })?;
        let Some(table) = params.positions else { return Ok(()) };
        let (tokens, table) = (self.positions(), table.rows_of(self.rows_of_positions(table)));
        context.submit(Op::EmbeddingLookup { tokens, table, first_row: 0, out, write: Write::Accumulate })
    }

    /// Leaves in `pending` the gradients in front of the dropout and of the norm; nothing without them. Tokens have no
    /// gradient.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_input(
        &self,
        output_gradient: Residual,
        frames: SavedFrames,
        pending: &Frame,
    ) -> Result<(), DeviceError> {
        let pending = self.lay_out_pending(pending);
        if let (Some(dropout), Some(dx)) = (self.dropout(), pending.dropped) {
            dropout.backward(self.context, output_gradient.tensor(), dx)?;
        }
        if let (Some(saved), Some(dx)) = (self.place_norm_input(frames), pending.sum) {
            let norm = NormParams { weight: saved.weight, bias: None };
            let dy = pending.dropped.map_or(output_gradient, Residual::new);
            norm.backward_input(self.context, Residual::new(saved.sum), saved.stats, dy, dx, Write::Assign)?;
        }
        Ok(())
    }

    /// Gradients of this rank's rows of the table, scaled, but for that of padding, of the positions of this rank's
    /// tokens, and of the norm: on a step's first microbatch assigned, then accumulated.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn backward_weight(
        &self,
        gradients: &EmbeddingGradients,
        output_gradient: Residual,
        frames: SavedFrames,
        pending: &Frame,
    ) -> Result<(), DeviceError> {
        let (context, pending) = (self.context, self.lay_out_pending(pending));
        if !context.trains_all() {
            return Ok(());
        }
        let EmbeddingGradients { params, write, table_scale } = *gradients;
        let dy = pending.dropped.map_or(output_gradient, Residual::new);
        if let (Some(norm), Some(saved)) = (&params.norm, self.place_norm_input(frames)) {
            norm.backward_weight(context, Residual::new(saved.sum), saved.stats, dy, write)?;
        }
        let dy = pending.sum.map_or(dy, Residual::new);
        // A row of the table is needed by tokens of any rank.
        context.scratch.scoped(|| {
            let dy = enter(context, dy)?.tensor();
            let rows = RowGradients {
                rows: self.batch.tokens,
                dy,
                scale: table_scale * context.model.embedding_scale.unwrap_or(1.0),
                first_row: self.first_row(params),
                untrained: context.model.padding_token,
                held: 0..params.table.rows,
            };
            rows.sum(context, params.table, Contributions::of_sequences(context), write)
        })?;
        let Some(positions) = params.positions else { return Ok(()) };
        let rows = RowGradients {
            rows: self.positions(),
            dy: dy.tensor(),
            scale: 1.0,
            first_row: 0,
            untrained: None,
            held: self.rows_of_positions(positions),
        };
        rows.sum(context, positions, Contributions::of_residual(context), write)
    }

    /// Positions of the tokens that this rank holds.
    fn positions(&self) -> Tensor {
        self.batch.positions.elements(self.context.residual_rows())
    }

    /// The rows of the table of positions that tokens read.
    fn rows_of_positions(&self, table: Tensor) -> Range<usize> {
        match self.context.model.position {
            Position::Learned { offset } => offset..table.rows,
            Position::Rotary { .. } | Position::Alibi => 0..table.rows,
        }
    }

    fn place_norm_input(&self, frames: SavedFrames) -> Option<NormInput> {
        let SavedFrames { until_input, until_weight, .. } = frames;
        let (context, rows) = (self.context, self.context.residual_rows().len());
        context.model.embedding_norm.then(|| NormInput {
            sum: context.residual(until_weight),
            stats: until_weight.floats(rows, 2),
            weight: context.activation(until_input, 1, context.model.hidden),
        })
    }

    fn lay_out_pending(&self, frame: &Frame) -> Pending {
        Pending {
            dropped: self.dropout().map(|_| self.context.residual(frame)),
            sum: self.context.model.embedding_norm.then(|| self.context.residual(frame)),
        }
    }

    fn dropout(&self) -> Option<ResidualDropout> {
        self.context.residual_dropout(DropoutSite::EMBEDDING)
    }

    /// Global index of the first table row of this rank.
    fn first_row(&self, params: &EmbeddingParams) -> usize {
        self.context.tp.position() * params.table.rows
    }
}
