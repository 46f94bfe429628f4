//! Layer norm and RMS norm: kernels/norm.cu.

use config::{Norm, NormKind};
use device::{DeviceError, Dtype, NormBackward, Tensor, Write};

use super::column_sum::{groups_shape, neighbours};
use super::{Launch, Parameters, Site, Stored, by_type, elements_shape, require};

/// Threads of a block, and those of a row of the norm.
const THREADS: u32 = 128;
const TEAM: usize = 16;

/// `Op::Norm`
pub(super) fn forward(
    site: &Site,
    norm: Norm,
    x: Tensor,
    (weight, bias): (Tensor, Option<Tensor>),
    y: Tensor,
    stats: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    let rows = rows_of_norm("norm", [x, y], weight.len(), stats)?;
    require(bias.is_none_or(|bias| bias.len() == weight.len()), "norm", || {
        format!("{bias:?} is not a bias for {weight:?}")
    })?;
    let stored = Stored::of(x)?;
    let parameters = Parameters::new()
        .place(site.matrix(x, stored.dtype)?)
        .place(site.dense(weight, stored.dtype)?.as_vector())
        .place(site.optional_dense(bias, stored.dtype)?)
        .place(site.matrix(y, stored.dtype)?)
        .place(site.dense(stats, Dtype::F32)?)
        .f32(norm.epsilon);
    let kernels = match norm.kind {
        NormKind::Layer => by_type!("norm_layer"),
        NormKind::Rms => by_type!("norm_rms"),
        NormKind::RmsPlusOne => by_type!("norm_rms_plus_one"),
    };
    Ok(launch_of_rows(site, stored.kernel(kernels), rows, parameters))
}

/// `Op::NormBackwardInput`
pub(super) fn backward_input(site: &Site, t: NormBackward, write: Write) -> Result<Vec<Launch>, DeviceError> {
    let op = "norm_backward_input";
    let rows = rows_of_norm(op, [t.x, t.dy], t.weight.len(), t.stats)?;
    require((t.x.rows, t.x.cols) == (t.dx.rows, t.dx.cols), op, || {
        format!("{:?} is not of the shape of {:?}", t.dx, t.x)
    })?;
    let stored = Stored::of(t.x)?;
    let parameters = Parameters::new()
        .place(site.matrix(t.x, stored.dtype)?)
        .place(site.dense(t.weight, stored.dtype)?.as_vector())
        .place(site.dense(t.stats, Dtype::F32)?)
        .place(site.matrix(t.dy, stored.dtype)?)
        .place(site.matrix(t.dx, stored.dtype)?)
        .flag(write == Write::Accumulate);
    let kernels = match t.norm.kind {
        NormKind::Layer => by_type!("norm_backward_input_layer"),
        NormKind::Rms => by_type!("norm_backward_input_rms"),
        NormKind::RmsPlusOne => by_type!("norm_backward_input_rms_plus_one"),
    };
    Ok(launch_of_rows(site, stored.kernel(kernels), rows, parameters))
}

/// `Op::NormBackwardWeight`
pub(super) fn backward_weight(
    site: &Site,
    x: Tensor,
    stats: Tensor,
    dy: Tensor,
    (dweight, dbias): (Tensor, Option<Tensor>),
) -> Result<Vec<Launch>, DeviceError> {
    let op = "norm_backward_weight";
    let rows = rows_of_norm(op, [x, dy], dweight.len(), stats)?;
    require(dbias.is_none_or(|dbias| dbias.len() == dweight.len()), op, || {
        format!("{dbias:?} is not of the length of {dweight:?}")
    })?;
    let stored = Stored::of(x)?;
    let width = dweight.len();
    let (x_place, dy) = (site.matrix(x, stored.dtype)?, site.matrix(dy, stored.dtype)?);
    let count = neighbours(stored, width, &[x_place, dy]);
    let parameters = Parameters::new()
        .place(x_place)
        .place(site.dense(stats, Dtype::F32)?)
        .place(dy)
        .place(site.dense(dweight, Dtype::F32)?.as_vector())
        .place(site.optional_dense(dbias, Dtype::F32)?.as_vector())
        .u32(count as u32);
    if rows == 0 {
        return Ok(vec![]);
    }
    let shape = groups_shape(site, x.rows, width, count);
    Ok(vec![Launch::new(stored.kernel(by_type!("norm_backward_weight")), shape, parameters)])
}

/// The number of rows of `width` elements in matrices of one shape, which `stats` has two numbers for each of.
fn rows_of_norm(op: &'static str, [x, y]: [Tensor; 2], width: usize, stats: Tensor) -> Result<usize, DeviceError> {
    require((x.rows, x.cols) == (y.rows, y.cols), op, || format!("{y:?} is not of the shape of {x:?}"))?;
    require(width > 0 && x.cols.is_multiple_of(width), op, || format!("rows of {x:?} are not heads of {width}"))?;
    let rows = x.rows * (x.cols / width);
    require(stats.len() == 2 * rows, op, || format!("{stats:?} has not two numbers for each of {rows} rows"))?;
    Ok(rows)
}

fn launch_of_rows(site: &Site, entry: &'static str, rows: usize, parameters: Parameters) -> Vec<Launch> {
    if rows == 0 {
        return vec![];
    }
    vec![Launch::new(entry, elements_shape(site, rows * TEAM, THREADS), parameters)]
}
