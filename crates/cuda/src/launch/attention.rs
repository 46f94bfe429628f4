//! Attention.

use device::{AttentionGradients, AttentionOperands, DeviceError};

use super::{Launch, Site};

/// `Op::Attention`
pub(super) fn forward(_site: &Site, operands: &AttentionOperands) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("attention", operands))
}

/// `Op::AttentionBackward`
pub(super) fn backward(
    _site: &Site,
    operands: &AttentionOperands,
    _gradients: &AttentionGradients,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("attention_backward", operands))
}
