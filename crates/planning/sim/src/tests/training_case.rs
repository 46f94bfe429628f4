//! The case of a recording that the tests of predictions vary.

use config::{GradientSums, LayerRecompute, ModelSpec, Products, SequenceParallel};
use device::{Dtype, Write};
use model::{MicrobatchShape, TensorParallel};
use program::Purpose;
use record::RecordCase;

/// Training of `model` on one rank in bf16, with gradients that are added to those before.
pub fn training_case(model: &ModelSpec, shape: MicrobatchShape) -> RecordCase<'_> {
    RecordCase {
        model,
        tp: TensorParallel { size: 1, position: 0 },
        ep: 1,
        shape,
        stored: Dtype::Bf16,
        products: Products::Chained,
        sums: GradientSums::Single,
        sequence_parallel: SequenceParallel::Off,
        recompute: LayerRecompute::Nothing,
        purpose: Purpose::Train,
        write: Write::Accumulate,
    }
}
