//! Operations that stand for two: the launches of both.

use device::{DeviceError, Op};

use super::{Launch, Site, launches};

/// `Op::MatMulActivation`, `Op::MatMulActivationBackward`
pub(super) fn launches_of_fused(site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    let each = op.unfused().map(|op| launches(&op, site)).collect::<Result<Vec<Vec<Launch>>, DeviceError>>()?;
    Ok(each.into_iter().flatten().collect())
}
