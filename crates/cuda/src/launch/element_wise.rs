//! Copies.

use device::{DeviceError, Tensor};

use super::{Launch, Site};

/// `accumulate`
pub(super) fn accumulate(_site: &Site, x: Tensor, _into: Tensor) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("accumulate", &x))
}

/// `fill`
pub(super) fn fill(_site: &Site, out: Tensor, _value: f32) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("fill", &out))
}

/// `copy`
pub(super) fn copy(_site: &Site, from: Tensor, _to: Tensor) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("copy", &from))
}
