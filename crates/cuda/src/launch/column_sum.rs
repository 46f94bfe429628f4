//! Sums over rows: kernels/column_sum.cu.

use device::{DeviceError, Dtype, Tensor};
use gpu::LaunchShape;

use super::{Launch, Parameters, Site, Stored, by_type, require};

/// Most columns of a block, and fewest: rows of fewer are read in parts of 32 bytes or less.
const MOST_COLS: usize = 32;
const FEWEST_COLS: usize = 8;
/// Threads of a block at most: `MOST_SUMS` of kernels/groups.cuh.
const THREADS: usize = 1024;
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
    Ok(vec![Launch::new(stored.kernel(by_type!("column_sum")), groups_shape(site, x.rows, x.cols), parameters)])
}

/// A thread for each column of a block and each group of rows that it sums at a time. Blocks have fewer columns where
/// there would be fewer blocks than multiprocessors.
pub(super) fn groups_shape(site: &Site, rows: usize, cols: usize) -> LaunchShape {
    let blocks_of = |width: usize| cols.div_ceil(width);
    let mut width = MOST_COLS;
    while width > FEWEST_COLS && blocks_of(width) < site.multiprocessors as usize {
        width /= 2;
    }
    let groups = rows.div_ceil(GROUP_ROWS).clamp(1, THREADS / width);
    let grid = [blocks_of(width) as u32, 1, 1];
    LaunchShape { grid, block: [width as u32, groups as u32, 1], shared_bytes: 0 }
}
