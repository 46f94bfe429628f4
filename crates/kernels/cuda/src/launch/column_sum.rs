//! Sums over rows: kernels/column_sum.cu.

use device::{DeviceError, Dtype, Tensor};
use gpu::LaunchShape;

use super::{Launch, Parameters, Place, Site, Stored, by_type, require};

/// Most vectors of a block along its rows, and fewest: rows of fewer are read in parts of less than 32 bytes.
const MOST_VECTORS: usize = 8;
const FEWEST_VECTORS: usize = 2;
/// Threads of a block at most: `THREADS` of kernels/column_sum.cu.
const THREADS: usize = 1024;
/// Rows whose sum starts from zero: part of the numerics.
const GROUP_ROWS: usize = 32;

/// `Op::ColumnSum`
pub(super) fn column_sum(site: &Site, x: Tensor, out: Tensor) -> Result<Vec<Launch>, DeviceError> {
    let stored = Stored::of(x)?;
    let (place, sums) = (site.matrix(x, stored.dtype)?, site.dense(out, Dtype::F32)?.as_vector());
    require(x.cols == out.len(), "column_sum", || format!("{out:?} has not one sum for each column of {x:?}"))?;
    if x.is_empty() {
        return Ok(vec![]);
    }
    let count = neighbours(stored, x.cols, &[place]);
    let parameters = Parameters::new().place(place).place(sums).u32(count as u32);
    let shape = groups_shape(site, THREADS, [x.rows, x.cols], count);
    Ok(vec![Launch::new(stored.kernel(by_type!("column_sum")), shape, parameters)])
}

/// Neighbouring columns of a thread: those of an access of 16 bytes, or one where rows are not aligned.
pub(super) fn neighbours(stored: Stored, cols: usize, tensors: &[Place]) -> usize {
    let in_access = stored.in_access();
    let is_aligned = tensors.iter().all(|tensor| tensor.has_rows_at_multiples(16, stored.dtype.size_bytes()));
    if is_aligned && cols.is_multiple_of(in_access) { in_access } else { 1 }
}

/// A thread for each vector of `count` columns of a block and each group of rows that it sums at a time, at most
/// `threads`. Blocks have as few columns as leave one block for each multiprocessor.
pub(super) fn groups_shape(site: &Site, threads: usize, [rows, cols]: [usize; 2], count: usize) -> LaunchShape {
    let vectors = cols / count;
    // Vectors of one column are as many as make 32 bytes or more.
    let (most, fewest) = if count == 1 { (32, 8) } else { (MOST_VECTORS, FEWEST_VECTORS) };
    let mut width = fewest;
    while width < most && vectors.div_ceil(width) > site.multiprocessors as usize {
        width *= 2;
    }
    // A thread along y for each column of a vector, at least: they add the groups.
    let groups = rows.div_ceil(GROUP_ROWS).clamp(count, threads / width);
    let grid = [vectors.div_ceil(width) as u32, 1, 1];
    LaunchShape { grid, block: [width as u32, groups as u32, 1], shared_bytes: 0 }
}
