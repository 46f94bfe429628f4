//! Products with the activation that follows, or its gradient, in one kernel of compute capability 9.0:
//! kernels/mat_mul_wgmma_activation.cu.

use device::{DeviceError, Tensor};

use super::mat_mul_blocks::Narrow;
use super::mat_mul_wgmma::{Factor, ROWS, along, in_tiles};
use super::product_activation::{End, Form, Fused};
use super::{Launch, Parameters, Site};

/// Columns of a tile.
const COLS: usize = 128;

fn entry(end: End) -> &'static str {
    match end {
        End::Activation(Form::Plain) => "mat_mul_wgmma_activation",
        End::Activation(Form::Gated) => "mat_mul_wgmma_gated",
        End::Gradient(Form::Plain) => "mat_mul_wgmma_activation_backward",
        End::Gradient(Form::Gated) => "mat_mul_wgmma_gated_backward",
    }
}

/// The one launch of an operation, whose tensors fit together; `None` where factors cannot be copied in boxes.
///
/// # Errors
/// The errors of [`super::launches`].
pub(super) fn by_warpgroups(site: &Site, fused: &Fused) -> Result<Option<Launch>, DeviceError> {
    let Fused { end, curve, factors, y, .. } = *fused;
    let factor = |tensor: Tensor| Ok(Factor { tensor, place: site.matrix(tensor, tensor.dtype)? });
    let [a, b] = [factor(factors[0])?, factor(factors[1])?];
    if !a.has_boxes() || !b.has_boxes() {
        return Ok(None);
    }
    let narrow = Narrow::of(factors)?;
    let cols = COLS / end.cols_per_output();
    // Gates and what they let through come in boxes of their own.
    let [of_a, of_b] = along(end.orientation());
    let maps = vec![a.boxes(site, narrow, ROWS, of_a), b.boxes(site, narrow, cols, of_b)];
    let parameters = fused.places(site, Parameters::new())?;
    let parameters = parameters.u32(factors[0].cols as u32).u32(narrow as u32).u32(curve as u32);
    Ok(Some(Launch::new(entry(end), in_tiles(site, [y.rows, y.cols], cols), parameters).with_maps(maps)))
}
