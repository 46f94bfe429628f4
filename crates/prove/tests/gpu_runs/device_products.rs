//! Runs whose products are those of the GPU's library, in software: within the bounds of CPU runs in blocks, and the
//! same bits again in the same layout.

use config::{Format, Overlap, Precision, Products, Tied, ZeroStage};
use prove::{EqualityClass, Outcome, Promise};
use testkit::layout::Layout;
use testkit::soft_gpus::soft_gpus;

use crate::rig::{On, ZERO_THREE, outcome, stored_layout};

const STEPS: u32 = 2;

fn layout(tied: Tied, degrees: [usize; 3], zero: ZeroStage, products: Products) -> Layout {
    let mut layout = stored_layout(Format::Bf16, tied, degrees, zero, Overlap::On, STEPS);
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
    let (Some(eight), Some(fewer), Some(one)) = (soft_gpus(8), soft_gpus(gpus_of_same), soft_gpus(1)) else { return };
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

#[test]
fn gpt_with_sharded_optimizer_state_is_near_cpus_and_one_rank() {
    compare(Tied::Yes, ZeroStage::One, 1);
}

#[test]
fn llama_with_sharded_parameters_is_near_cpus_and_one_rank() {
    compare(Tied::No, ZERO_THREE, 2);
}

/// CPUs refuse them, and so do GPUs that were opened without a library.
#[test]
fn who_has_no_library_refuses_its_products() {
    let layout = layout(Tied::Yes, [1, 1, 1], ZeroStage::Off, Products::Device);
    let error = outcome(&layout, &On::Cpus).expect_err("refused").to_string();
    let said = "train.products = \"device\" must be supported by the device; the CPU refuses it; use \"chained\", \"pairs\", \
                \"blocks16\" or \"blocks8\"";
    assert!(error.contains(said), "{error}");
    let driver = std::sync::Arc::new(testkit::soft_gpus::soft_driver([softgpu::Settings::default()]));
    let Some(gpus) = testkit::soft_gpus::gpus_of(driver) else { return };
    let error = outcome(&layout, &On::Gpus(gpus)).expect_err("refused").to_string();
    assert!(error.contains("these GPUs were opened without one"), "{error}");
}
