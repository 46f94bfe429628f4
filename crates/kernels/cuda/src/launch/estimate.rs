//! The tiles that compute a product, the fastest first by estimate.

use device::{Op, Tensor};

use super::fused::in_one_launch;
use super::mat_mul::Product;
use super::mat_mul_wgmma::Factor;
use super::parameters::Tile;
use super::{Code, Site};

/// The tiles with which kernels in blocks compute a product, with or without what follows it, the one that is
/// estimated to be the fastest first; none for other operations, and for those that have one kernel whatever the tile.
pub(crate) fn tiles_by_estimate(op: &Op, site: &Site) -> Vec<Tile> {
    let Some(Op::MatMul { orientation, a, b, bias, out, write }) = op.unfused().next() else { return vec![] };
    let product = Product { orientation, a, b, bias, out, write };
    let Ok(sizes) = product.sizes() else { return vec![] };
    let alone = match site.code {
        Code::Common => vec![Tile::ByWarps],
        Code::Of90 => {
            let has_boxes = |tensor: Tensor| {
                site.matrix(tensor, tensor.dtype).is_ok_and(|place| Factor { tensor, place }.has_boxes())
            };
            if !has_boxes(a) || !has_boxes(b) {
                return vec![];
            }
            let estimated = Tile::of(&product, sizes, site.multiprocessors as usize, None);
            let others = Tile::candidates(orientation, sizes[2], out.dtype).filter(|tile| Some(*tile) != estimated);
            estimated.into_iter().chain(others).collect()
        }
    };
    let fused = matches!(in_one_launch(site, op), Ok(Some(_))).then_some(Tile::Fused);
    alone.into_iter().chain(fused).collect()
}
