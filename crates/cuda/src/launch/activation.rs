//! Activations: kernels/activation.cu.

use config::Activation;
use device::{DeviceError, Dtype, Tensor};

use super::{Launch, Parameters, Site, matrix_shape, require};

/// `Op::Activation`
pub(super) fn forward(site: &Site, activation: Activation, x: Tensor, y: Tensor) -> Result<Vec<Launch>, DeviceError> {
    require_widths("activation", activation, x, y)?;
    let parameters = Parameters::new().place(site.matrix(x, Dtype::F32)?).place(site.matrix(y, Dtype::F32)?);
    let entry = match activation {
        Activation::GeluTanh => "gelu_tanh",
        Activation::GeluErf => "gelu_erf",
        Activation::GeluSigmoid => "gelu_sigmoid",
        Activation::Relu => "relu",
        Activation::SwiGlu => "swiglu",
        Activation::GeGlu => "geglu",
    };
    Ok(launch_of_outputs(site, entry, y, parameters))
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
    let parameters = Parameters::new()
        .place(site.matrix(x, Dtype::F32)?)
        .place(site.matrix(dy, Dtype::F32)?)
        .place(site.matrix(dx, Dtype::F32)?)
        .place(site.matrix(y, Dtype::F32)?);
    let entry = match activation {
        Activation::GeluTanh => "gelu_tanh_backward",
        Activation::GeluErf => "gelu_erf_backward",
        Activation::GeluSigmoid => "gelu_sigmoid_backward",
        Activation::Relu => "relu_backward",
        Activation::SwiGlu => "swiglu_backward",
        Activation::GeGlu => "geglu_backward",
    };
    Ok(launch_of_outputs(site, entry, y, parameters))
}

fn require_widths(op: &'static str, activation: Activation, x: Tensor, y: Tensor) -> Result<(), DeviceError> {
    let inputs = activation.inputs_per_output() * y.cols;
    require((x.rows, x.cols) == (y.rows, inputs), op, || {
        format!("{activation:?} of {x:?} has not the outputs {y:?}: it needs {inputs} columns")
    })
}

fn launch_of_outputs(site: &Site, entry: &'static str, y: Tensor, parameters: Parameters) -> Vec<Launch> {
    if y.is_empty() {
        return vec![];
    }
    vec![Launch::new(entry, matrix_shape(site, y.rows, y.cols, 256), parameters)]
}
