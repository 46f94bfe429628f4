//! Products of matrices.

use device::{DeviceError, Orientation, Tensor, Write};

use super::{Launch, Site};

/// `mat_mul`
pub(super) fn mat_mul(
    _site: &Site,
    _orientation: Orientation,
    factors: [Tensor; 2],
    _bias: Option<Tensor>,
    _out: Tensor,
    _write: Write,
) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("mat_mul", &factors))
}
