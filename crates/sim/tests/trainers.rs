//! Other trainers: differences in kernels and memory.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{CheapOutputs, GradientAddition, Software, TrainerMemory};
use config::{GradientSums, LayerRecompute, RunConfig, SequenceParallel, UnitClass};
use device::{Dtype, Write};
use model::{MicrobatchShape, TensorParallel};
use program::Purpose;
use record::{RecordCase, UnitRecords};
use sim::{Kernel, PassWork, RecordedUnits, UnitWork};

/// A layer in bf16 with sums of 4 bytes, as Megatron-LM of 2022 with one difference.
fn layer(differing: impl FnOnce(Software) -> Software) -> UnitWork {
    let model = RunConfig::quick_start().model;
    let case = RecordCase {
        model: &model,
        tp: TensorParallel { size: 1, position: 0 },
        shape: MicrobatchShape::whole(1, model.context),
        stored: Dtype::Bf16,
        products: config::Products::Chained,
        sums: GradientSums::Single,
        sequence_parallel: SequenceParallel::Off,
        recompute: LayerRecompute::Nothing,
        purpose: Purpose::Train,
        write: Write::Accumulate,
    };
    let named = Software::from_toml(Software::named("megatron-2022").unwrap()).unwrap();
    let units = RecordedUnits::new(&UnitRecords::new(case).unwrap(), Some(&differing(named)));
    units.units[UnitClass::Layer(0)].clone()
}

/// Bytes that kernels move next to the products of the backward pass of the weights.
fn moved_bytes(gradient_sums: GradientAddition) -> f64 {
    let kernels = layer(|named| Software { gradient_sums, ..named }).backward_weight.kernels;
    let moved = |kernel: &Kernel| if let Kernel::Memory { bytes } = kernel { *bytes } else { 0.0 };
    kernels.iter().map(moved).sum()
}

/// A kernel reads 2 bytes of a gradient, reads 4 of the sum and writes 4; a copy in the width of the sum before it
/// makes that 6 and 12.
#[test]
fn what_the_product_does_not_add_moves_ten_bytes_a_weight_and_with_a_copy_eighteen() {
    let model = RunConfig::quick_start().model;
    let params = config::params(&model, config::Unit::Layer(0));
    let weights = params.iter().filter(|param| param.shape.len() == 2);
    let weights: usize = weights.map(|param| param.shape.iter().product::<usize>()).sum();
    let in_the_product = moved_bytes(GradientAddition::InTheProduct);
    assert_eq!(moved_bytes(GradientAddition::Separate) - in_the_product, 10.0 * weights as f64);
    assert_eq!(moved_bytes(GradientAddition::Copied) - in_the_product, 18.0 * weights as f64);
}

/// The backward pass of the input is without its two norms where their outputs were kept; forward passes are the same.
#[test]
fn norms_whose_outputs_are_kept_are_not_computed_again() {
    let with =
        |norm_outputs| layer(|named| Software { memory: TrainerMemory { norm_outputs, ..named.memory }, ..named });
    let [kept, again] = [CheapOutputs::Kept, CheapOutputs::ComputedAgain].map(with);
    assert_eq!(kept.forward, again.forward);
    assert_eq!(kept.backward_input.flops, again.backward_input.flops);
    assert_eq!(kept.backward_input.kernels.len() + 2, again.backward_input.kernels.len());
    assert_ne!(kept.kept, again.kept);
}

/// Norms and activation functions of several kernels move what a description says beyond one kernel for each, per
/// element of 2 bytes.
#[test]
fn elementwise_operations_of_several_kernels_move_more_bytes() {
    let model = RunConfig::quick_start().model;
    let moved = |work: &PassWork| -> f64 {
        let bytes = |kernel: &Kernel| if let Kernel::Memory { bytes } = kernel { *bytes } else { 0.0 };
        work.kernels.iter().map(bytes).sum()
    };
    let one = layer(|named| named);
    let several = layer(|named| Software {
        norm_bytes_forward: 32.0,
        norm_bytes_backward: 82.0,
        activation_bytes_forward: 4.0,
        activation_bytes_backward: 6.0,
        ..named
    });
    let (hidden, wide) = ((model.context * model.hidden) as f64, (model.context * model.ffn_hidden) as f64);
    assert_eq!(moved(&several.forward) - moved(&one.forward), 2.0 * 32.0 * hidden + 4.0 * wide);
    let [before, after] = [&one, &several].map(|work| moved(&work.backward_input) + moved(&work.backward_weight));
    assert_eq!(after - before, 2.0 * 82.0 * hidden + 6.0 * wide);
    let keeps = layer(|named| Software { memory: TrainerMemory { norm_kept_bytes: 4.0, ..named.memory }, ..named });
    assert_ne!(keeps.kept, one.kept);
}
