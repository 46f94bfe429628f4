//! Operations that stand for two: the launches of both, or of a kernel that computes both where it is asked for.

use config::Products;
use device::{DeviceError, Op};

use super::mat_mul_blocks_activation::by_warps;
use super::mat_mul_wgmma_activation::by_warpgroups;
use super::product_activation::Fused;
use super::{Code, Launch, ProductTile, Site, launches};

/// `Op::MatMulActivation`, `Op::MatMulActivationBackward`
pub(super) fn launches_of_fused(site: &Site, op: &Op) -> Result<Vec<Launch>, DeviceError> {
    // Their errors are those of a fused kernel, too.
    let each = op.unfused().map(|op| launches(&op, site)).collect::<Result<Vec<Vec<Launch>>, DeviceError>>()?;
    if site.tile == Some(ProductTile::Fused)
        && let Some(launch) = in_one_launch(site, op)?
    {
        return Ok(vec![launch]);
    }
    Ok(each.into_iter().flatten().collect())
}

/// The one launch of an operation, whose tensors fit together; `None` where there is no kernel for it.
///
/// # Errors
/// The errors of [`super::launches`].
pub(super) fn in_one_launch(site: &Site, op: &Op) -> Result<Option<Launch>, DeviceError> {
    let is_in_blocks = match site.products {
        Products::Blocks16 | Products::Blocks8 => true,
        Products::Chained | Products::Pairs | Products::Device => false,
    };
    let Some(fused) = Fused::of(op).filter(|_| is_in_blocks) else { return Ok(None) };
    if !fused.fits(site, op)? {
        return Ok(None);
    }
    match site.code {
        Code::Of90 => by_warpgroups(site, &fused),
        Code::Common => by_warps(site, &fused).map(Some),
    }
}
