//! The loss of each row, and its gradient: a block of threads per row of logits.

use device::{DeviceError, Dtype, LogitGradient, Op, Tensor};
use gpu::LaunchShape;

use super::{Launch, Parameters, Site, Stored, by_type, require};

const THREADS: u32 = 256;

/// `Op::RowMax`
pub(super) fn row_max(
    site: &Site,
    logits: Tensor,
    valid_columns: usize,
    out: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    has_rows("row_max", logits, valid_columns, [(out, 1)])?;
    let parameters = Parameters::new()
        .place(site.matrix(logits, Dtype::F32)?)
        .u32(valid_columns as u32)
        .place(site.dense(out, Dtype::F32)?);
    Ok(of_rows("row_max", logits.rows, parameters))
}

/// `Op::SumExp`
pub(super) fn sum_exp(site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    let Op::SumExp { logits, valid_columns, max, labels, first_row, sums } = *op else {
        return Err(super::other_op("sum_exp", op));
    };
    has_rows("sum_exp", logits, valid_columns, [(max, 1), (labels, 1), (sums, 2)])?;
    let parameters = Parameters::new()
        .place(site.matrix(logits, Dtype::F32)?)
        .u32(valid_columns as u32)
        .place(site.dense(max, Dtype::F32)?)
        .place(site.dense(labels, Dtype::I32)?)
        .u64(first_row as u64)
        .place(site.dense(sums, Dtype::F32)?);
    Ok(of_rows("sum_exp", logits.rows, parameters))
}

/// `Op::CrossEntropy`
pub(super) fn cross_entropy(site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    let Op::CrossEntropy { logits, valid_columns, max, sums, labels, first_row, gradient, loss, z_loss } = *op else {
        return Err(super::other_op("cross_entropy", op));
    };
    has_rows("cross_entropy", logits, valid_columns, [(max, 1), (sums, 2), (labels, 1), (loss, 1)])?;
    let (coefficient, z_losses) = z_loss.map_or((0.0, None), |z_loss| (z_loss.coefficient, Some(z_loss.losses)));
    if let Some(losses) = z_losses {
        has_rows("cross_entropy", logits, valid_columns, [(losses, 1)])?;
    }
    let [max, sums, loss] = [max, sums, loss].map(|tensor| site.dense(tensor, Dtype::F32));
    let (logits_place, labels) = (site.matrix(logits, Dtype::F32)?, site.dense(labels, Dtype::I32)?);
    let z_losses = site.optional_dense(z_losses, Dtype::F32)?;
    let Some(LogitGradient { scale, into }) = gradient else {
        let parameters =
            Parameters::new().place(max?).place(sums?).place(labels).place(loss?).place(z_losses).f32(coefficient);
        return Ok(of_rows("cross_entropy", logits.rows.div_ceil(THREADS as usize), parameters));
    };
    require((logits.rows, logits.cols) == (into.rows, into.cols), "cross_entropy", || {
        format!("{into:?} is not of the shape of {logits:?}")
    })?;
    let parameters = Parameters::new()
        .place(logits_place)
        .u32(valid_columns as u32)
        .place(site.matrix(into, into.dtype)?)
        .place(max?)
        .place(sums?)
        .place(labels)
        .u64(first_row as u64)
        .f32(scale)
        .place(loss?)
        .place(z_losses)
        .f32(coefficient);
    let entry = Stored::of(into)?.kernel(by_type!("cross_entropy_gradient"));
    Ok(of_rows(entry, logits.rows, parameters))
}

/// Refuses padding that is not part of the columns, and tensors with another number of elements per row.
fn has_rows<const N: usize>(
    op: &'static str,
    logits: Tensor,
    valid_columns: usize,
    tensors: [(Tensor, usize); N],
) -> Result<(), DeviceError> {
    require(valid_columns <= logits.cols && logits.cols < 1 << 31, op, || {
        format!("{valid_columns} valid columns of {logits:?}")
    })?;
    tensors.into_iter().try_for_each(|(tensor, per_row)| {
        require(tensor.len() == per_row * logits.rows, op, || {
            format!("{tensor:?} is not {per_row} for each row of {logits:?}")
        })
    })
}

fn of_rows(entry: &'static str, blocks: usize, parameters: Parameters) -> Vec<Launch> {
    if blocks == 0 {
        return vec![];
    }
    vec![Launch::new(entry, LaunchShape::linear(blocks as u32, THREADS), parameters)]
}
