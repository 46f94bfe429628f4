//! Dropout: kernels/dropout.cu.

use device::{DeviceError, DropoutKey, Dtype, Tensor};

use super::{Launch, Parameters, Site, matrix_shape, require};

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
    let parameters = Parameters::new()
        .place(site.matrix(x, Dtype::F32)?)
        .place(site.optional_dense(bias, Dtype::F32)?)
        .place(site.optional_matrix(residual, Dtype::F32)?)
        .f32(residual_scale);
    let place = site.matrix(out, Dtype::F32)?;
    if out.is_empty() {
        return Ok(vec![]);
    }
    Ok(vec![match dropout {
        None => Launch::new("add_residual", matrix_shape(site, out.rows, out.cols, 256), parameters.place(place)),
        Some(key) => {
            let shape = matrix_shape(site, out.rows, blocks_of_words(&key, out.cols), 256);
            Launch::new("dropout_add", shape, parameters.dropout(key).place(place))
        }
    }])
}

/// `Op::DropoutBackward`
pub(super) fn backward(site: &Site, dy: Tensor, dropout: DropoutKey, dx: Tensor) -> Result<Vec<Launch>, DeviceError> {
    require_shape("dropout_backward", dy, dx)?;
    let parameters =
        Parameters::new().place(site.matrix(dy, Dtype::F32)?).dropout(dropout).place(site.matrix(dx, Dtype::F32)?);
    if dx.is_empty() {
        return Ok(vec![]);
    }
    let shape = matrix_shape(site, dx.rows, blocks_of_words(&dropout, dx.cols), 256);
    Ok(vec![Launch::new("dropout_backward", shape, parameters)])
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
