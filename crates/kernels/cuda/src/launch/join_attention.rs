//! Joining attention on two sets of keys: a block of threads per row and head.

use device::{DeviceError, Dtype, Tensor, Write};
use gpu::LaunchShape;

use super::{Launch, Parameters, Site, Stored, by_type, require};

const THREADS: u32 = 64;
/// Most blocks of a launch along y.
const MAX_BLOCKS: usize = 65_535;

/// `Op::JoinAttention`
pub(super) fn join(
    site: &Site,
    [part, part_log_sum_exp]: [Tensor; 2],
    [out, log_sum_exp]: [Tensor; 2],
    head_dim: usize,
    write: Write,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "join_attention";
    let (rows, heads) = (log_sum_exp.rows, log_sum_exp.cols);
    require((part_log_sum_exp.rows, part_log_sum_exp.cols) == (rows, heads), op, || {
        format!("{part_log_sum_exp:?} is not [{rows}, {heads}]")
    })?;
    for tensor in [part, out] {
        require((tensor.rows, tensor.cols) == (rows, heads * head_dim), op, || {
            format!("{tensor:?} is not [{rows}, {}]", heads * head_dim)
        })?;
    }
    let stored = Stored::of(part)?;
    let parameters = Parameters::new()
        .place(site.matrix(part, stored.dtype)?)
        .place(site.matrix(part_log_sum_exp, Dtype::F32)?)
        .place(site.matrix(out, Dtype::F32)?)
        .place(site.matrix(log_sum_exp, Dtype::F32)?);
    if rows * heads == 0 {
        return Ok(vec![]);
    }
    let entry = match write {
        Write::Assign => stored.kernel(by_type!("join_attention_assign")),
        Write::Accumulate => stored.kernel(by_type!("join_attention_accumulate")),
    };
    let grid = [heads as u32, rows.min(MAX_BLOCKS) as u32, 1];
    let shape = LaunchShape { grid, block: [THREADS, 1, 1], shared_bytes: 0 };
    Ok(vec![Launch::new(entry, shape, parameters.u32(head_dim as u32))])
}
