//! Weights of their own for the optimizer, next to the parameters that layers read.

use crate::{ContributionOrder, Demands, Instr, Sizes, State, Value, link, verify};
use config::{Format, GradientSums, Masters, Overlap, Unit, ZeroStage};

use crate::tests::setup::{Setup, footprints};

fn setup_apart(zero: ZeroStage) -> (Vec<crate::Program>, Sizes) {
    let setup = Setup { zero, ..Setup::default() };
    let mut programs = setup.programs();
    programs.iter_mut().for_each(|program| program.view.masters = Masters::Apart);
    (
        programs,
        Sizes::new(
            &setup.model(),
            &setup.parallelism(),
            footprints(),
            Format::Bf16,
            GradientSums::Single,
            State::Training,
        ),
    )
}

#[test]
fn masters_are_state_sharded_like_moments() {
    let unit = Unit::Layer(0);
    for (zero, shards) in [(ZeroStage::Off, 1), (ZeroStage::One, 2)] {
        let (programs, sizes) = setup_apart(zero);
        let bytes = |value| sizes.bytes(value);
        let accumulator = bytes(Value::Accumulator { unit, by: unit });
        assert_eq!(bytes(Value::Params(unit)), accumulator / 2, "parameters are narrow, gradients are not");
        assert_eq!(bytes(Value::Master(unit)), accumulator / shards);
        assert_eq!(bytes(Value::Master(unit)), bytes(Value::FirstMoment(unit)));
        let graph = link(programs).expect("linked");
        let demands = Demands { capacity_bytes: None, order: ContributionOrder::Ascending, overlap: Overlap::Off };
        let verified = verify(graph, &sizes, demands).expect("verified");
        let place = verified.plan().ranks[0].extent_of_state(Value::Master(unit)).expect("masters have a place");
        assert_eq!(place.len_bytes, accumulator / shards);
    }
}

#[test]
fn an_update_reads_and_writes_masters() {
    let (programs, _) = setup_apart(ZeroStage::One);
    let unit = Unit::Layer(0);
    let effects = Instr::OptimizerStep { unit }.effects(&programs[0].view);
    for values in [effects.reads, effects.assigns] {
        assert!(values.as_slice().contains(&Value::Master(unit)), "{values:?}");
    }
    let plain = Instr::OptimizerStep { unit }.effects(&Setup::default().programs()[0].view);
    assert!(!plain.reads.as_slice().contains(&Value::Master(unit)));
}
