//! Exact sums of gradients: their bytes, and where the terms that they refuse are counted.

use crate::{Instr, Sizes, State, Value};
use config::{Format, Gathering, GradientReduction, GradientSums, Microbatch, Reshard, Unit, ZeroStage};

use crate::tests::setup::{Setup, footprints};

const UNIT: Unit = Unit::Layer(0);

#[test]
fn exact_sums_take_twice_the_bytes_and_nothing_else_does() {
    let gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
    for zero in [ZeroStage::Off, ZeroStage::Three { reduce: GradientReduction::Microbatch, gathering }] {
        let setup = Setup { zero, ..Setup::default() };
        let sizes =
            |sums| Sizes::new(&setup.model(), &setup.parallelism(), footprints(), Format::Bf16, sums, State::Training);
        let (single, exact) = (sizes(GradientSums::Single), sizes(GradientSums::Exact));
        let of = |value| (single.bytes(value), exact.bytes(value));
        let (unit, by) = (UNIT, UNIT);
        for value in [Value::Accumulator { unit, by }, Value::Unreduced { unit, by }, Value::Reduced { unit, by }] {
            let (single, exact) = of(value);
            assert_eq!(2 * single, exact, "{value}");
        }
        for value in [Value::Params(unit), Value::Gathered(unit), Value::Master(unit), Value::FirstMoment(unit)] {
            let (single, exact) = of(value);
            assert_eq!(single, exact, "{value}");
        }
    }
}

#[test]
fn what_adds_to_exact_sums_counts_refusals_among_the_sums_of_the_step() {
    let adds_to_sums = |instr: Instr, sums| {
        let mut programs = Setup::default().programs();
        programs.iter_mut().for_each(|program| program.view.sums = sums);
        instr.effects(&programs[0].view).accumulates.as_slice().contains(&Value::LossSums)
    };
    let microbatch = Microbatch(0);
    for unit in [Unit::Embedding, UNIT] {
        let instr = Instr::BackwardWeight { unit, microbatch };
        assert_eq!(
            [GradientSums::Single, GradientSums::Exact].map(|sums| adds_to_sums(instr, sums)),
            [false, true],
            "{unit}"
        );
    }
    // The head adds the loss to them anyway.
    let head = Instr::Forward { unit: Unit::Head, microbatch };
    assert_eq!([GradientSums::Single, GradientSums::Exact].map(|sums| adds_to_sums(head, sums)), [true, true]);
}
