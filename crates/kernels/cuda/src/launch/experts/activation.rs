//! Activations of the rows of experts: kernels/expert_activation.cu.

use config::Activation;
use device::{DeviceError, Dtype, ExpertRows, Tensor};

use super::require_shape;
use crate::launch::product_activation::Form;
use crate::launch::{ByType, Launch, Parameters, Site, Stored, by_type, elements_shape, require, vectors_shape};

/// Threads of a block of the backward pass, and those of a row.
const BACKWARD_THREADS: u32 = 128;
const TEAM: usize = 16;

/// The tensors of `ExpertOp::ActivationBackward`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gradients {
    pub x: Tensor,
    pub dy: Tensor,
    pub weights: Tensor,
    pub dx: Tensor,
    pub y: Tensor,
    pub dweights: Tensor,
}

/// `ExpertOp::Activation`
pub(super) fn forward(
    site: &Site,
    activation: Activation,
    x: Tensor,
    y: Tensor,
    rows: ExpertRows,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "expert_activation";
    require_widths(op, activation, x, y)?;
    let stored = Stored::of(x)?;
    let (form, curve) = Form::of(activation);
    let kernels: ByType = match form {
        Form::Plain => by_type!("expert_activation_plain"),
        Form::Gated => by_type!("expert_activation_gated"),
    };
    let parameters = Parameters::new()
        .place(site.matrix(x, stored.dtype)?)
        .place(site.matrix(y, stored.dtype)?)
        .place(site.dense(rows.places, Dtype::I32)?)
        .u32(curve as u32);
    if rows.places.is_empty() || y.is_empty() {
        return Ok(vec![]);
    }
    let shape = vectors_shape(site, rows.places.len(), y.cols, stored.in_access(), 256);
    Ok(vec![Launch::new(stored.kernel(kernels), shape, parameters)])
}

/// `ExpertOp::ActivationBackward`
pub(super) fn backward(
    site: &Site,
    activation: Activation,
    rows: ExpertRows,
    tensors: &Gradients,
) -> Result<Vec<Launch>, DeviceError> {
    let op = "expert_activation_backward";
    let Gradients { x, dy, weights, dx, y, dweights } = *tensors;
    require_widths(op, activation, x, y)?;
    require_shape(op, dy, [y.rows, y.cols])?;
    require_shape(op, dx, [x.rows, x.cols])?;
    let slots = [rows.places.rows, rows.places.cols];
    require_shape(op, weights, slots)?;
    require_shape(op, dweights, slots)?;
    let stored = Stored::of(x)?;
    let (form, curve) = Form::of(activation);
    let kernels: ByType = match form {
        Form::Plain => by_type!("expert_activation_backward_plain"),
        Form::Gated => by_type!("expert_activation_backward_gated"),
    };
    let parameters = Parameters::new()
        .place(site.matrix(x, stored.dtype)?)
        .place(site.matrix(dy, stored.dtype)?)
        .place(site.matrix(weights, Dtype::F32)?)
        .place(site.matrix(dx, stored.dtype)?)
        .place(site.matrix(y, stored.dtype)?)
        .place(site.matrix(dweights, Dtype::F32)?)
        .place(site.dense(rows.places, Dtype::I32)?)
        .u32(curve as u32);
    if rows.places.is_empty() {
        return Ok(vec![]);
    }
    let shape = elements_shape(site, rows.places.len() * TEAM, BACKWARD_THREADS);
    Ok(vec![Launch::new(stored.kernel(kernels), shape, parameters)])
}

fn require_widths(op: &'static str, activation: Activation, x: Tensor, y: Tensor) -> Result<(), DeviceError> {
    let inputs = activation.inputs_per_output() * y.cols;
    require([x.rows, x.cols] == [y.rows, inputs], op, || {
        format!("{activation:?} of {x:?} has not the outputs {y:?}: it needs {inputs} columns")
    })
}
