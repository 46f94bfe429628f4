//! Layer norm and RMS norm: kernels/norm.cu.

use std::num::NonZeroUsize;

use config::{Norm, NormKind};
use device::{DeviceError, Dtype, NormBackward, Tensor, Write};
use gpu::LaunchShape;

use super::column_sum::{groups_shape, neighbours};
use super::{Launch, Parameters, Place, Site, Stored, by_type, elements_shape, require};

/// Threads of a block, and those of a row of the norm.
const THREADS: u32 = 128;
const TEAM: usize = 16;
/// Threads of a block of the gradient of weights.
const GROUPS_THREADS: usize = 512;
/// Elements that are summed in single precision: part of the numerics.
const CHUNK: usize = 1024;
/// Rows in registers have a multiple of these: `STEPS` of kernels/row_chunks.cuh, for each thread of a team.
const STEP: usize = 64;

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
    let (x, y) = (site.matrix(x, stored.dtype)?, site.matrix(y, stored.dtype)?);
    let weight = site.dense(weight, stored.dtype)?.as_vector();
    let bias = site.optional_dense(bias, stored.dtype)?.as_vector();
    let teams = teams_of_row(stored, weight.cols, &[x, weight, bias, y]);
    let parameters = Parameters::new()
        .place(x)
        .place(weight)
        .place(bias)
        .place(y)
        .place(site.dense(stats, Dtype::F32)?)
        .f32(norm.epsilon);
    let kernels = match norm.kind {
        NormKind::Layer => by_type!("norm_layer"),
        NormKind::Rms => by_type!("norm_rms"),
        NormKind::RmsPlusOne => by_type!("norm_rms_plus_one"),
    };
    Ok(launch_of_rows(site, stored.kernel(kernels), rows, teams, parameters))
}

/// `Op::NormBackwardInput`
pub(super) fn backward_input(site: &Site, t: NormBackward, write: Write) -> Result<Vec<Launch>, DeviceError> {
    let op = "norm_backward_input";
    let rows = rows_of_norm(op, [t.x, t.dy], t.weight.len(), t.stats)?;
    require((t.x.rows, t.x.cols) == (t.dx.rows, t.dx.cols), op, || {
        format!("{:?} is not of the shape of {:?}", t.dx, t.x)
    })?;
    let stored = Stored::of(t.x)?;
    let [x, dy, dx] = [t.x, t.dy, t.dx].map(|tensor| site.matrix(tensor, stored.dtype));
    let (x, dy, dx) = (x?, dy?, dx?);
    let weight = site.dense(t.weight, stored.dtype)?.as_vector();
    let teams = teams_of_row(stored, weight.cols, &[x, weight, dy, dx]);
    let parameters = Parameters::new()
        .place(x)
        .place(weight)
        .place(site.dense(t.stats, Dtype::F32)?)
        .place(dy)
        .place(dx)
        .flag(write == Write::Accumulate);
    let kernels = match t.norm.kind {
        NormKind::Layer => by_type!("norm_backward_input_layer"),
        NormKind::Rms => by_type!("norm_backward_input_rms"),
        NormKind::RmsPlusOne => by_type!("norm_backward_input_rms_plus_one"),
    };
    Ok(launch_of_rows(site, stored.kernel(kernels), rows, teams, parameters))
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
    let stats = site.dense(stats, Dtype::F32)?.as_vector();
    let has_vectors = stats.has_rows_at_multiples(16, Dtype::F32.size_bytes());
    let count = if has_vectors { neighbours(stored, width, &[x_place, dy]) } else { 1 };
    let parameters = Parameters::new()
        .place(x_place)
        .place(stats)
        .place(dy)
        .place(site.dense(dweight, Dtype::F32)?.as_vector())
        .place(site.optional_dense(dbias, Dtype::F32)?.as_vector())
        .u32(count as u32);
    if rows == 0 {
        return Ok(vec![]);
    }
    let shape = groups_shape(site, GROUPS_THREADS, [x.rows, width], count);
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

/// The teams of a row that is in registers, one for each chunk; none where rows are read again for each sum, because
/// they are of single precision or not aligned vectors, or are longer than the chunks of a block's teams.
fn teams_of_row(stored: Stored, width: usize, tensors: &[Place]) -> Option<NonZeroUsize> {
    let is_narrow = stored.dtype.size_bytes() == 2;
    let is_aligned = tensors.iter().all(|tensor| tensor.has_rows_at_multiples(16, stored.dtype.size_bytes()));
    let is_short = width <= CHUNK * (THREADS as usize / TEAM);
    let teams = NonZeroUsize::new(width.div_ceil(CHUNK));
    teams.filter(|_| is_narrow && is_aligned && is_short && width.is_multiple_of(STEP))
}

fn launch_of_rows(
    site: &Site,
    entry: &'static str,
    rows: usize,
    teams: Option<NonZeroUsize>,
    parameters: Parameters,
) -> Vec<Launch> {
    if rows == 0 {
        return vec![];
    }
    let shape = match teams {
        Some(teams) => LaunchShape::linear(rows.div_ceil(THREADS as usize / TEAM / teams.get()) as u32, THREADS),
        None => elements_shape(site, rows * TEAM, THREADS),
    };
    vec![Launch::new(entry, shape, parameters.u32(teams.map_or(0, |teams| teams.get() as u32)))]
}
