//! Pairs of layouts: saved under the one, resumed under the other.

use prove::models::plain_layout;
use prove::promise::Promise;
use prove::verdict::is_noise;
use prove::{Distance, EqualityClass};
use spec::unit::Tied;
use spec::{
    Format, Gathering, GradientReduction, Parallelism, Recompute, Reshard, ScheduleKind, SequenceParallel, ZeroStage,
};

use crate::rig::{in_two, layout, whole};

const STEP: GradientReduction = GradientReduction::Step;
const GATHERING: Gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
const TWO: ZeroStage = ZeroStage::Two { reduce: STEP };
const THREE: ZeroStage = ZeroStage::Three { reduce: STEP, gathering: GATHERING };

fn zero(zero: ZeroStage, parallelism: Parallelism) -> Parallelism {
    Parallelism { zero, ..parallelism }
}

fn scheduled(schedule: ScheduleKind, parallelism: Parallelism) -> Parallelism {
    Parallelism { schedule: schedule.into(), ..parallelism }
}

/// Both directions of each, so twice as many. All tied; those of odd places untied as well.
fn pairs() -> Vec<[Parallelism; 2]> {
    let of = |dp, tp, pp| plain_layout(dp, tp, pp, 1);
    let split = |layers: &[usize]| Parallelism { stage_layers: Some(layers.to_vec()), ..of(2, 1, 2) };
    vec![
        [of(1, 1, 1), of(1, 1, 2)],
        [of(2, 1, 1), of(2, 1, 3)],
        [of(2, 1, 2), zero(ZeroStage::One, of(2, 1, 2))],
        [of(3, 1, 1), zero(THREE, of(3, 1, 2))],
        [zero(TWO, of(2, 1, 2)), zero(THREE, of(2, 1, 1))],
        [zero(ZeroStage::One, of(2, 2, 1)), zero(THREE, of(2, 2, 2))],
        [split(&[1, 5]), split(&[4, 2])],
        [scheduled(ScheduleKind::GPipe, of(2, 1, 2)), scheduled(ScheduleKind::ZeroBubbleV, of(2, 1, 2))],
        [
            scheduled(ScheduleKind::Interleaved { stages_per_rank: 3 }, of(2, 1, 2)),
            Parallelism { recompute: Recompute::Selective, ..of(2, 1, 3) },
        ],
        [of(4, 1, 1), of(1, 1, 1)],
        [zero(ZeroStage::One, of(4, 1, 2)), zero(THREE, of(2, 1, 1))],
        [Parallelism { shard_group: Some(2), ..zero(THREE, of(4, 1, 1)) }, of(2, 1, 2)],
        [of(1, 1, 1), of(1, 2, 1)],
        [zero(THREE, of(2, 2, 2)), of(1, 1, 2)],
        [Parallelism { sequence_parallel: SequenceParallel::On, ..of(1, 2, 2) }, zero(ZeroStage::One, of(3, 1, 2))],
    ]
}

#[test]
fn every_pair_keeps_the_promise_of_its_class() {
    let pairs = pairs();
    assert!(pairs.len() >= 12, "24 with both directions");
    let mut same_bits = 0;
    for (index, pair) in pairs.into_iter().enumerate() {
        let tied = if index % 2 == 0 { Tied::Yes } else { Tied::No };
        for [before, after] in [[&pair[0], &pair[1]], [&pair[1], &pair[0]]] {
            let [before, after] = [before, after].map(|parallelism| layout(tied, Format::Fp32, parallelism.clone()));
            let (undisturbed, resumed) = (whole(&before), in_two(&before, &after, 2));
            let promise = Promise::of([&before.parallelism, &after.parallelism], &before.train, before.train.steps);
            let distance = Distance::between(&undisturbed, &resumed, |name| is_noise(&before.model, name));
            let faults = promise.faults([&undisturbed, &resumed], &distance);
            assert_eq!(faults, [""; 0], "{:?} -> {:?}", before.parallelism, after.parallelism);
            same_bits += usize::from(promise.class == EqualityClass::SameOrder && distance.same_bits);
        }
    }
    assert!(same_bits >= 16, "{same_bits} pairs have the same bits");
}
