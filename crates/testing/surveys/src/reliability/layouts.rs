//! R15: saved under one layout, resumed under another.

use config::{
    Format, Gathering, GradientReduction, GradientSums, Parallelism, Products, Recompute, Reshard, ScheduleKind,
    SequenceParallel, Tied, ZeroStage,
};
use prove::{Distance, EqualityClass, Promise, Promised, ProofError, is_noise};
use testkit::layout::Layout;
use testkit::models::{plain_layout, proof_text};
use testkit::numbers::{Numbers, model, training};
use testkit::resumed::{Stretch, outcome_of_legs};

use super::kept::{Counts, Kept};
use super::{Shown, TrialFolder};

/// Steps under the first layout, of four.
const CUT: u32 = 2;

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

/// Fewer ranks and more, another tp, another pp, every ZeRO stage to another, other stages, schedules and
/// recomputation; both ways. Every second pair has a tied table and another model, and where replicas change, one sums
/// exactly as well.
pub fn pairs() -> Vec<[Layout; 2]> {
    let of = |dp, tp, pp| plain_layout(dp, tp, pp, 1);
    let split = |layers: &[usize]| Parallelism { stage_layers: Some(layers.to_vec()), ..of(2, 1, 2) };
    let selective = Parallelism { recompute: Recompute::Selective, ..of(2, 1, 3) };
    let pairs = [
        [of(1, 1, 1), of(1, 1, 2)],
        [of(2, 1, 1), of(2, 1, 3)],
        [of(2, 1, 2), zero(ZeroStage::One, of(2, 1, 2))],
        [of(3, 1, 1), zero(THREE, of(3, 1, 2))],
        [zero(TWO, of(2, 1, 2)), zero(THREE, of(2, 1, 1))],
        [zero(ZeroStage::One, of(2, 2, 1)), zero(THREE, of(2, 2, 2))],
        [split(&[1, 5]), split(&[4, 2])],
        [scheduled(ScheduleKind::GPipe, of(2, 1, 2)), scheduled(ScheduleKind::ZeroBubbleV, of(2, 1, 2))],
        [scheduled(ScheduleKind::Interleaved { stages_per_rank: 3 }, of(2, 1, 2)), selective],
        [of(4, 1, 1), of(1, 1, 1)],
        [zero(ZeroStage::One, of(4, 1, 2)), zero(THREE, of(2, 1, 1))],
        [Parallelism { shard_group: Some(2), ..zero(THREE, of(4, 1, 1)) }, of(2, 1, 2)],
        [of(1, 1, 1), of(1, 2, 1)],
        [zero(THREE, of(2, 2, 2)), of(1, 1, 2)],
        [Parallelism { sequence_parallel: SequenceParallel::On, ..of(1, 2, 2) }, zero(ZeroStage::One, of(3, 1, 2))],
    ];
    let mut all = Vec::new();
    for (index, pair) in pairs.into_iter().enumerate() {
        let tied = if index % 2 == 0 { Tied::Yes } else { Tied::No };
        let class = EqualityClass::of(&pair[0], &pair[1]);
        let sums = if class == EqualityClass::OtherOrder {
            vec![GradientSums::Single, GradientSums::Exact]
        } else {
            vec![GradientSums::Single]
        };
        for sums in sums {
            let train = training(Numbers::new(Format::Fp32, sums, Products::Chained));
            let [first, second] =
                pair.clone().map(|parallelism| Layout { model: model(tied), parallelism, train: train.clone() });
            all.extend([[first.clone(), second.clone()], [second, first]]);
        }
    }
    all
}

const SAME: &str = "same";

/// Each pair keeps the promise of its class, against the run that stays under the first layout.
///
/// # Errors
/// A folder for trials that cannot be made.
pub fn layouts(pairs: &[[Layout; 2]], kept: &Kept) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("layouts").map_err(ProofError::Trial)?;
    let row = kept.row("R15", pairs.len(), |number| {
        let [before, after] = &pairs[number];
        folder.clear().map_err(|error| error.to_string())?;
        let class =
            EqualityClass::of(&before.parallelism, &after.parallelism).in_sums([before.train.sums, after.train.sums]);
        let faults = faults(before, after, class, &folder).unwrap_or_else(|error| vec![error.to_string()]);
        match (faults.is_empty(), class.promises()) {
            (true, Promised::Bits) => Ok(Counts::from([(SAME.to_string(), 1)])),
            (true, Promised::Bounds | Promised::Nothing) => Ok(Counts::new()),
            (false, _) => Err(format!("{:?} -> {:?}: {}", before.parallelism, after.parallelism, faults.join("; "))),
        }
    });
    Ok(Shown {
        number: "R15",
        fault: "saved under one layout, resumed under another",
        demand: "the promise of the two layouts",
        trials: pairs.len(),
        seen: format!("{} the same, the others within their bounds", row.count(SAME)),
        failures: row.failures,
    })
}

fn faults(
    before: &Layout,
    after: &Layout,
    class: EqualityClass,
    folder: &TrialFolder,
) -> Result<Vec<String>, ProofError> {
    let tokens = proof_text();
    let undisturbed = before.outcome(&tokens)?;
    let parts =
        [Stretch { layout: before.clone(), until: CUT }, Stretch { layout: after.clone(), until: after.train.steps }];
    let resumed = outcome_of_legs(&parts, &tokens, folder.path())?;
    let promise = Promise::of(class, &before.model, &before.train, before.train.steps);
    let distance = Distance::between(&undisturbed, &resumed, |name| is_noise(&before.model, name));
    Ok(promise.faults([&undisturbed, &resumed], &distance))
}
