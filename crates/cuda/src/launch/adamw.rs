//! The optimizer.

use device::{DeviceError, Op};

use super::{Launch, Site};

/// `Op::AdamW`
pub(super) fn adamw(_site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    Err(super::not_here("adamw", op))
}
