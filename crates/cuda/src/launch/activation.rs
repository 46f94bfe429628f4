//! Activations.

use device::{DeviceError, Tensor};

use super::{Launch, Site};

/// `activation`
pub(super) fn forward(
    _site: &Site,
    _activation: config::Activation,
    x: Tensor,
    _y: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("activation", &x))
}

/// `activation_backward`
pub(super) fn backward(
    _site: &Site,
    _activation: config::Activation,
    x: Tensor,
    _dy: Tensor,
    _outputs: (Tensor, Tensor),
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("activation_backward", &x))
}
