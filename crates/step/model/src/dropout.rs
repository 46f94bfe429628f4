//! Dropout of the residual stream: rows of one mask of the whole batch, whichever tokens a rank has.

use std::ops::Range;

use device::{DeviceError, DropoutKey, Op, Tensor};

use crate::context::Context;

/// The mask of a dropout on the residual stream, from the first token of the microbatch on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ResidualDropout(DropoutKey);

/// The tensor that is dropped, and the one that it is added to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropoutSum {
    /// `[R, D]`
    pub(crate) x: Tensor,
    /// `[D]`, added before.
    pub(crate) bias: Option<Tensor>,
    /// `[R, D]`, added after.
    pub(crate) residual: Option<Tensor>,
    /// Its factor.
    pub(crate) residual_scale: f32,
    /// `[R, D]`, assigned; may be `x` or `residual`.
    pub(crate) out: Tensor,
}

impl ResidualDropout {
    /// The mask that begins with the first token of the microbatch.
    pub(crate) fn new(key: DropoutKey) -> ResidualDropout {
        ResidualDropout(key)
    }

    /// `dx[R, D]` assigned: the gradient `dy[R, D]` in front of the dropout.
    pub(crate) fn backward(self, context: &Context, dy: Tensor, dx: Tensor) -> Result<(), DeviceError> {
        self.parts(context).try_for_each(|(rows, dropout)| {
            let (dy, dx) = (dy.rows_of(rows.clone()), dx.rows_of(rows));
            context.submit(Op::DropoutBackward { dy, dropout, dx })
        })
    }

    /// Rows of this rank's residual stream that are consecutive tokens, each with its part of the mask.
    fn parts(self, context: &Context) -> impl Iterator<Item = (Range<usize>, DropoutKey)> + use<> {
        let (held, length) = (context.residual_rows(), context.shape.sequence_length);
        // Whole sequences follow each other: one operation has one mask.
        let whole = context.shape.slices.ranks == 1;
        let of_all = whole.then_some((0..held.len(), held.start));
        let runs = (!whole).then(|| context.shape.runs(context.cp.position())).into_iter().flatten();
        let of_runs = runs.filter_map(move |run| {
            let run = run.within(&held)?;
            Some((run.rows.start - held.start..run.rows.end - held.start, run.rows_of_all(length).start))
        });
        let key = self.0;
        of_all
            .into_iter()
            .chain(of_runs)
            .map(move |(rows, token)| (rows, DropoutKey { first_token: key.first_token + token as u64, ..key }))
    }
}

/// `out[R, D] = residual_scale * residual + dropout(x + bias)` assigned.
pub(crate) fn add(context: &Context, sum: DropoutSum, dropout: Option<ResidualDropout>) -> Result<(), DeviceError> {
    let submit = |DropoutSum { x, bias, residual, residual_scale, out }, dropout| {
        context.submit(Op::DropoutAdd { x, bias, residual, residual_scale, dropout, out })
    };
    let Some(dropout) = dropout else { return submit(sum, None) };
    dropout.parts(context).try_for_each(|(rows, key)| {
        let of_rows = |tensor: Tensor| tensor.rows_of(rows.clone());
        let DropoutSum { x, residual, out, .. } = sum;
        submit(DropoutSum { x: of_rows(x), residual: residual.map(of_rows), out: of_rows(out), ..sum }, Some(key))
    })
}
