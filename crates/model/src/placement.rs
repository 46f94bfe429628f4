//! Types of tensors at tensor-parallel borders, and the two functions that cross them.
//!
//! ```text
//! Residual --enter--> Whole --ColumnParallel--> Sharded --RowParallel--> Partial --leave--> Residual
//! ```
//! Backwards the same arrows are walked the other way: the gradient of a [`Whole`] is a [`Partial`] (each rank has the
//! share of its own columns), and the gradient of a [`Partial`] is a [`Whole`] (a sum hands its gradient to every term).
//! So `leave` is the backward pass of `enter`, and `enter` that of `leave`.
//!
//! A pending sum is no input of a norm:
//! ```compile_fail,E0308
//! # use model::{Context, norm::NormParams, placement::Partial};
//! # use device::Tensor;
//! fn wrong(context: &Context, norm: &NormParams, x: Partial, y: Tensor, stats: Tensor) {
//!     let _ = norm.forward(context, x, y, stats);
//! }
//! ```
//! A residual enters before a column-parallel linear map reads it:
//! ```compile_fail,E0308
//! # use model::{Context, linear::ColumnParallel, placement::Residual};
//! # use device::Tensor;
//! fn wrong(context: &Context, up: &ColumnParallel, x: Residual, out: Tensor) {
//!     let _ = up.forward(context, x, out);
//! }
//! ```
//! The output of a row-parallel linear map leaves before it joins the residual stream:
//! ```compile_fail,E0308
//! # use device::{DeviceError, Tensor};
//! # use model::{Context, linear::RowParallel, placement::{Residual, Sharded}};
//! fn wrong(context: &Context, down: &RowParallel, g: Sharded, out: Tensor) -> Result<Residual, DeviceError> {
//!     down.forward(context, g, out)
//! }
//! ```
//! It does not feed the next column-parallel map either, and a tensor cannot be declared whole or summed:
//! ```compile_fail,E0308
//! # use device::{DeviceError, Tensor};
//! # use model::{Context, linear::{ColumnParallel, RowParallel}, placement::Sharded};
//! fn wrong(context: &Context, down: &RowParallel, up: &ColumnParallel, g: Sharded, out: Tensor) -> Result<(), DeviceError> {
//!     up.forward(context, down.forward(context, g, out)?, out).map(|_| ())
//! }
//! ```
//! ```compile_fail,E0423
//! # use model::placement::Whole;
//! fn wrong(tensor: device::Tensor) -> Whole {
//!     Whole(tensor)
//! }
//! ```
//! The right composition:
//! ```
//! # use device::{DeviceError, Tensor};
//! # use model::{Context, linear::{ColumnParallel, RowParallel}, placement::{Residual, enter, leave}};
//! fn right(
//!     context: &Context, up: &ColumnParallel, down: &RowParallel, x: Residual, h: Tensor, y: Tensor,
//! ) -> Result<Residual, DeviceError> {
//!     let h = up.forward(context, enter(context, x)?, h)?;
//!     leave(context, down.forward(context, h, y)?)
//! }
//! ```

use std::ops::Range;

use device::{DeviceError, Reduction, Tensor};

use crate::Context;

/// A value between blocks, or its gradient: `x[T, D]`, equal on all ranks of the group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual(Tensor);

/// Input of a column-parallel linear map, or gradient of a row-parallel one's output: `x[T, D]` with all rows.
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
}

impl Whole {
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

/// From the residual stream into a tensor-parallel block: nothing to do while residuals are replicated.
///
/// # Errors
/// The communicator's.
pub fn enter(_context: &Context, x: Residual) -> Result<Whole, DeviceError> {
    Ok(Whole(x.0))
}

/// From a tensor-parallel block back to the residual stream: all-reduce in place, in rank order.
///
/// # Errors
/// The communicator's.
pub fn leave(context: &Context, x: Partial) -> Result<Residual, DeviceError> {
    context.tp.all_reduce(context.stream, x.0, Reduction::Sum)?;
    Ok(Residual(x.0))
}
