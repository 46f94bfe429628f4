//! Sums of whole numbers in place of real ones.

use device::{DeviceError, Rounding, Tensor, Write};

use super::{Launch, Site};

/// `Op::AddRounded`
pub(super) fn add(
    _site: &Site,
    x: Tensor,
    _rounding: Rounding,
    _into: Tensor,
    _write: Write,
    _refusals: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("add_rounded", &x))
}

/// `Op::RoundedToSingle`
pub(super) fn to_single(_site: &Site, sums: Tensor, _unit: f32) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("rounded_to_single", &sums))
}
