//! Initial weights.

use device::{DeviceError, Op};

use super::{Launch, Site};

/// `Op::InitializeNormal`
pub(super) fn normal(_site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("initialize_normal", op))
}
