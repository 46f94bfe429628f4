//! Rotary positions.

use device::{DeviceError, Direction, Tensor};

use super::{Launch, Site};

/// `rotary_table`
pub(super) fn table(
    _site: &Site,
    cos: Tensor,
    _sin: Tensor,
    _base: f32,
    _scaling: config::RotaryScaling,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("rotary_table", &cos))
}

/// `rotary`
pub(super) fn turn(
    _site: &Site,
    x: (Tensor, usize),
    _positions: Tensor,
    _table: (Tensor, Tensor),
    _pairing: config::Pairing,
    _direction: Direction,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("rotary", &x))
}
