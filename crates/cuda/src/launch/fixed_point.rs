//! The sums of a step in fixed point: squares, losses, and the coefficient that follows.

use device::{DeviceError, Op, Tensor};

use super::{Launch, Site};

/// `Op::SquaredSum`
pub(super) fn squared_sum(
    _site: &Site,
    x: Tensor,
    _first_element: usize,
    _loss_scale: f32,
    _sums: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("squared_sum", &x))
}

/// `Op::LossSum`
pub(super) fn loss_sum(
    _site: &Site,
    loss: Tensor,
    _labels: Tensor,
    _sequences: usize,
    _sums: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("loss_sum", &loss))
}

/// `Op::ClipCoefficient`
pub(super) fn clip_coefficient(_site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("clip_coefficient", op))
}
