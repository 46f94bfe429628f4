//! Operations that stand for two: the launches of both, or of a kernel that computes both where it is asked for.

use device::{DeviceError, Op};

use super::mat_mul_wgmma_activation::in_one_launch;
use super::{Launch, ProductTile, Site, launches};

/// `Op::MatMulActivation`, `Op::MatMulActivationBackward`
pub(super) fn launches_of_fused(site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    // Their errors are those of a fused kernel, too.
    let each = op.unfused().map(|op| launches(&op, site)).collect::<Result<Vec<Vec<Launch>>, DeviceError>>()?;
    if site.tile == Some(ProductTile::FusedOf128)
        && let Some(launch) = in_one_launch(site, op)?
    {
        return Ok(vec![launch]);
    }
    Ok(each.into_iter().flatten().collect())
}
