//! Dropout.

use device::{DeviceError, DropoutKey, Tensor};

use super::{Launch, Site};

/// `dropout_add`
pub(super) fn add(
    _site: &Site,
    x: (Tensor, Option<Tensor>),
    _residual: (Option<Tensor>, f32),
    _dropout: Option<DropoutKey>,
    _out: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("dropout_add", &x))
}

/// `dropout_backward`
pub(super) fn backward(
    _site: &Site,
    dy: Tensor,
    _dropout: DropoutKey,
    _dx: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("dropout_backward", &dy))
}
