//! Rotary positions: kernels/rotary.cu.

use config::{Pairing, RotaryScaling};
use device::{DeviceError, Direction, Dtype, Tensor};

use super::{Launch, Parameters, Site, Stored, by_type, matrix_shape, require, vectors_shape};

/// `Op::RotaryTable`
pub(super) fn table(
    site: &Site,
    cos: Tensor,
    sin: Tensor,
    base: f32,
    scaling: RotaryScaling,
) -> Result<Vec<Launch>, DeviceError> {
    require((cos.rows, cos.cols) == (sin.rows, sin.cols), "rotary_table", || {
        format!("{sin:?} is not of the shape of {cos:?}")
    })?;
    let parameters =
        Parameters::new().place(site.matrix(cos, Dtype::F32)?).place(site.matrix(sin, Dtype::F32)?).f32(base);
    // The kinds are those of kernels/rotary.cu.
    let parameters = match scaling {
        RotaryScaling::Off => parameters.u32(0).f32(1.0).f32(0.0).f32(0.0).f64(0.0),
        RotaryScaling::Linear { factor } => parameters.u32(1).f32(factor).f32(0.0).f32(0.0).f64(0.0),
        RotaryScaling::Llama3 { factor, low_turns, high_turns, original_context } => {
            parameters.u32(2).f32(factor).f32(low_turns).f32(high_turns).f64(original_context as f64)
        }
        RotaryScaling::Yarn { factor, .. } => {
            let [first, last] = scaling.of_pairs(base, cos.cols).ends;
            parameters.u32(3).f32(factor).f32(first).f32(last).f64(0.0)
        }
    };
    let parameters = parameters.f32(scaling.magnitude());
    if cos.is_empty() {
        return Ok(vec![]);
    }
    Ok(vec![Launch::new("rotary_table", matrix_shape(site, cos.rows, cos.cols, 128), parameters)])
}

/// `Op::Rotary`
pub(super) fn turn(
    site: &Site,
    (x, head_dim): (Tensor, usize),
    positions: Tensor,
    (cos, sin): (Tensor, Tensor),
    pairing: Pairing,
    direction: Direction,
) -> Result<Vec<Launch>, DeviceError> {
    require(positions.len() == x.rows, "rotary", || {
        format!("{positions:?} has not one position for each row of {x:?}")
    })?;
    require(cos.cols == sin.cols, "rotary", || format!("{cos:?} and {sin:?} are not of one width"))?;
    require(head_dim > 0 && 2 * cos.cols <= head_dim, "rotary", || {
        format!("{} rotary channels in heads of {head_dim}", 2 * cos.cols)
    })?;
    let sign = match direction {
        Direction::Forward => 1.0,
        Direction::Backward => -1.0,
    };
    let stored = Stored::of(x)?;
    let place = site.matrix(x, stored.dtype)?;
    let positions = site.dense(positions, Dtype::I32)?;
    let (cos, sin) = (site.matrix(cos, Dtype::F32)?, site.matrix(sin, Dtype::F32)?);
    let (entry, several) = match pairing {
        Pairing::Half => (stored.kernel(by_type!("rotary_half")), 8),
        Pairing::Interleaved => (stored.kernel(by_type!("rotary_interleaved")), 4),
    };
    // Heads and their pairs are whole accesses of 16 bytes.
    let is_aligned = place.has_rows_at_multiples(16, stored.dtype.size_bytes())
        && [cos, sin].iter().all(|table| table.has_rows_at_multiples(16, Dtype::F32.size_bytes()))
        && head_dim.is_multiple_of(8)
        && cos.cols.is_multiple_of(several);
    let count = if is_aligned { several } else { 1 };
    let parameters = Parameters::new()
        .place(place)
        .u64(head_dim as u64)
        .place(positions)
        .place(cos)
        .place(sin)
        .f32(sign)
        .u32(count as u32);
    let pairs = x.cols / head_dim * cos.cols;
    if x.rows == 0 || pairs == 0 {
        return Ok(vec![]);
    }
    Ok(vec![Launch::new(entry, vectors_shape(site, x.rows, pairs, count, 256), parameters)])
}
