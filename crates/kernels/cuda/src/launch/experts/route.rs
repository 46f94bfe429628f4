//! The choice of a router: kernels/route.cu.

use config::{RouterScores, RouterWeights, Routing};
use device::{DeviceError, Dtype, Tensor};
use gpu::LaunchShape;

use super::require_shape;
use crate::launch::{Launch, Parameters, Site, elements_shape, require};

/// Threads of a token.
const TEAM: usize = 16;
/// Threads of a block, at most: `THREADS`.
const THREADS: usize = 128;
/// Threads of a block, at least: a warp, whose teams work together.
const WARP: usize = 32;
/// Bytes of shared memory of a block of more than one warp, at most.
const SHARED_BYTES: usize = 32 << 10;

/// `ExpertOp::Route`
pub(super) fn forward(
    site: &Site,
    (logits, correction): (Tensor, Option<Tensor>),
    routing: &Routing,
    choice: Tensor,
    weights: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    let (op, experts) = ("route", logits.cols);
    require_slots(op, logits, choice, weights)?;
    require(correction.is_none_or(|correction| correction.len() == experts), op, || {
        format!("{correction:?} has not a number for each of {experts} experts")
    })?;
    let groups = routing.groups.map_or(1, |groups| groups.number);
    require(groups > 0 && experts.is_multiple_of(groups), op, || format!("{groups} groups of {experts} experts"))?;
    let sums = routing.groups.is_some() && routing.scores == RouterScores::Sigmoid;
    let parameters = Parameters::new()
        .place(site.matrix(logits, Dtype::F32)?)
        .place(site.optional_dense(correction, Dtype::F32)?.as_vector())
        .words(&words(routing))
        .flag(correction.is_some() || sums)
        .place(site.dense(choice, Dtype::I32)?)
        .place(site.matrix(weights, Dtype::F32)?);
    if weights.is_empty() {
        return Ok(vec![]);
    }
    let bytes_of_team = (experts + groups) * Dtype::F32.size_bytes();
    // A power of two.
    let mut threads = THREADS;
    while threads > WARP && threads / TEAM * bytes_of_team > SHARED_BYTES {
        threads /= 2;
    }
    let shape = elements_shape(site, logits.rows * TEAM, threads as u32);
    let shape = LaunchShape { shared_bytes: (threads / TEAM * bytes_of_team) as u32, ..shape };
    Ok(vec![Launch::new(op, shape, parameters)])
}

/// `ExpertOp::RouteBackward`
pub(super) fn backward(
    site: &Site,
    logits: Tensor,
    routing: &Routing,
    (choice, dweights): (Tensor, Tensor),
    dlogits: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "route_backward";
    require_slots(op, logits, choice, dweights)?;
    require_shape(op, dlogits, [logits.rows, logits.cols])?;
    let parameters = Parameters::new()
        .place(site.matrix(logits, Dtype::F32)?)
        .words(&words(routing))
        .place(site.dense(choice, Dtype::I32)?)
        .place(site.matrix(dweights, Dtype::F32)?)
        .place(site.matrix(dlogits, Dtype::F32)?);
    if logits.is_empty() {
        return Ok(vec![]);
    }
    Ok(vec![Launch::new(op, elements_shape(site, logits.rows * TEAM, THREADS as u32), parameters)])
}

/// Refuses a choice and weights that are not `[T,k]` of `logits[T,E]`.
fn require_slots(op: &'static str, logits: Tensor, choice: Tensor, weights: Tensor) -> Result<(), DeviceError> {
    require_shape(op, choice, [weights.rows, weights.cols])?;
    require(weights.rows == logits.rows && weights.cols <= logits.cols, op, || {
        format!("{weights:?} has not some experts for each token of {logits:?}")
    })
}

/// `Routing` of kernels/expert_shares.cuh.
fn words(routing: &Routing) -> [u32; 5] {
    let scores = match routing.scores {
        RouterScores::Softmax => 0,
        RouterScores::Sigmoid => 1,
    };
    let weights = match routing.weights {
        RouterWeights::Scores => 0,
        RouterWeights::Normalised => 1,
    };
    let [groups, kept] = routing.groups.map_or([1, 1], |groups| [groups.number as u32, groups.kept as u32]);
    [scores, weights, routing.scale.to_bits(), groups, kept]
}
