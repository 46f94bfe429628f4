//! Sums over rows: kernels/column_sum.cu.

use device::{DeviceError, Dtype, Tensor};
use gpu::LaunchShape;

use super::{Launch, Parameters, Site, Stored, by_type, require};

/// Columns of a block, and most warps: `GROUP_COLS` and `MOST_WARPS` of kernels/groups.cuh.
const GROUP_COLS: usize = 32;
const MOST_WARPS: usize = 32;
/// Rows whose sum starts from zero: part of the numerics.
const GROUP_ROWS: usize = 32;

/// `Op::ColumnSum`
pub(super) fn column_sum(site: &Site, x: Tensor, out: Tensor) -> Result<Vec<Launch>, DeviceError> {
    let stored = Stored::of(x)?;
    let parameters = Parameters::new().place(site.matrix(x, stored.dtype)?).place(site.dense(out, Dtype::F32)?);
    require(x.cols == out.len(), "column_sum", || format!("{out:?} has not one sum for each column of {x:?}"))?;
    if x.is_empty() {
        return Ok(vec![]);
    }
    Ok(vec![Launch::new(stored.kernel(by_type!("column_sum")), groups_shape(x.rows, x.cols), parameters)])
}

/// A warp for each group of rows that a block sums at a time, and a block for each 32 columns.
pub(super) fn groups_shape(rows: usize, cols: usize) -> LaunchShape {
    let warps = rows.div_ceil(GROUP_ROWS).clamp(1, MOST_WARPS);
    let grid = [cols.div_ceil(GROUP_COLS) as u32, 1, 1];
    LaunchShape { grid, block: [GROUP_COLS as u32, warps as u32, 1], shared_bytes: 0 }
}
