//! Dropout: kernels/dropout.cu.

use device::{DeviceError, DropoutKey, Tensor};

use super::{Launch, Parameters, Site, Stored, by_type, matrix_shape, require, vectors_shape};

/// `Op::DropoutAdd`
pub(super) fn add(
    site: &Site,
    (x, bias): (Tensor, Option<Tensor>),
    (residual, residual_scale): (Option<Tensor>, f32),
    dropout: Option<DropoutKey>,
    out: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "dropout_add";
    require(bias.is_none_or(|bias| bias.len() == out.cols), op, || format!("{bias:?} is not a bias for {out:?}"))?;
    for input in [Some(x), residual].into_iter().flatten() {
        require_shape(op, input, out)?;
    }
    let stored = Stored::of(out)?;
    let parameters = Parameters::new()
        .place(site.matrix(x, stored.dtype)?)
        .place(site.optional_dense(bias, stored.dtype)?)
        .place(site.optional_matrix(residual, stored.dtype)?)
        .f32(residual_scale);
    let place = site.matrix(out, stored.dtype)?;
    if out.is_empty() {
        return Ok(vec![]);
    }
    Ok(vec![match dropout {
        None => Launch::new(
            stored.kernel(by_type!("add_residual")),
            vectors_shape(site, out.rows, out.cols, stored.in_access(), 256),
            parameters.place(place),
        ),
        Some(key) => {
            let shape = matrix_shape(site, out.rows, blocks_of_words(&key, out.cols), 256);
            Launch::new(stored.kernel(by_type!("dropout_add")), shape, parameters.dropout(key).place(place))
        }
    }])
}

/// `Op::DropoutBackward`
pub(super) fn backward(site: &Site, dy: Tensor, dropout: DropoutKey, dx: Tensor) -> Result<Vec<Launch>, DeviceError> {
    require_shape("dropout_backward", dy, dx)?;
    let stored = Stored::of(dx)?;
    let parameters =
        Parameters::new().place(site.matrix(dy, stored.dtype)?).dropout(dropout).place(site.matrix(dx, stored.dtype)?);
    if dx.is_empty() {
        return Ok(vec![]);
    }
    let shape = matrix_shape(site, dx.rows, blocks_of_words(&dropout, dx.cols), 256);
    Ok(vec![Launch::new(stored.kernel(by_type!("dropout_backward")), shape, parameters)])
}

/// Blocks of four channels that a row touches.
fn blocks_of_words(key: &DropoutKey, cols: usize) -> usize {
    ((key.first_channel % 4) as usize + cols).div_ceil(4)
}

fn require_shape(op: &'static str, input: Tensor, out: Tensor) -> Result<(), DeviceError> {
    require((input.rows, input.cols) == (out.rows, out.cols), op, || {
        format!("{input:?} is not of the shape of {out:?}")
    })
}
