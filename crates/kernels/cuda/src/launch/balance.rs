//! The balance of experts: kernels/balance.cu and kernels/router_losses.cu.

use config::RouterScores;
use device::{BalanceOp, DeviceError, Dtype, Op, RouterTerms, RouterValues, Tensor, Write};
use gpu::LaunchShape;

use super::{Launch, Parameters, Place, Site, elements_shape, require};

/// Threads of a block, `THREADS` and `WINDOW` of kernels/balance.cu.
const THREADS: u32 = 256;
/// Threads of a token, and of a block: those of kernels/router_losses.cu.
const TEAM: usize = 16;
const THREADS_OF_TOKENS: u32 = 128;

/// `Op::Balance`
pub(super) fn balance(site: &Site, op: &BalanceOp) -> Result<Vec<Launch>, DeviceError> {
    match *op {
        BalanceOp::CountChoices { choice, labels, counts, write } => {
            count_choices(site, choice, labels, (counts, write))
        }
        BalanceOp::LimitChoices { .. } => limit_choices(site, op),
        BalanceOp::Load { counts, load } => {
            let places = of_counts(site, "load", counts, load)?;
            Ok(of_elements(site, "load_of_experts", counts, Parameters::new().place(places[0]).place(places[1])))
        }
        BalanceOp::RouterLosses { logits, scores, terms, values } => losses(site, (logits, scores), &terms, values),
        BalanceOp::RouterLossesBackward { logits, labels, scores, terms, scale, dlogits } => {
            backward(site, (logits, scores), labels, (&terms, scale), dlogits)
        }
        BalanceOp::Correct { counts, rate, correction } => {
            let places = of_counts(site, "correct", counts, correction)?;
            let parameters = Parameters::new().place(places[0]).f32(rate).place(places[1]);
            Ok(of_elements(site, "correct_choices", counts, parameters))
        }
    }
}

fn count_choices(
    site: &Site,
    choice: Tensor,
    labels: Tensor,
    (counts, write): (Tensor, Write),
) -> Result<Vec<Launch>, DeviceError> {
    let op = "count_choices";
    require(labels.len() == choice.rows, op, || format!("{labels:?} has not a label for each token of {choice:?}"))?;
    require(counts.rows > 0 && choice.rows.is_multiple_of(counts.rows), op, || {
        format!("{} tokens in {} runs", choice.rows, counts.rows)
    })?;
    require(is_number(choice.len()), op, || format!("{choice:?} is more than I32 counts"))?;
    let parameters = Parameters::new()
        .place(site.dense(choice, Dtype::I32)?)
        .place(site.dense(labels, Dtype::I32)?)
        .place(site.dense(counts, Dtype::I64)?)
        .flag(write == Write::Accumulate);
    Ok(of_experts(op, [counts.cols, counts.rows], parameters))
}

fn limit_choices(site: &Site, op: &BalanceOp) -> Result<Vec<Launch>, DeviceError> {
    let BalanceOp::LimitChoices { choice, weights, labels, sequences, experts, capacity, kept, dropped } = *op else {
        return Err(super::other_op("limit_choices", &Op::from(*op)));
    };
    let op = "limit_choices";
    let is_alike = |tensor: Tensor| [tensor.rows, tensor.cols] == [choice.rows, choice.cols];
    require(is_alike(weights) && is_alike(kept) && labels.len() == choice.rows, op, || {
        format!("{weights:?}, {kept:?} and {labels:?} are not of the tokens and slots of {choice:?}")
    })?;
    require(sequences > 0 && choice.rows.is_multiple_of(sequences), op, || {
        format!("{} tokens in {sequences} sequences", choice.rows)
    })?;
    require(is_number(choice.len()) && is_number(capacity), op, || {
        format!("{choice:?} or a capacity of {capacity} is more than I32 counts")
    })?;
    let parameters = Parameters::new()
        .place(site.dense(choice, Dtype::I32)?)
        .place(site.dense(weights, Dtype::F32)?)
        .place(site.dense(labels, Dtype::I32)?)
        .u32(sequences as u32)
        .u32(capacity as u32)
        .place(site.dense(kept, Dtype::I32)?)
        .place(site.optional_dense(dropped, Dtype::I64)?);
    Ok(of_experts(op, [experts, sequences], parameters))
}

fn losses(
    site: &Site,
    (logits, scores): (Tensor, RouterScores),
    terms: &RouterTerms,
    RouterValues { balance, z_loss, entropy }: RouterValues,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "router_losses";
    let mut parameters = Parameters::new()
        .place(site.matrix(logits, Dtype::F32)?)
        .words(&words(scores, terms))
        .place(load_of(site, op, logits, terms)?);
    for values in [balance, z_loss, entropy] {
        require(values.is_none_or(|values| values.len() == logits.rows), op, || {
            format!("{values:?} has not a number for each token of {logits:?}")
        })?;
        parameters = parameters.place(site.optional_dense(values, Dtype::F32)?);
    }
    Ok(of_tokens(site, op, logits, parameters))
}

fn backward(
    site: &Site,
    (logits, scores): (Tensor, RouterScores),
    labels: Tensor,
    (terms, scale): (&RouterTerms, f32),
    dlogits: Tensor,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "router_losses_backward";
    require([dlogits.rows, dlogits.cols] == [logits.rows, logits.cols], op, || {
        format!("{dlogits:?} is not of the shape of {logits:?}")
    })?;
    require(labels.len() == logits.rows, op, || format!("{labels:?} has not a label for each token of {logits:?}"))?;
    let parameters = Parameters::new()
        .place(site.matrix(logits, Dtype::F32)?)
        .place(site.dense(labels, Dtype::I32)?)
        .words(&words(scores, terms))
        .place(load_of(site, op, logits, terms)?)
        .flag(terms.z_loss.is_some())
        .f32(scale)
        .changing()
        .place(site.matrix(dlogits, Dtype::F32)?);
    Ok(of_tokens(site, op, logits, parameters))
}

/// Counts `[R,E]` and a matrix of their shape.
fn of_counts(site: &Site, op: &'static str, counts: Tensor, other: Tensor) -> Result<[Place; 2], DeviceError> {
    require([counts.rows, counts.cols] == [other.rows, other.cols], op, || {
        format!("{other:?} is not of the shape of {counts:?}")
    })?;
    Ok([site.dense(counts, Dtype::I64)?, site.matrix(other, Dtype::F32)?])
}

/// The loads of equally many tokens each; none without a balance loss.
fn load_of(site: &Site, op: &'static str, logits: Tensor, terms: &RouterTerms) -> Result<Place, DeviceError> {
    let load = terms.balance.map(|balance| balance.load);
    let fits = |load: Tensor| load.cols == logits.cols && load.rows > 0 && logits.rows.is_multiple_of(load.rows);
    require(load.is_none_or(fits), op, || format!("{load:?} has not the loads of runs of {logits:?}"))?;
    site.optional_matrix(load, Dtype::F32)
}

/// A block for each expert in each run.
fn of_experts(entry: &'static str, [experts, runs]: [usize; 2], parameters: Parameters) -> Vec<Launch> {
    if experts * runs == 0 {
        return vec![];
    }
    let shape = LaunchShape { grid: [experts as u32, runs as u32, 1], ..LaunchShape::linear(1, THREADS) };
    vec![Launch::new(entry, shape, parameters)]
}

fn is_number(count: usize) -> bool {
    i32::try_from(count).is_ok()
}

/// A thread for each element of `tensor`.
fn of_elements(site: &Site, entry: &'static str, tensor: Tensor, parameters: Parameters) -> Vec<Launch> {
    if tensor.is_empty() {
        return vec![];
    }
    vec![Launch::new(entry, elements_shape(site, tensor.len(), THREADS), parameters)]
}

/// A team for each token of `logits`.
fn of_tokens(site: &Site, entry: &'static str, logits: Tensor, parameters: Parameters) -> Vec<Launch> {
    if logits.is_empty() {
        return vec![];
    }
    vec![Launch::new(entry, elements_shape(site, logits.rows * TEAM, THREADS_OF_TOKENS), parameters)]
}

/// `Terms` of kernels/router_losses.cu.
fn words(scores: RouterScores, terms: &RouterTerms) -> [u32; 3] {
    let scores = match scores {
        RouterScores::Softmax => 0,
        RouterScores::Sigmoid => 1,
    };
    let balance = terms.balance.map_or(0.0, |balance| balance.coefficient);
    [scores, balance.to_bits(), terms.z_loss.unwrap_or(0.0).to_bits()]
}
