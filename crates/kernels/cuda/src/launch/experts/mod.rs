//! Mixtures of experts. How many rows an expert has is in memory of the GPU: launches have blocks for the most rows
//! that there can be, and the host waits for nothing.

mod activation;
mod mat_mul;
mod route;
mod rows;

use device::{DeviceError, Dtype, ExpertOp, ExpertRows, Tensor};

use self::activation::Gradients;
use self::mat_mul::GroupProduct;
use super::{Launch, Place, Site, require};

/// `Op::Experts`
pub(super) fn experts(site: &Site, op: &ExpertOp) -> Result<Vec<Launch>, DeviceError> {
    match *op {
        ExpertOp::Route { logits, correction, routing, choice, weights } => {
            route::forward(site, (logits, correction), &routing, choice, weights)
        }
        ExpertOp::RouteBackward { logits, routing, choice, dweights, dlogits } => {
            route::backward(site, logits, &routing, (choice, dweights), dlogits)
        }
        ExpertOp::GroupRows { choice, first_expert, rows } => rows::group(site, choice, first_expert, rows),
        ExpertOp::GatherRows { from, rows, to } => rows::gather(site, from, rows, to),
        ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write } => {
            mat_mul::mat_mul(site, &GroupProduct { orientation, a, b, out, rows, tokens, write })
        }
        ExpertOp::CombineRows { y, weights, rows, out, write } => rows::combine(site, (y, weights), rows, out, write),
        ExpertOp::Activation { activation, x, y, rows } => activation::forward(site, activation, x, y, rows),
        ExpertOp::ActivationBackward { activation, x, dy, weights, dx, y, dweights, rows } => {
            activation::backward(site, activation, rows, &Gradients { x, dy, weights, dx, y, dweights })
        }
    }
}

/// `[T,k]`, of which there are `tokens` rows.
fn places_of(site: &Site, op: &'static str, rows: ExpertRows, tokens: Tensor) -> Result<Place, DeviceError> {
    let places = rows.places;
    require(places.rows == tokens.rows, op, || format!("{places:?} has not the tokens of {tokens:?}"))?;
    site.dense(places, Dtype::I32)
}

/// Refuses tensors of two shapes.
fn require_shape(op: &'static str, tensor: Tensor, [rows, cols]: [usize; 2]) -> Result<(), DeviceError> {
    require([tensor.rows, tensor.cols] == [rows, cols], op, || format!("{tensor:?} is not [{rows}, {cols}]"))
}
