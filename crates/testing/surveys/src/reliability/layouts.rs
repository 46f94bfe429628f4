//! R15: saved under one layout, resumed under another.

use config::{Degrees, GradientReduction, GradientSums, Recompute, Reshard, ScheduleKind, SequenceParallel, ZeroStage};
use prove::{Distance, EqualityClass, Promise, Promised, ProofError, is_noise};
use testkit::layout::Layout;
use testkit::models::proof_text;
use testkit::resumed::{LayoutPart, outcome_of_parts};

use super::kept::{Counts, Kept, row};
use super::{Shown, TrialFolder};
use crate::space::{Form, Point, Schedule, Shape, Task, three};

/// Steps under the first layout, of four.
const CUT: u32 = 2;

const TWO: ZeroStage = ZeroStage::Two { reduce: GradientReduction::Step };
const THREE: ZeroStage = three(GradientReduction::Step, 1, Reshard::AfterUse);

/// Fewer ranks and more, another tp, another pp, every ZeRO stage to another, other stages, schedules and
/// recomputation; both ways. Every second pair has a tied table and another model, and where replicas change, one sums
/// exactly as well.
pub fn pairs() -> Vec<[Layout; 2]> {
    let scheduled = |kind, point: Point| Point { schedule: Schedule::Generated(kind), ..point };
    let plain = scheduled(ScheduleKind::OneForwardOneBackward, Point::plain(Task::Small(Shape::Gpt2), 1));
    let of = |dp, tp, pp| Point { degrees: Degrees { dp, cp: 1, tp, pp }, ..plain };
    let zero = |zero, point: Point| Point { form: Form::one(zero), ..point };
    let split = |layers: &'static [usize]| Point { stage_layers: Some(layers), ..of(2, 1, 2) };
    let selective = Point { recompute: Recompute::Selective, ..of(2, 1, 3) };
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
        [Point { form: Form::several(THREE), ..of(4, 1, 1) }, of(2, 1, 2)],
        [of(1, 1, 1), of(1, 2, 1)],
        [zero(THREE, of(2, 2, 2)), of(1, 1, 2)],
        [Point { sequence_parallel: SequenceParallel::On, ..of(1, 2, 2) }, zero(ZeroStage::One, of(3, 1, 2))],
    ];
    let mut all = Vec::new();
    for (index, pair) in pairs.into_iter().enumerate() {
        let task = Task::Small(if index % 2 == 0 { Shape::Gpt2 } else { Shape::Llama });
        let [first, second] = pair.map(|point| point.layout().parallelism);
        let sums: &[GradientSums] = if EqualityClass::of(&first, &second) == EqualityClass::OtherOrder {
            &[GradientSums::Single, GradientSums::Exact]
        } else {
            &[GradientSums::Single]
        };
        for sums in sums {
            let [first, second] = pair.map(|point| Point { task, ..point }.with_sums(*sums).layout());
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
    let row = row(kept, "R15", pairs.len(), |number| {
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
    let parts = [
        LayoutPart { layout: before.clone(), until: CUT },
        LayoutPart { layout: after.clone(), until: after.train.steps },
    ];
    let resumed = outcome_of_parts(&parts, &tokens, folder.path())?;
    let promise = Promise::of(class, &before.model, &before.train, before.train.steps);
    let distance = Distance::between(&undisturbed, &resumed, |name| is_noise(&before.model, name));
    Ok(promise.faults([&undisturbed, &resumed], &distance))
}
