//! Embeddings: kernels/embedding.cu.

use device::{DeviceError, Dtype, Tensor, Write};
use gpu::LaunchShape;

use super::{Launch, Parameters, Site, Stored, by_type, require, vectors_shape};

/// Threads of a block of the backward pass, and tokens that it looks at together.
const WINDOW: usize = 256;

/// `Op::EmbeddingLookup`
pub(super) fn lookup(
    site: &Site,
    tokens: Tensor,
    (table, first_row): (Tensor, usize),
    out: Tensor,
    write: Write,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "embedding_lookup";
    require(tokens.len() == out.rows, op, || format!("{tokens:?} has not one token for each row of {out:?}"))?;
    require(table.cols == out.cols, op, || format!("rows of {table:?} are not as wide as those of {out:?}"))?;
    let stored = Stored::of(table)?;
    let parameters = Parameters::new()
        .place(site.dense(tokens, Dtype::I32)?)
        .place(site.matrix(table, stored.dtype)?)
        .u64(first_row as u64)
        .place(site.matrix(out, stored.dtype)?)
        .flag(write == Write::Accumulate);
    if out.is_empty() {
        return Ok(vec![]);
    }
    Ok(vec![Launch::new(
        stored.kernel(by_type!("embedding_lookup")),
        vectors_shape(site, out.rows, out.cols, stored.in_access(), 256),
        parameters,
    )])
}

/// `Op::EmbeddingBackward`
pub(super) fn backward(
    site: &Site,
    tokens: Tensor,
    (dy, scale): (Tensor, f32),
    first_row: usize,
    untrained: Option<usize>,
    dtable: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "embedding_backward";
    require(tokens.len() == dy.rows, op, || format!("{tokens:?} has not one token for each row of {dy:?}"))?;
    require(dtable.cols == dy.cols, op, || format!("rows of {dtable:?} are not as wide as those of {dy:?}"))?;
    require(u32::try_from(dtable.rows).is_ok(), op, || format!("{dtable:?} has more rows than tokens can name"))?;
    // No token is negative.
    let untrained = untrained.and_then(|row| i32::try_from(row).ok()).unwrap_or(-1);
    let stored = Stored::of(dy)?;
    let parameters = Parameters::new()
        .place(site.dense(tokens, Dtype::I32)?)
        .place(site.matrix(dy, stored.dtype)?)
        .f32(scale)
        .u64(first_row as u64)
        .i32(untrained)
        .place(site.matrix(dtable, Dtype::F32)?);
    if dy.is_empty() || dtable.is_empty() {
        return Ok(vec![]);
    }
    let columns = dtable.cols.div_ceil(WINDOW);
    // Every block reads all tokens, so there are no more than the GPU has at once.
    let rows = (8 * site.multiprocessors as usize).div_ceil(columns).clamp(1, dtable.rows);
    let shape = LaunchShape { grid: [columns as u32, rows as u32, 1], block: [WINDOW as u32, 1, 1], shared_bytes: 0 };
    Ok(vec![Launch::new(stored.kernel(by_type!("embedding_backward")), shape, parameters)])
}
