//! The layer of the top query, between the final norm and the output matrix: CodeGeeX.
//!
//! It is a layer whose queries are mapped from a learned table, a row per position ([`crate::projection`]). The head
//! computes it forward and backward at once with the loss, so what its backward passes read is in scratch, and nothing
//! of it is kept or recomputed.

use device::{DeviceError, Write};

use crate::binding::LayerParams;
use crate::cache::KeyValueCache;
use crate::context::{Batch, Context};
use crate::layer::Layer;
use crate::layer_tensors::LayerSaved;
use crate::placement::Residual;
use crate::saved::SavedFrames;

/// The layer on one microbatch, after its forward pass.
pub(crate) struct TopQuery<'a> {
    layer: Layer<'a>,
    params: &'a LayerParams,
    input: Residual,
    saved: LayerSaved,
    /// `[R, D]`.
    pub(crate) output: Residual,
}

impl<'a> TopQuery<'a> {
    /// Computes the output, in scratch, from the stream after the final norm; with a cache, for tokens that continue
    /// those of it.
    pub(crate) fn forward(
        context: &'a Context<'a>,
        batch: &'a Batch,
        params: &'a LayerParams,
        input: Residual,
        cache: Option<&KeyValueCache>,
    ) -> Result<TopQuery<'a>, DeviceError> {
        // Its masks are those of a layer after the last one.
        let layer = Layer { context, batch, number: context.model.num_layers as u32 };
        let saved = LayerSaved::lay_out(SavedFrames::new(context.scratch, context.scratch), context, params);
        let output = Residual::new(context.residual(context.scratch));
        layer.forward_keeping(params, input, output, &saved, cache)?;
        Ok(TopQuery { layer, params, input, saved, output })
    }

    /// Gradient of the input, in scratch, from that of the output; `gradients` = or += those of the parameters.
    pub(crate) fn backward(
        &self,
        gradients: &LayerParams,
        output_gradient: Residual,
        write: Write,
    ) -> Result<Residual, DeviceError> {
        let (layer, context) = (&self.layer, self.layer.context);
        let input_gradient = Residual::new(context.residual(context.scratch));
        context.scratch.scoped(|| {
            let places = (&self.saved, &layer.lay_out_pending(context.scratch, self.params));
            layer.backward_input_keeping(self.params, self.input, output_gradient, input_gradient, places)?;
            layer.backward_weight_keeping(gradients, self.input, output_gradient, places, write)
        })?;
        Ok(input_gradient)
    }
}
