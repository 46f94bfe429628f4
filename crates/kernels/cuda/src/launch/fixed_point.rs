//! The sums of a step in fixed point: squares, losses, and the coefficient that follows.

use config::SHARD_BLOCK;
use device::{DeviceError, Dtype, Op, SUM_WORDS, Tensor};
use gpu::LaunchShape;

use super::{Launch, Parameters, Site, require};

const THREADS: u32 = 256;
/// Blocks of elements that a block of threads sums.
const BLOCKS_PER_LAUNCH_BLOCK: usize = 16;

/// Refuses a tensor that is not the words of a sum.
pub(super) fn is_sum(sum: Tensor) -> Result<(), DeviceError> {
    require((sum.dtype, sum.rows, sum.cols) == (Dtype::I64, 1, SUM_WORDS), "sum", || {
        format!("{sum:?} is not the {SUM_WORDS} words of a sum")
    })
}

/// `Op::SquaredSum`
pub(super) fn squared_sum(
    site: &Site,
    x: Tensor,
    first_element: usize,
    loss_scale: f32,
    sums: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    is_sum(sums)?;
    let offset = first_element % SHARD_BLOCK;
    let squared_loss_scale = f64::from(loss_scale) * f64::from(loss_scale);
    let parameters = Parameters::new()
        .place(site.dense(x, Dtype::F32)?)
        .u32(offset as u32)
        .f64(squared_loss_scale)
        .changing()
        .place(site.dense(sums, Dtype::I64)?);
    if x.is_empty() {
        return Ok(vec![]);
    }
    let blocks = (offset + x.len()).div_ceil(SHARD_BLOCK).div_ceil(BLOCKS_PER_LAUNCH_BLOCK);
    Ok(vec![Launch::new("squared_sum", LaunchShape::linear(blocks as u32, THREADS), parameters)])
}

/// `Op::LossSum`
pub(super) fn loss_sum(
    site: &Site,
    loss: Tensor,
    labels: Tensor,
    sequences: usize,
    sums: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    is_sum(sums)?;
    require(loss.len() == labels.len(), "loss_sum", || format!("{loss:?} and {labels:?} are not of one length"))?;
    let (loss_place, labels) = (site.dense(loss, Dtype::F32)?, site.dense(labels, Dtype::I32)?);
    let sums = site.dense(sums, Dtype::I64)?;
    if loss.is_empty() {
        return Ok(vec![]);
    }
    require(sequences > 0 && loss.len().is_multiple_of(sequences), "loss_sum", || {
        format!("{} tokens in {sequences} sequences", loss.len())
    })?;
    let length = (loss.len() / sequences) as u32;
    let parameters = Parameters::new().place(loss_place).place(labels).u32(length).place(sums);
    Ok(vec![Launch::new("loss_sum", LaunchShape::linear(sequences as u32, THREADS), parameters)])
}

/// `Op::ClipCoefficient`
pub(super) fn clip_coefficient(site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    let Op::ClipCoefficient { norm_sums, loss_sums, nominal_tokens, loss_scale, clip_norm, out } = *op else {
        return Err(super::other_op("clip_coefficient", op));
    };
    is_sum(norm_sums)?;
    is_sum(loss_sums)?;
    require(out.len() == 4, "clip_coefficient", || format!("{out:?} is not 4 numbers"))?;
    let parameters = Parameters::new()
        .place(site.dense(norm_sums, Dtype::I64)?)
        .place(site.dense(loss_sums, Dtype::I64)?)
        .f64(nominal_tokens)
        .changing()
        .f32(loss_scale)
        .changing()
        .f32(clip_norm.unwrap_or(f32::INFINITY))
        .place(site.dense(out, Dtype::F32)?);
    Ok(vec![Launch::new("clip_coefficient", LaunchShape::linear(1, 1), parameters)])
}
