//! The linear layers that make queries, keys and values of this rank's heads.

use device::{DeviceError, Frame, Op, Tensor, Write};

use crate::context::{Batch, Context};
use crate::gradient_sums::Contributions;
use crate::linear::ColumnParallel;
use crate::placement::{Partial, Residual, Sharded, Whole, enter, leave};
use crate::table::RowGradients;

/// Maps into queries, keys and values `[T, (H + 2K) d]`, or their gradient accumulators.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a layer has one, bound once")]
pub enum Projection {
    /// All three from the normed residual: their rows in one matrix `[(H + 2K) d / tp, D]`.
    Fused(ColumnParallel),
    /// Queries from a table's rows.
    TopQuery(TopQueryProjection),
}

/// See [`Projection::TopQuery`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopQueryProjection {
    /// `[context, D]`: the row of its position is what a token's query is mapped from.
    pub positions: Tensor,
    /// `[H d / tp, D]`.
    pub query: ColumnParallel,
    /// Key and value rows in one matrix `[2K d / tp, D]`, which reads the normed residual.
    pub key_value: ColumnParallel,
}

/// Values that the backward pass of the input leaves for that of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProjectionPending {
    /// `[R, D]`: gradient of the normed residual.
    pub(crate) input: Tensor,
    /// Where queries come from a table.
    rows: Option<RowsPending>,
}

/// The table's rows once more, as the backward pass of the weights is handed no parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RowsPending {
    /// `[T, D]`: each token's row.
    values: Tensor,
    /// `[T, D]`: this rank's share of its gradient.
    gradients: Tensor,
}

impl ProjectionPending {
    pub(crate) fn lay_out(frame: &Frame, context: &Context, maps: &Projection) -> ProjectionPending {
        ProjectionPending {
            input: context.residual(frame),
            rows: match maps {
                Projection::Fused(_) => None,
                Projection::TopQuery(_) => {
                    let lay_out = || context.activation(frame, context.shape.tokens(), context.model.hidden);
                    Some(RowsPending { values: lay_out(), gradients: lay_out() })
                }
            },
        }
    }
}

impl Projection {
    /// The map that reads the normed residual, and the columns of queries, keys and values that it makes.
    fn of_residual(&self, qkv: Tensor) -> (&ColumnParallel, Tensor) {
        match self {
            Projection::Fused(all) => (all, qkv),
            Projection::TopQuery(maps) => (&maps.key_value, qkv.cols_of(maps.query.weight.rows..qkv.cols)),
        }
    }

    /// `qkv[T, (H + 2K) d]` assigned.
    pub(crate) fn forward(
        &self,
        context: &Context,
        batch: &Batch,
        normed: Residual,
        qkv: Tensor,
    ) -> Result<(), DeviceError> {
        let (map, columns) = self.of_residual(qkv);
        context.scratch.scoped(|| map.forward(context, enter(context, normed)?, columns))?;
        match self {
            Projection::Fused(_) => Ok(()),
            Projection::TopQuery(maps) => context.scratch.scoped(|| {
                let rows = context.activation(context.scratch, context.shape.tokens(), context.model.hidden);
                let rows = maps.look_up(context, batch, rows)?;
                maps.query.forward(context, rows, maps.queries(qkv)).map(|_| ())
            }),
        }
    }

    /// Gradient of the normed residual, in `pending`, from that of queries, keys and values.
    pub(crate) fn backward_input(
        &self,
        context: &Context,
        batch: &Batch,
        dy: Tensor,
        pending: &ProjectionPending,
    ) -> Result<Residual, DeviceError> {
        if let (Projection::TopQuery(maps), Some(rows)) = (self, pending.rows) {
            maps.look_up(context, batch, rows.values)?;
            // Once per step the table's gradient is summed over tensor parallelism, so these rows are not.
            maps.query.backward_input(context, Sharded::new(maps.queries(dy)), rows.gradients)?;
        }
        let (map, columns) = self.of_residual(dy);
        context.scratch.scoped(|| {
            let sum = Partial::target(context, pending.input);
            let partial = map.backward_input(context, Sharded::new(columns), sum)?;
            leave(context, partial)?.kept_at(context, pending.input)
        })
    }

    /// With `self` as accumulators: = or += the gradients of all maps, and of the table.
    pub(crate) fn backward_weight(
        &self,
        context: &Context,
        (batch, normed): (&Batch, Residual),
        (dy, pending): (Tensor, &ProjectionPending),
        write: Write,
    ) -> Result<(), DeviceError> {
        let (map, columns) = self.of_residual(dy);
        if map.is_trained(context) {
            context
                .scratch
                .scoped(|| map.backward_weight(context, enter(context, normed)?, Sharded::new(columns), write))?;
        }
        let (Projection::TopQuery(maps), Some(rows)) = (self, pending.rows) else { return Ok(()) };
        maps.query.backward_weight(context, Whole::of_table(rows.values), Sharded::new(maps.queries(dy)), write)?;
        let gradients = RowGradients {
            rows: batch.positions,
            dy: rows.gradients,
            scale: 1.0,
            first_row: 0,
            untrained: None,
            held: 0..maps.positions.rows,
        };
        let contributions = Contributions::of_sequences(context).of_each(context.tp.size());
        gradients.sum(context, maps.positions, contributions, write)
    }
}

impl TopQueryProjection {
    /// The columns of queries.
    fn queries(&self, qkv: Tensor) -> Tensor {
        qkv.cols_of(0..self.query.weight.rows)
    }

    /// Each token's row of the table, assigned to `out[T, D]`.
    fn look_up(&self, context: &Context, batch: &Batch, out: Tensor) -> Result<Whole, DeviceError> {
        let (tokens, table) = (batch.positions, self.positions);
        context.submit(Op::EmbeddingLookup { tokens, table, first_row: 0, out, write: Write::Assign })?;
        Ok(Whole::of_table(out))
    }
}
