//! Activations: kernels/activation.cu.

use config::Activation;
use device::{DeviceError, Tensor};

use super::{ByType, Launch, Parameters, Site, Stored, by_type, require, vectors_shape};

/// `Op::Activation`
pub(super) fn forward(site: &Site, activation: Activation, x: Tensor, y: Tensor) -> Result<Vec<Launch>, DeviceError> {
    require_widths("activation", activation, x, y)?;
    let stored = Stored::of(x)?;
    let parameters = Parameters::new().place(site.matrix(x, stored.dtype)?).place(site.matrix(y, stored.dtype)?);
    let kernels: ByType = match activation {
        Activation::GeluTanh => by_type!("gelu_tanh"),
        Activation::GeluErf => by_type!("gelu_erf"),
        Activation::GeluSigmoid => by_type!("gelu_sigmoid"),
        Activation::Relu => by_type!("relu"),
        Activation::SwiGlu => by_type!("swiglu"),
        Activation::GeGlu => by_type!("geglu"),
        Activation::GeGluTanh => by_type!("geglu_tanh"),
        Activation::SwiGluClamped => by_type!("swiglu_clamped"),
    };
    Ok(launch_of_outputs(site, (stored, kernels), y, parameters))
}

/// `Op::ActivationBackward`
pub(super) fn backward(
    site: &Site,
    activation: Activation,
    x: Tensor,
    dy: Tensor,
    (dx, y): (Tensor, Tensor),
) -> Result<Vec<Launch>, DeviceError> {
    let op = "activation_backward";
    require_widths(op, activation, x, y)?;
    require((dy.rows, dy.cols) == (y.rows, y.cols), op, || format!("{dy:?} is not of the shape of {y:?}"))?;
    require((dx.rows, dx.cols) == (x.rows, x.cols), op, || format!("{dx:?} is not of the shape of {x:?}"))?;
    let stored = Stored::of(x)?;
    let parameters = Parameters::new()
        .place(site.matrix(x, stored.dtype)?)
        .place(site.matrix(dy, stored.dtype)?)
        .place(site.matrix(dx, stored.dtype)?)
        .place(site.matrix(y, stored.dtype)?);
    let kernels: ByType = match activation {
        Activation::GeluTanh => by_type!("gelu_tanh_backward"),
        Activation::GeluErf => by_type!("gelu_erf_backward"),
        Activation::GeluSigmoid => by_type!("gelu_sigmoid_backward"),
        Activation::Relu => by_type!("relu_backward"),
        Activation::SwiGlu => by_type!("swiglu_backward"),
        Activation::GeGlu => by_type!("geglu_backward"),
        Activation::GeGluTanh => by_type!("geglu_tanh_backward"),
        Activation::SwiGluClamped => by_type!("swiglu_clamped_backward"),
    };
    Ok(launch_of_outputs(site, (stored, kernels), y, parameters))
}

fn require_widths(op: &'static str, activation: Activation, x: Tensor, y: Tensor) -> Result<(), DeviceError> {
    let inputs = activation.inputs_per_output() * y.cols;
    require((x.rows, x.cols) == (y.rows, inputs), op, || {
        format!("{activation:?} of {x:?} has not the outputs {y:?}: it needs {inputs} columns")
    })
}

fn launch_of_outputs(
    site: &Site,
    (stored, kernels): (Stored, ByType),
    y: Tensor,
    parameters: Parameters,
) -> Vec<Launch> {
    if y.is_empty() {
        return vec![];
    }
    let shape = vectors_shape(site, y.rows, y.cols, stored.in_access(), 256);
    vec![Launch::new(stored.kernel(kernels), shape, parameters)]
}
