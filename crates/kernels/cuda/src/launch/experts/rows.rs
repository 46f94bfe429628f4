//! From tokens to rows of experts and back: kernels/expert_rows.cu.

use device::{DeviceError, Dtype, ExpertRows, Tensor, Write};
use gpu::LaunchShape;

use super::{places_of, require_shape};
use crate::launch::{Launch, Parameters, Site, Stored, by_type, require, vectors_shape};

/// Threads of a block that groups rows: `WINDOW`.
const WINDOW: u32 = 256;

/// `ExpertOp::GroupRows`
pub(super) fn group(
    site: &Site,
    choice: Tensor,
    first_expert: usize,
    rows: ExpertRows,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "group_rows";
    let (ranks, experts) = (rows.offsets.rows, rows.offsets.rows * rows.offsets.cols.saturating_sub(1));
    require(choice.len() == rows.places.len(), op, || {
        format!("{:?} has not a place for each of {choice:?}", rows.places)
    })?;
    require(ranks > 0 && rows.slots.len().is_multiple_of(ranks), op, || {
        format!("{:?} has not as much room for each rank of {:?}", rows.slots, rows.offsets)
    })?;
    let is_number = |count: usize| i32::try_from(count).is_ok();
    require(is_number(choice.len()) && is_number(first_expert + experts), op, || {
        format!("{choice:?} or experts {first_expert}..{} are more than I32 counts", first_expert + experts)
    })?;
    let parameters = Parameters::new()
        .place(site.dense(choice, Dtype::I32)?.as_vector())
        .u32(first_expert as u32)
        .place(site.dense(rows.places, Dtype::I32)?.as_vector())
        .place(site.dense(rows.slots, Dtype::I32)?.as_vector())
        .place(site.dense(rows.offsets, Dtype::I32)?);
    if experts == 0 {
        return Ok(vec![]);
    }
    Ok(vec![Launch::new(op, LaunchShape::linear(experts as u32, WINDOW), parameters)])
}

/// `ExpertOp::GatherRows`
pub(super) fn gather(site: &Site, from: Tensor, rows: ExpertRows, to: Tensor) -> Result<Vec<Launch>, DeviceError> {
    let op = "gather_rows";
    require(from.cols == to.cols, op, || format!("rows of {from:?} are not as wide as those of {to:?}"))?;
    let places = places_of(site, op, rows, from)?;
    let stored = Stored::of(from)?;
    let parameters =
        Parameters::new().place(site.matrix(from, stored.dtype)?).place(places).place(site.matrix(to, stored.dtype)?);
    if places.is_empty() || to.is_empty() {
        return Ok(vec![]);
    }
    let shape = vectors_shape(site, rows.places.len(), to.cols, stored.in_access(), 256);
    Ok(vec![Launch::new(stored.kernel(by_type!("gather_rows")), shape, parameters)])
}

/// `ExpertOp::CombineRows`
pub(super) fn combine(
    site: &Site,
    (y, weights): (Tensor, Option<Tensor>),
    rows: ExpertRows,
    out: Tensor,
    write: Write,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "combine_rows";
    require(y.cols == out.cols, op, || format!("rows of {y:?} are not as wide as those of {out:?}"))?;
    let places = places_of(site, op, rows, out)?;
    weights.map_or(Ok(()), |weights| require_shape(op, weights, [rows.places.rows, rows.places.cols]))?;
    let stored = Stored::of(y)?;
    let parameters = Parameters::new()
        .place(site.matrix(y, stored.dtype)?)
        .place(site.optional_matrix(weights, Dtype::F32)?)
        .place(places)
        .place(site.matrix(out, stored.dtype)?)
        .flag(write == Write::Accumulate);
    if out.is_empty() {
        return Ok(vec![]);
    }
    let shape = vectors_shape(site, out.rows, out.cols, stored.in_access(), 256);
    Ok(vec![Launch::new(stored.kernel(by_type!("combine_rows")), shape, parameters)])
}
