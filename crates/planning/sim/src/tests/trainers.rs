//! Other trainers: differences in kernels and memory.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{
    AttentionKernels, CheapOutputs, GatedProducts, GatheredInputs, GradientAddition, Logits, NewTensors, Software,
    TrainerMemory,
};
use comm::Operation;
use config::{RunConfig, SequenceParallel, UnitClass};
use model::{MicrobatchShape, TensorParallel};
use record::{RecordCase, UnitRecords};
use sim::{Kernel, PassWork, RecordedUnits, UnitWork};

use super::training_case::training_case;

/// A layer in bf16 with sums of 4 bytes, as Megatron-LM of 2022 with one difference.
fn layer(differing: impl FnOnce(Software) -> Software) -> UnitWork {
    let model = RunConfig::quick_start().model;
    let case = training_case(&model, MicrobatchShape::whole(1, model.context));
    let named = Software::from_toml(Software::named("megatron-2022").unwrap()).unwrap();
    let units = RecordedUnits::new(&UnitRecords::new(case).unwrap(), Some(&differing(named)));
    units.units[UnitClass::Layer(0)].clone()
}

/// All units of a gated model in bf16 on one of `tp` ranks, as `software` runs them.
fn gated(tp: usize, sequence_parallel: SequenceParallel, software: Option<&Software>) -> RecordedUnits {
    let mut model = RunConfig::quick_start().model;
    model.activation = config::Activation::SwiGlu;
    let case = RecordCase {
        tp: TensorParallel { size: tp, position: 0 },
        sequence_parallel,
        ..training_case(&model, MicrobatchShape::whole(1, model.context))
    };
    RecordedUnits::new(&UnitRecords::new(case).unwrap(), software)
}

/// Collectives of a layer's forward pass, of its backward pass of the inputs, and of the weights.
fn calls(units: &RecordedUnits) -> [Vec<Operation>; 3] {
    let layer = &units.units[UnitClass::Layer(0)];
    [&layer.forward, &layer.backward_input, &layer.backward_weight]
        .map(|work| work.collectives.iter().map(|call| call.operation).collect())
}

/// Pleach computes the two backward passes apart and gathers for each. In one graph a gradient is gathered once for
/// both products that read it, and an input again or not at all.
#[test]
fn a_backward_graph_gathers_what_it_has_not() {
    use Operation::{AllGather, ReduceScatter};
    let named = Software::from_toml(Software::named("megatron-2022").unwrap()).unwrap();
    let kept = Software { gathered_inputs: GatheredInputs::Kept, ..named.clone() };
    let of = |software| calls(&gated(2, SequenceParallel::On, software));
    let [forward, inputs, weights] = of(None);
    assert_eq!(forward, [AllGather, ReduceScatter, AllGather, ReduceScatter]);
    assert_eq!(inputs, forward);
    assert_eq!(weights, [AllGather; 4], "two gradients and two inputs");
    assert_eq!(of(Some(&named)), [forward.clone(), inputs.clone(), vec![AllGather; 2]], "the inputs alone");
    assert_eq!(of(Some(&kept)), [forward, inputs, vec![]]);
    let saved = |software| gated(2, SequenceParallel::On, Some(software)).units[UnitClass::Layer(0)].kept.clone();
    assert_ne!(saved(&kept), saved(&named), "the tokens of the other rank stay");
}

/// Apart, each product of a gated block has a gradient of its input: one kernel adds them, and without sequence
/// parallelism each is summed over the ranks.
#[test]
fn gated_products_that_are_apart_sum_one_gradient_more() {
    let joined = Software::from_toml(Software::named("megatron-2022").unwrap()).unwrap();
    let separate = Software { gated_products: GatedProducts::Separate, ..joined.clone() };
    for (tp, sequence_parallel, sums) in
        [(1, SequenceParallel::Off, 0), (2, SequenceParallel::Off, 1), (2, SequenceParallel::On, 0)]
    {
        let [one, two] = [&joined, &separate].map(|software| gated(tp, sequence_parallel, Some(software)));
        let of = |units: &RecordedUnits| units.units[UnitClass::Layer(0)].backward_input.clone();
        assert_eq!(of(&two).kernels.len(), of(&one).kernels.len() + 1, "tp {tp}");
        assert_eq!(of(&two).kernels.last(), Some(&added_twice()), "tp {tp}");
        let sums_more = of(&two).collectives.len() - of(&one).collectives.len();
        assert_eq!(if tp == 1 { 0 } else { sums_more }, sums, "tp {tp}, {sequence_parallel:?}");
    }
}

/// Reads two gradients of 2 bytes an element and writes one.
fn added_twice() -> Kernel {
    let model = RunConfig::quick_start().model;
    Kernel::Memory { bytes: (6 * model.context * model.hidden) as f64 }
}

/// A rank that gathers logits takes the loss of as many times more as there are ranks, and keeps them.
#[test]
fn gathered_logits_are_all_on_every_rank() {
    let sharded = Software::from_toml(Software::named("megatron-2022").unwrap()).unwrap();
    let gathered = Software { logits: Logits::Gathered, ..sharded.clone() };
    let head = |software| gated(4, SequenceParallel::Off, Some(software)).units[UnitClass::Head].clone();
    let (some, all) = (head(&sharded), head(&gathered));
    let loss = |unit: &UnitWork| match unit.forward.kernels.last() {
        Some(Kernel::Memory { bytes }) => *bytes,
        other => panic!("the loss is last: {other:?}"),
    };
    assert_eq!(loss(&all), 4.0 * loss(&some));
    let of =
        |unit: &UnitWork| unit.forward.collectives.iter().filter(|call| call.operation == Operation::AllGather).count();
    assert_eq!(of(&all), of(&some) + 1);
    assert_ne!(all.kept, some.kept);
}

/// One rank has all rows: sequence parallelism copies nothing, and sums nothing apart.
#[test]
fn sequence_parallelism_of_one_rank_runs_the_same_kernels() {
    let [on, off] = [SequenceParallel::On, SequenceParallel::Off].map(|mode| gated(1, mode, None));
    for (class, unit) in
        [UnitClass::Embedding, UnitClass::Layer(0), UnitClass::Head].map(|class| (class, &on.units[class]))
    {
        let other = &off.units[class];
        let kernels = |unit: &UnitWork| {
            [&unit.forward, &unit.backward_input, &unit.backward_weight].map(|work| work.kernels.clone())
        };
        assert_eq!(kernels(unit), kernels(other), "{class:?}");
    }
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

/// Memory of results that is filled first is written once more: those of the products, of two norms and of attention,
/// and their gradients.
#[test]
fn filled_memory_is_written_twice() {
    let moved = |work: &PassWork| -> f64 {
        let bytes = |kernel: &Kernel| if let Kernel::Memory { bytes } = kernel { *bytes } else { 0.0 };
        work.kernels.iter().map(bytes).sum()
    };
    let [plain, filled] = [NewTensors::Untouched, NewTensors::Filled].map(|new_tensors| {
        layer(|named| Software {
            new_tensors,
            attention: AttentionKernels::Fused,
            gradient_sums: GradientAddition::Separate,
            ..named
        })
    });
    let model = RunConfig::quick_start().model;
    let (hidden, wide) = (model.hidden, model.ffn_hidden);
    let queries_keys_values = hidden + 2 * model.num_kv_heads * model.head_dim;
    let more = |of: fn(&UnitWork) -> &PassWork| moved(of(&filled)) - moved(of(&plain));
    let bytes = |columns: usize| (2 * model.context * columns) as f64;
    let products = queries_keys_values + 2 * hidden + wide;
    assert_eq!(more(|unit| &unit.forward), bytes(products + 2 * hidden + hidden));
    // Gradients of the inputs of four products, of two norms, and of queries, keys and values.
    assert_eq!(more(|unit| &unit.backward_input), bytes(3 * hidden + wide + 2 * hidden + queries_keys_values));
    let weights = hidden * queries_keys_values + hidden * hidden + 2 * hidden * wide;
    assert_eq!(more(|unit| &unit.backward_weight), (2 * weights) as f64);
}
