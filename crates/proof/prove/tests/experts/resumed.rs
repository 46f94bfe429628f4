//! Runs with experts that are saved under one layout and resumed under another.

use config::{GradientReduction, GradientSums, Parallelism, Recompute, SequenceParallel, TrainSpec, ZeroStage};
use prove::{EqualityClass, Promised};
use testkit::models::plain_layout;

use crate::experts::rig::{broken, layout, models, outcome, three, training};
use crate::resume::rig::in_two;

/// Layouts before and after, and whether sums are exact.
fn pairs() -> Vec<(Parallelism, Parallelism, GradientSums)> {
    let plain = plain_layout;
    let (single, exact) = (GradientSums::Single, GradientSums::Exact);
    let three = three(GradientReduction::Step);
    vec![
        (plain(2, 2, 2, 1), plain(2, 2, 2, 1), single),
        (plain(1, 2, 1, 2), plain(1, 1, 1, 2), single),
        (plain(1, 1, 2, 2), plain(1, 4, 1, 2), single),
        (plain(1, 1, 1, 2), Parallelism { recompute: Recompute::FULL, ..plain(1, 1, 4, 2) }, single),
        (Parallelism { zero: three, ..plain(2, 1, 1, 1) }, plain(1, 1, 2, 1), exact),
        (plain(1, 1, 1, 4), Parallelism { zero: ZeroStage::One, ..plain(4, 1, 2, 1) }, exact),
        (
            Parallelism { zero: ZeroStage::One, ..plain(2, 2, 1, 1) },
            Parallelism { zero: three, sequence_parallel: SequenceParallel::On, ..plain(2, 2, 2, 1) },
            single,
        ),
    ]
}

#[test]
fn a_resumed_run_keeps_the_promise_of_its_two_layouts() {
    let mut same = 0;
    for (number, (before, after, sums)) in pairs().into_iter().enumerate() {
        let (name, model) = models().swap_remove(number % 3);
        let train = TrainSpec { sums, ema_decay: Some(0.9), ..training() };
        let [before, after] = [before, after].map(|parallelism| layout(&model, parallelism, train.clone()));
        let (undisturbed, resumed) = (outcome(&before), in_two(&before, &after, 2));
        let (class, faults): (EqualityClass, _) = broken([&before, &after], [&undisturbed, &resumed]);
        let none: [&str; 0] = [];
        assert_eq!(faults, none, "{name}: {:?}, then {:?}", before.parallelism, after.parallelism);
        same += usize::from(class.promises() == Promised::Bits);
    }
    assert_eq!(same, 4, "resumptions that promise bits");
}
