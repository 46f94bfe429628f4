//! Soft caps of logits: kernels/soft_cap.cu.

use device::{DeviceError, Dtype, Tensor};

use super::{Launch, Parameters, Site, require, vectors_shape};

const THREADS: u32 = 256;
/// Elements of a thread that has several.
const FOUR: usize = 4;

/// `Op::SoftCap`
pub(super) fn forward(site: &Site, x: Tensor, cap: f32) -> Result<Vec<Launch>, DeviceError> {
    let place = site.matrix(x, Dtype::F32)?;
    Ok(launch(site, "soft_cap", x, Parameters::new().place(place).words(&words(Some(cap)))))
}

/// `Op::SoftCapBackward`
pub(super) fn backward(site: &Site, y: Tensor, cap: f32, gradient: Tensor) -> Result<Vec<Launch>, DeviceError> {
    let places = [site.matrix(y, Dtype::F32)?, site.matrix(gradient, Dtype::F32)?];
    require((y.rows, y.cols) == (gradient.rows, gradient.cols), "soft_cap_backward", || {
        format!("{y:?} is not of the shape of {gradient:?}")
    })?;
    let [y_place, gradient_place] = places;
    let parameters = Parameters::new().place(y_place).place(gradient_place).words(&words(Some(cap)));
    Ok(launch(site, "soft_cap_backward", y, parameters))
}

/// `SoftCap` of kernels/soft_cap.cuh: the cap and its reciprocal, as the CPU rounds it, or zeros.
pub(super) fn words(cap: Option<f32>) -> [u32; 2] {
    cap.map_or([0, 0], |cap| [cap.to_bits(), (1.0 / cap).to_bits()])
}

fn launch(site: &Site, entry: &'static str, of: Tensor, parameters: Parameters) -> Vec<Launch> {
    if of.is_empty() {
        return vec![];
    }
    vec![Launch::new(entry, vectors_shape(site, of.rows, of.cols, FOUR, THREADS), parameters)]
}
