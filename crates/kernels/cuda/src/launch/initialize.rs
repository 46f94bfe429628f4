//! Initial weights: a thread per random block of four numbers.

use device::{DeviceError, Op};
use gpu::LaunchShape;

use super::{Launch, Parameters, Site, Stored, by_type, require};

const THREADS: usize = 256;
/// Rows that are filled at once.
const MAX_ROWS: usize = 65_535;

/// `Op::InitializeNormal`
pub(super) fn normal(site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    let Op::InitializeNormal { out, seed, parameter, std, first_row, first_col, global_cols } = *op else {
        return Err(super::other_op("initialize_normal", op));
    };
    require(first_col + out.cols <= global_cols, "initialize_normal", || {
        format!("{out:?} from column {first_col} on is not part of rows of {global_cols}")
    })?;
    let stored = Stored::of(out)?;
    let first = (first_row * global_cols + first_col) as u64;
    let parameters = Parameters::new()
        .place(site.matrix(out, out.dtype)?)
        .u64(first)
        .u64(global_cols as u64)
        .words(&philox::key_of_initial_weights(seed))
        .u64(parameter)
        .f32(std);
    if out.is_empty() {
        return Ok(vec![]);
    }
    // A row can begin and end inside of a random block.
    let blocks = out.cols.div_ceil(4) + 1;
    let grid = [blocks.div_ceil(THREADS) as u32, out.rows.min(MAX_ROWS) as u32, 1];
    let shape = LaunchShape { grid, block: [THREADS as u32, 1, 1], shared_bytes: 0 };
    Ok(vec![Launch::new(stored.kernel(by_type!("initialize_normal")), shape, parameters)])
}
