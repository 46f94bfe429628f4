//! Products in blocks with the activation that follows, or its gradient, in one kernel of every GPU:
//! kernels/mat_mul_blocks_activation.cu.

use device::DeviceError;

use super::mat_mul_blocks::{Loading, Narrow, Tile};
use super::product_activation::{End, Form, Fused};
use super::{Launch, Parameters, Site};

fn entry(tile: Tile, narrow: Narrow, end: End) -> &'static str {
    match (end, narrow, tile) {
        (End::Activation(Form::Plain), Narrow::Bf16, Tile::Of128) => "mat_mul_blocks_activation_128_bf16",
        (End::Activation(Form::Plain), Narrow::Bf16, Tile::Of64) => "mat_mul_blocks_activation_64_bf16",
        (End::Activation(Form::Plain), Narrow::F16, Tile::Of128) => "mat_mul_blocks_activation_128_f16",
        (End::Activation(Form::Plain), Narrow::F16, Tile::Of64) => "mat_mul_blocks_activation_64_f16",
        (End::Activation(Form::Gated), Narrow::Bf16, Tile::Of128) => "mat_mul_blocks_gated_128_bf16",
        (End::Activation(Form::Gated), Narrow::Bf16, Tile::Of64) => "mat_mul_blocks_gated_64_bf16",
        (End::Activation(Form::Gated), Narrow::F16, Tile::Of128) => "mat_mul_blocks_gated_128_f16",
        (End::Activation(Form::Gated), Narrow::F16, Tile::Of64) => "mat_mul_blocks_gated_64_f16",
        (End::Gradient(Form::Plain), Narrow::Bf16, Tile::Of128) => "mat_mul_blocks_activation_backward_128_bf16",
        (End::Gradient(Form::Plain), Narrow::Bf16, Tile::Of64) => "mat_mul_blocks_activation_backward_64_bf16",
        (End::Gradient(Form::Plain), Narrow::F16, Tile::Of128) => "mat_mul_blocks_activation_backward_128_f16",
        (End::Gradient(Form::Plain), Narrow::F16, Tile::Of64) => "mat_mul_blocks_activation_backward_64_f16",
        (End::Gradient(Form::Gated), Narrow::Bf16, Tile::Of128) => "mat_mul_blocks_gated_backward_128_bf16",
        (End::Gradient(Form::Gated), Narrow::Bf16, Tile::Of64) => "mat_mul_blocks_gated_backward_64_bf16",
        (End::Gradient(Form::Gated), Narrow::F16, Tile::Of128) => "mat_mul_blocks_gated_backward_128_f16",
        (End::Gradient(Form::Gated), Narrow::F16, Tile::Of64) => "mat_mul_blocks_gated_backward_64_f16",
    }
}

/// The one launch of an operation, whose tensors fit together.
///
/// # Errors
/// The errors of [`super::launches`].
pub(super) fn by_warps(site: &Site, fused: &Fused) -> Result<Launch, DeviceError> {
    let Fused { end, curve, factors, y, .. } = *fused;
    let narrow = Narrow::of(factors)?;
    let cols = y.cols * end.cols_per_output();
    let tile = Tile::of(site, y.rows, cols);
    let mut parameters = Parameters::new();
    for factor in factors {
        let place = site.matrix(factor, factor.dtype)?;
        parameters = parameters.place(place).u32(Loading::of(factor, place) as u32);
    }
    let parameters = fused.places(site, parameters)?.u32(curve as u32);
    Ok(Launch::new(entry(tile, narrow, end), tile.shape(y.rows, cols), parameters))
}
