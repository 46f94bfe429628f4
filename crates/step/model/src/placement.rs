//! Types of tensors at tensor-parallel borders, and the two functions that cross them.
//!
//! ```text
//! Residual --enter--> Whole --ColumnParallel--> Sharded --RowParallel--> Partial --leave--> Residual
//! ```
//! Backwards the same arrows are walked the other way: the gradient of a [`Whole`] is a [`Partial`] (each rank has the
//! share of its own columns), and the gradient of a [`Partial`] is a [`Whole`] (a sum hands its gradient to every
//! term). So `leave` is the backward pass of `enter`, and `enter` that of `leave`.
//!
//! A [`Residual`] has the rows that its rank holds: all of the microbatch, or with sequence parallelism one run of
//! them. The two functions are the only ones that know: `enter` does nothing or gathers, `leave` sums all rows
//! everywhere or each run where it belongs.
//!
//! A pending sum is not an input of a norm:
//! ```compile_fail,E0308
//! # use model::{Context, NormParams, Partial};
//! # use device::Tensor;
//! fn wrong(context: &Context, norm: &NormParams, x: Partial, y: Tensor, stats: Tensor) {
//!     let _ = norm.forward(context, x, y, stats);
//! }
//! ```
//! A residual enters before a column-parallel linear layer reads it:
//! ```compile_fail,E0308
//! # use model::{ColumnParallel, Context, Residual};
//! # use device::Tensor;
//! fn wrong(context: &Context, up: &ColumnParallel, x: Residual, out: Tensor) {
//!     let _ = up.forward(context, x, out);
//! }
//! ```
//! The output of a row-parallel linear layer leaves before it joins the residual stream:
//! ```compile_fail,E0308
//! # use device::{DeviceError, Tensor, Write};
//! # use model::{Context, Residual, RowParallel, Sharded};
//! fn wrong(context: &Context, down: &RowParallel, g: Sharded, out: Tensor) -> Result<Residual, DeviceError> {
//!     down.forward(context, g, out, Write::Assign)
//! }
//! ```
//! It does not feed the next column-parallel map either, and a tensor cannot be declared whole or summed:
//! ```compile_fail,E0308
//! # use device::{DeviceError, Tensor, Write};
//! # use model::{ColumnParallel, Context, RowParallel, Sharded};
//! fn wrong(context: &Context, down: &RowParallel, up: &ColumnParallel, g: Sharded, out: Tensor) -> Result<(), DeviceError> {
//!     up.forward(context, down.forward(context, g, out, Write::Assign)?, out).map(|_| ())
//! }
//! ```
//! ```compile_fail,E0423
//! # use model::Whole;
//! fn wrong(tensor: device::Tensor) -> Whole {
//!     Whole(tensor)
//! }
//! ```
//! Whatever is computed from the rows of a rank does not take those of all: a norm over gathered rows would be
//! computed, and its gradient counted, once per rank.
//! ```compile_fail,E0308
//! # use device::{DeviceError, Tensor};
//! # use model::{Context, NormParams, Residual, enter};
//! fn wrong(context: &Context, norm: &NormParams, x: Residual, y: Tensor, stats: Tensor) -> Result<Residual, DeviceError> {
//!     norm.forward(context, enter(context, x)?, y, stats)
//! }
//! ```
//! ```compile_fail,E0308
//! # use device::{DeviceError, Write};
//! # use model::{Context, Residual, RowParallel, enter};
//! fn wrong(context: &Context, down: &RowParallel, dy: Residual) -> Result<(), DeviceError> {
//!     down.backward_bias(context, enter(context, dy)?, Write::Assign)
//! }
//! ```
//! The gradient of a row-parallel weight needs the rows of all ranks, and what is gathered is not gathered again, nor a
//! residual summed:
//! ```compile_fail,E0308
//! # use device::{DeviceError, Write};
//! # use model::{Context, Residual, RowParallel, Sharded};
//! fn wrong(context: &Context, down: &RowParallel, x: Sharded, dy: Residual) -> Result<(), DeviceError> {
//!     down.backward_weight(context, x, dy, Write::Assign)
//! }
//! ```
//! ```compile_fail,E0308
//! # use device::DeviceError;
//! # use model::{Context, Residual, Whole, enter};
//! fn wrong(context: &Context, x: Residual) -> Result<Whole, DeviceError> {
//!     enter(context, enter(context, x)?)
//! }
//! ```
//! ```compile_fail,E0308
//! # use device::DeviceError;
//! # use model::{Context, Residual, leave};
//! fn wrong(context: &Context, x: Residual) -> Result<Residual, DeviceError> {
//!     leave(context, x)
//! }
//! ```
//! The right composition:
//! ```
//! # use device::{DeviceError, Tensor, Write};
//! # use model::{ColumnParallel, Context, Residual, RowParallel, enter, leave};
//! fn right(
//!     context: &Context, up: &ColumnParallel, down: &RowParallel, x: Residual, h: Tensor, y: Tensor,
//! ) -> Result<Residual, DeviceError> {
//!     let h = up.forward(context, enter(context, x)?, h)?;
//!     leave(context, down.forward(context, h, y, Write::Assign)?)
//! }
//! ```

use std::ops::Range;

use config::SequenceParallel;
use device::{DeviceError, Op, Reduction, SumTree, Tensor};

use crate::Context;

/// A value between blocks, or its gradient: `x[R, D]`, the rows that this rank holds. Equal on all ranks of the group,
/// or with sequence parallelism a run of rows on each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual(Tensor);

/// Input of a column-parallel linear layer, or gradient of a row-parallel one's output: `x[T, D]` with all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whole(Tensor);

/// A pending sum over the group: `x[T, D]+tp`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Partial(Tensor);

/// Columns of this rank: heads or feed-forward columns, `x[T, F/tp]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharded(Tensor);

impl Residual {
    /// Declares the input, output or their gradient of a unit, which the caller owns.
    pub fn new(tensor: Tensor) -> Residual {
        Residual(tensor)
    }

    /// Its place.
    pub fn tensor(self) -> Tensor {
        self.0
    }

    /// The same value at `place[R, D]`: copied, unless it is there.
    pub(crate) fn kept_at(self, context: &Context, place: Tensor) -> Result<Residual, DeviceError> {
        if self.0 != place {
            context.submit(Op::Copy { from: self.0, to: place })?;
        }
        Ok(Residual(place))
    }
}

impl Whole {
    /// Declares rows that every rank has without asking: only who looked them up in a table that is on all ranks may.
    pub(crate) fn of_table(tensor: Tensor) -> Whole {
        Whole(tensor)
    }

    pub(crate) fn tensor(self) -> Tensor {
        self.0
    }

    pub(crate) fn rows_of(self, rows: Range<usize>) -> Whole {
        Whole(self.0.rows_of(rows))
    }
}

impl Partial {
    /// Declares a pending sum: only who computed from a share of the columns or rows may.
    pub(crate) fn new(tensor: Tensor) -> Partial {
        Partial(tensor)
    }

    /// Where to form the sum `[T, D]` that is to end as `residual[R, D]`: there, or in scratch where that has only some
    /// of the rows.
    pub(crate) fn target(context: &Context, residual: Tensor) -> Tensor {
        match context.sequence_parallel {
            SequenceParallel::Off => residual,
            SequenceParallel::On if residual.rows == context.shape.tokens() => residual,
            SequenceParallel::On => context.activation(context.scratch, context.shape.tokens(), residual.cols),
        }
    }
}

impl Sharded {
    /// Declares columns of this rank.
    pub(crate) fn new(tensor: Tensor) -> Sharded {
        Sharded(tensor)
    }

    pub(crate) fn tensor(self) -> Tensor {
        self.0
    }
}

/// From the residual stream into a tensor-parallel block: nothing to do while residuals are replicated, or where one
/// rank has all rows; otherwise the rows of all ranks are gathered, in scratch.
///
/// # Errors
/// The device's and the communicator's.
pub fn enter(context: &Context, x: Residual) -> Result<Whole, DeviceError> {
    match context.sequence_parallel {
        SequenceParallel::Off => Ok(Whole(x.0)),
        SequenceParallel::On if context.residual_rows().len() == context.shape.tokens() => Ok(Whole(x.0)),
        SequenceParallel::On => {
            let whole = context.activation(context.scratch, context.shape.tokens(), x.0.cols);
            context.submit(Op::Copy { from: x.0, to: whole.rows_of(context.residual_rows()) })?;
            context.tp.all_gather(context.stream, whole)?;
            Ok(Whole(whole))
        }
    }
}

/// From a tensor-parallel block back to the residual stream, summed in place and in rank order: all rows on every rank,
/// or each run of rows on its own. Either way an element is the sum of the same terms in the same order.
///
/// # Errors
/// The communicator's.
pub fn leave(context: &Context, x: Partial) -> Result<Residual, DeviceError> {
    match context.sequence_parallel {
        SequenceParallel::Off => {
            context.tp.all_reduce(context.stream, x.0, Reduction::Sum(SumTree::RANK_ORDER))?;
            Ok(Residual(x.0))
        }
        SequenceParallel::On => {
            context.tp.reduce_scatter(context.stream, x.0, SumTree::RANK_ORDER)?;
            Ok(Residual(x.0.rows_of(context.residual_rows())))
        }
    }
}
