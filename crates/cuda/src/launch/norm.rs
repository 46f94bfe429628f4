//! Norms.

use device::{DeviceError, NormBackward, Tensor, Write};

use super::{Launch, Site};

/// `norm`
pub(super) fn forward(
    _site: &Site,
    _norm: config::Norm,
    x: Tensor,
    _affine: (Tensor, Option<Tensor>),
    _y: Tensor,
    _stats: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("norm", &x))
}

/// `norm_backward_input`
pub(super) fn backward_input(_site: &Site, tensors: NormBackward, _write: Write) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("norm_backward_input", &tensors))
}

/// `norm_backward_weight`
pub(super) fn backward_weight(
    _site: &Site,
    x: Tensor,
    _stats: Tensor,
    _dy: Tensor,
    _sums: (Tensor, Option<Tensor>),
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("norm_backward_weight", &x))
}
