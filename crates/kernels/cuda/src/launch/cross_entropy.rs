//! The loss of each row, and its gradient: a block of threads per row of logits.

use device::{DeviceError, Dtype, LogitGradient, Op, RowStatistics, Tensor};
use gpu::{Capability, LaunchShape};

use super::{ByType, Launch, Parameters, Place, Site, Stored, by_type, require};

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
    let Op::CrossEntropy { logits, valid_columns, statistics, labels, first_row, gradient, loss, z_loss } = *op else {
        return Err(super::other_op("cross_entropy", op));
    };
    has_rows("cross_entropy", logits, valid_columns, [(labels, 1), (loss, 1)])?;
    if let Some(LogitGradient { into, .. }) = gradient {
        require((into.rows, into.cols) == (logits.rows, logits.cols), "cross_entropy", || {
            format!("{into:?} is not of the shape of {logits:?}")
        })?;
    }
    let (coefficient, z_losses) = z_loss.map_or((0.0, None), |z_loss| (z_loss.coefficient, Some(z_loss.losses)));
    if let Some(losses) = z_losses {
        has_rows("cross_entropy", logits, valid_columns, [(losses, 1)])?;
    }
    let places = Places {
        logits: site.matrix(logits, Dtype::F32)?,
        labels: site.dense(labels, Dtype::I32)?,
        loss: site.dense(loss, Dtype::F32)?,
        z_losses: site.optional_dense(z_losses, Dtype::F32)?,
    };
    let Places { logits: from, labels, loss, z_losses } = places;
    let Some(RowStatistics { max, sums }) = statistics else {
        return whole_rows(site, op, places, coefficient);
    };
    has_rows("cross_entropy", logits, valid_columns, [(max, 1), (sums, 2)])?;
    let [max, sums] = [site.dense(max, Dtype::F32)?, site.dense(sums, Dtype::F32)?];
    let Some(LogitGradient { scale, into }) = gradient else {
        let parameters =
            Parameters::new().place(max).place(sums).place(labels).place(loss).place(z_losses).f32(coefficient);
        return Ok(of_rows("cross_entropy", logits.rows.div_ceil(THREADS as usize), parameters));
    };
    let stored = Stored::of(into)?;
    let parameters = Parameters::new().place(from).u32(valid_columns as u32).place(max).place(sums).place(labels);
    let parameters = parameters.u64(first_row as u64).f32(scale).place(loss).place(z_losses).f32(coefficient);
    let parameters = parameters.place(site.matrix(into, stored.dtype)?);
    Ok(of_rows(stored.kernel(by_type!("cross_entropy_gradient")), logits.rows, parameters))
}

/// Tensors of a loss that are always the same.
#[derive(Clone, Copy, Debug)]
struct Places {
    logits: Place,
    labels: Place,
    loss: Place,
    z_losses: Place,
}

/// How a kernel reads a row again: `Again`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Again {
    InShared,
    InMemory,
}

/// Rows with more columns have blocks of [`MANY_THREADS`].
const COLUMNS_OF_FEW_THREADS: usize = 4096;
const MANY_THREADS: u32 = 1024;

/// Bytes of a row that blocks can have in shared memory, besides 9 KiB of their own.
fn most_row_bytes(capability: Capability) -> usize {
    let all = match (capability.major, capability.minor) {
        (9 | 10, _) => 227,
        (8, 0) => 163,
        _ => 99,
    };
    (all - 9) << 10
}

/// `Op::CrossEntropy` without statistics.
fn whole_rows(site: &Site, op: &Op, places: Places, coefficient: f32) -> Result<Vec<Launch>, DeviceError> {
    let Op::CrossEntropy { logits, valid_columns, first_row, gradient, .. } = *op else {
        return Err(super::other_op("cross_entropy", op));
    };
    let (scale, into) = gradient.map_or((0.0, None), |gradient| (gradient.scale, Some(gradient.into)));
    let stored = Stored::of(into.unwrap_or(logits))?;
    let row_bytes = 4 * valid_columns;
    let (again, shared_bytes) = match row_bytes <= most_row_bytes(site.capability) {
        true => (Again::InShared, row_bytes as u32),
        false => (Again::InMemory, 0),
    };
    let (kernels, threads): (ByType, u32) = match valid_columns <= COLUMNS_OF_FEW_THREADS {
        true => (by_type!("cross_entropy_rows_256"), THREADS),
        false => (by_type!("cross_entropy_rows_1024"), MANY_THREADS),
    };
    let Places { logits: from, labels, loss, z_losses } = places;
    let parameters = Parameters::new().place(from).u32(valid_columns as u32).place(labels).u64(first_row as u64);
    let parameters = parameters.f32(scale).place(loss).place(z_losses).f32(coefficient);
    let parameters = parameters.place(site.optional_matrix(into, stored.dtype)?).u32(again as u32);
    if logits.rows == 0 {
        return Ok(vec![]);
    }
    let shape = LaunchShape { shared_bytes, ..LaunchShape::linear(logits.rows as u32, threads) };
    Ok(vec![Launch::new(stored.kernel(kernels), shape, parameters)])
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
