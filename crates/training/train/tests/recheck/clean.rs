//! Runs in which nothing is wrong.

use config::{Overlap, Parallelism, Precision, Products, Recheck, TrainSpec, ZeroStage};
use testkit::layout::engine;
use testkit::models::{plain_layout, proof_training};
use train::Setup;

use crate::recheck::{losses, model};

/// The bits of a run do not depend on the checks, and nothing is found where nothing is wrong.
/// `PLEACH_CASES=1000` does 1,000 steps under each of ten layouts, with either check.
#[test]
fn checks_change_no_bit_and_raise_no_alarm() {
    let steps = needs::cases!(2);
    let zero = |zero, layout| Parallelism { zero, ..layout };
    let overlapped = |layout| Parallelism { overlap: Some(Overlap::On), ..layout };
    let single = || TrainSpec { steps, ..proof_training() };
    let bf16 = || TrainSpec { precision: Precision::Bf16(Products::Chained), ..single() };
    let layouts = [
        (plain_layout(1, 1, 1, 2), single()),
        (plain_layout(2, 1, 1, 2), single()),
        (plain_layout(1, 2, 1, 1), single()),
        (plain_layout(1, 1, 2, 1), bf16()),
        (plain_layout(2, 2, 1, 1), bf16()),
        (zero(ZeroStage::One, plain_layout(2, 2, 1, 1)), single()),
        (zero(ZeroStage::One, plain_layout(2, 1, 2, 1)), bf16()),
        (zero(ZeroStage::One, plain_layout(2, 2, 2, 1)), single()),
        (overlapped(plain_layout(2, 1, 2, 1)), single()),
        (overlapped(zero(ZeroStage::One, plain_layout(2, 2, 1, 1))), bf16()),
    ];
    let count = layouts.len();
    for (parallelism, train) in layouts {
        let setup = Setup::new(model(), parallelism, TrainSpec { global_batch: 4, ..train }).expect("legal");
        let plain = losses(&setup, &*engine(&setup, 1), Recheck::Off).expect("a clean run");
        for recheck in [Recheck::Sample, Recheck::All] {
            let checked = losses(&setup, &*engine(&setup, 1), recheck).expect("no false alarm");
            assert_eq!(checked, plain, "{recheck:?} under {:?}", setup.parallelism.degrees);
        }
    }
    println!("{steps} steps under each of {count} layouts with either check: no alarm, the same losses");
}
