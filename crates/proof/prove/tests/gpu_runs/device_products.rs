//! Runs whose products, or products and attention, are those of the GPU's libraries, in software: within the bounds of
//! CPU runs in blocks, and the same bits again in the same layout.

use std::sync::Arc;

use config::{Format, Overlap, Precision, Products, Tied, ZeroStage};
use prove::{EqualityClass, Outcome, Promise};
use testkit::layout::Layout;
use testkit::soft_gpus::{soft_gpus, soft_gpus_with_attention};

use crate::gpu_runs::rig::{Folder, On, ZERO_THREE, outcome, part_of_run, stored_layout, with_more_sequences};

const STEPS: u32 = 2;

fn layout(tied: Tied, degrees: [usize; 3], zero: ZeroStage, products: Products) -> Layout {
    let mut layout = with_more_sequences(stored_layout(Format::Bf16, tied, degrees, zero, Overlap::On, STEPS));
    layout.train.precision = Precision::Bf16(products);
    layout
}

/// Two runs of a class whose bits differ, and whose distances are within its bounds.
fn assert_near(what: &str, layout: &Layout, class: EqualityClass, outcomes: [&Outcome; 2]) {
    let promise = Promise::of(class, &layout.model, &layout.train, STEPS);
    assert!(outcomes[0].weights != outcomes[1].weights, "{what}: the library has an order of its own");
    let distances = promise.distances(outcomes);
    println!("{what}: the nearest is at {:.0} % of its bound", 100.0 * distances.nearest());
    assert_eq!(distances.exceeded(), [""; 0], "{what}");
}

/// Eight ranks on eight GPUs and on one, next to eight ranks on CPUs and to one rank with the library.
fn compare(tied: Tied, zero: ZeroStage, gpus_of_same: usize) {
    let [eight, fewer, one] = [8, gpus_of_same, 1].map(soft_gpus);
    let split = layout(tied, [2, 2, 2], zero, Products::Device);
    let on_cpus = outcome(&layout(tied, [2, 2, 2], zero, Products::Blocks16), &On::Cpus).expect("a run on CPUs");
    let by_library = outcome(&split, &On::Gpus(eight)).expect("a run by the library");
    assert!(by_library.losses.first() > by_library.losses.last(), "{:?}", by_library.losses);
    assert_near("CPUs", &split, EqualityClass::OtherSums, [&on_cpus, &by_library]);
    let again = outcome(&split, &On::Gpus(fewer)).expect("the same again");
    assert!(again == by_library, "the same layout has the same bits");
    let alone = layout(tied, [1, 1, 1], ZeroStage::Off, Products::Device);
    let alone = outcome(&alone, &On::Gpus(one)).expect("one rank");
    assert_near("one rank", &split, EqualityClass::OtherSums, [&alone, &by_library]);
}

#[needs::cuda]
#[test]
fn gpt_with_sharded_optimizer_state_is_near_cpus_and_one_rank() {
    compare(Tied::Yes, ZeroStage::One, 1);
}

#[needs::cuda]
#[test]
fn llama_with_sharded_parameters_is_near_cpus_and_one_rank() {
    compare(Tied::No, ZERO_THREE, 2);
}

/// CPUs refuse them, and so do GPUs that were opened without a library.
#[needs::cuda]
#[test]
fn who_has_no_library_refuses_its_products() {
    let layout = layout(Tied::Yes, [1, 1, 1], ZeroStage::Off, Products::Device);
    let error = outcome(&layout, &On::Cpus).expect_err("refused").to_string();
    let said = "train.products = \"device\" must be supported by the device; the CPU refuses it; use \"chained\", \"pairs\", \
                \"blocks16\" or \"blocks8\"";
    assert!(error.contains(said), "{error}");
    let driver = Arc::new(testkit::soft_gpus::soft_driver([softgpu::Settings::default()]));
    let gpus = testkit::soft_gpus::gpus_of(driver);
    let error = outcome(&layout, &On::Gpus(gpus)).expect_err("refused").to_string();
    assert!(error.contains("these GPUs were opened without one"), "{error}");
}

/// The same without dropout of attention, which libraries do not have.
fn without_dropout(layout: Layout) -> Layout {
    Layout { model: config::ModelSpec { attention_dropout: 0.0, ..layout.model }, ..layout }
}

/// Attention by a library as well, next to CPUs, to one rank and to the kernels of attention.
fn compare_attention(tied: Tied, zero: ZeroStage, gpus_of_same: usize) {
    let [eight, fewer, one] = [8, gpus_of_same, 1].map(soft_gpus_with_attention);
    let own = soft_gpus(8);
    let of = |degrees, zero, products| without_dropout(layout(tied, degrees, zero, products));
    let split = of([2, 2, 2], zero, Products::Device);
    let on_cpus = outcome(&of([2, 2, 2], zero, Products::Blocks16), &On::Cpus).expect("a run on CPUs");
    let by_library = outcome(&split, &On::Gpus(eight)).expect("a run by both libraries");
    assert!(by_library.losses.first() > by_library.losses.last(), "{:?}", by_library.losses);
    assert_near("attention, CPUs", &split, EqualityClass::OtherSums, [&on_cpus, &by_library]);
    let again = outcome(&split, &On::Gpus(fewer)).expect("the same again");
    assert!(again == by_library, "the same layout has the same bits");
    let alone = of([1, 1, 1], ZeroStage::Off, Products::Device);
    let alone = outcome(&alone, &On::Gpus(one)).expect("one rank");
    assert_near("attention, one rank", &split, EqualityClass::OtherSums, [&alone, &by_library]);
    let by_kernels = outcome(&split, &On::Gpus(own)).expect("a run by the library of products alone");
    assert_near("attention, kernels", &split, EqualityClass::OtherSums, [&by_kernels, &by_library]);
}

#[needs::cuda]
#[test]
fn gpt_with_attention_by_a_library_is_near_cpus_and_kernels() {
    compare_attention(Tied::Yes, ZeroStage::One, 1);
}

#[needs::cuda]
#[test]
fn llama_with_attention_by_a_library_is_near_cpus_and_kernels() {
    compare_attention(Tied::No, ZERO_THREE, 2);
}

#[needs::cuda]
#[test]
fn a_run_that_resumes_attends_as_before() {
    let [whole, resumed] = [2, 2].map(soft_gpus_with_attention);
    let layout = without_dropout(layout(Tied::No, [2, 1, 1], ZeroStage::One, Products::Device));
    let folders = [Folder::new(), Folder::new()];
    let at_once = part_of_run(&layout, &On::Gpus(whole), STEPS, &folders[0].0);
    part_of_run(&layout, &On::Gpus(Arc::clone(&resumed)), 1, &folders[1].0);
    let second = part_of_run(&layout, &On::Gpus(resumed), STEPS, &folders[1].0);
    assert!(second.weights == at_once.weights, "a run and its continuation have the same bits");
}

/// With dropout the kernels compute attention, and the library changes no bit.
#[needs::cuda]
#[test]
fn attention_with_dropout_is_none_of_the_library() {
    let (with, without) = (soft_gpus_with_attention(1), soft_gpus(1));
    let layout = layout(Tied::Yes, [1, 1, 1], ZeroStage::Off, Products::Device);
    assert!(layout.model.attention_dropout > 0.0, "this model drops probabilities");
    let [with, without] = [with, without].map(|gpus| outcome(&layout, &On::Gpus(gpus)).expect("a run"));
    assert!(with == without, "the kernels computed both");
}

/// Products in blocks do not ask for the library.
#[needs::cuda]
#[test]
fn runs_in_blocks_attend_by_the_kernels() {
    let gpus = soft_gpus_with_attention(1);
    let layout = without_dropout(layout(Tied::Yes, [1, 1, 1], ZeroStage::Off, Products::Blocks16));
    let on_gpu = outcome(&layout, &On::Gpus(gpus)).expect("a run on a GPU");
    assert!(on_gpu == outcome(&layout, &On::Cpus).expect("a run on CPUs"), "GPUs have the bits of CPUs");
}
