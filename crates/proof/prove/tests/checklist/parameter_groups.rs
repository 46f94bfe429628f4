//! Groups of parameters: each is updated with the rate and the decay of its group, on one rank and in shards.

use config::{LearningRateSchedule, ModelSpec, Parallelism, ParameterGroup, TrainSpec, ZeroStage};
use device::Op;
use mesh::Axis;
use testkit::intercepted::alter_ops;
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

const RATE: f32 = 2e-3;

/// Half the rate for tables, decay for norms, nothing for a block.
fn grouped(steps: u32) -> TrainSpec {
    let group = |names: &[&str], learning_rate_scale, weight_decay| ParameterGroup {
        parameters: names.iter().map(ToString::to_string).collect(),
        learning_rate_scale,
        weight_decay,
    };
    let groups = vec![
        group(&["embedding.*"], 0.5, None),
        group(&["*norm.weight"], 1.0, Some(0.25)),
        group(&["layers.0.ffn.*"], 0.0, None),
        group(&["layers.1.attention.*.bias", "layers.1.attention.query.weight"], 2.0, Some(0.0)),
    ];
    let constant = TrainSpec { schedule: LearningRateSchedule::Constant, warmup_steps: 0, ..training(steps) };
    TrainSpec { groups, learning_rate: RATE, min_learning_rate: RATE, clip_norm: None, ..constant }
}

/// Rate and decay that the groups above give a parameter, written once more.
fn rate_and_decay(name: &str) -> (f64, f64) {
    let rate = f64::from(RATE);
    if name.starts_with("embedding.") {
        (0.5 * rate, 0.1)
    } else if name.ends_with("norm.weight") {
        (rate, 0.25)
    } else if name.starts_with("layers.0.ffn.") {
        (0.0, 0.0)
    } else if name.starts_with("layers.1.attention.") && (name.ends_with(".bias") || name.contains("query")) {
        (2.0 * rate, 0.0)
    } else {
        (rate, if name.ends_with(".weight") { 0.1 } else { 0.0 })
    }
}

/// Whether the first update is AdamW's: then both moments are those of one gradient, so
/// `w - rate (g / (|g| + epsilon) + decay w)`.
///
/// Computed in single precision it is a few roundings of the update and of the weight away: at most 2^-21 of the one,
/// 2^-22 of the other.
fn first_update(model: &ModelSpec, wrap: &WrapRank<'_>) -> Verdict {
    let run = |steps, wrap| Case::new(model, degrees((1, 1, 1)), &grouped(steps)).wrapped(wrap).outcome();
    let (before, after) = (run(0, &untouched)?, run(1, wrap)?);
    let epsilon = f64::from(grouped(1).epsilon);
    let is_updated = |name: &str, index: usize| {
        let [old, new, gradient] =
            [&before.weights, &after.weights, &after.gradients].map(|all| f64::from(all[name][index]));
        let (rate, decay) = rate_and_decay(name);
        let expected = old - rate * (gradient / (gradient.abs() + epsilon) + decay * old);
        (new - expected).abs()
            <= 2f64.powi(-21) * rate * (1.0 + decay * old.abs()) + 2f64.powi(-22) * old.abs().max(new.abs())
    };
    let wrong = after.weights.iter().filter(|(name, values)| (0..values.len()).any(|index| !is_updated(name, index)));
    verdict(wrong.map(|(name, _)| format!("{name} is not updated as its group says")))
}

#[test]
fn each_group_has_its_own_rate_and_decay() {
    let model = small_model(Style::Gpt2, true);
    assert_holds(first_update(&model, &untouched));
    let altered = |alter: fn(&mut device::AdamWUpdate)| {
        move |_: mesh::Coord, rank: RankEngine| {
            alter_ops(rank, move |op| {
                if let Op::AdamW { update, .. } = op {
                    alter(update);
                }
            })
        }
    };
    let one_rate = first_update(&model, &altered(|update| update.learning_rate = RATE));
    assert_found(one_rate.clone(), "embedding.token.weight");
    assert_found(one_rate, "layers.0.ffn.up.weight");
    let no_decay_of_norms = altered(|update| update.weight_decay = update.weight_decay.min(0.1));
    assert_found(first_update(&model, &no_decay_of_norms), "head.norm.weight");
}

/// Whether shards are updated as the whole is, on `pp` stages.
fn in_shards(zero: ZeroStage, pp: usize, wrap: &WrapRank<'_>) -> Verdict {
    let (model, train) = (small_model(Style::Gpt2, true), grouped(3));
    let layout = |zero, pp| Parallelism { zero, ..degrees((2, 1, pp)) };
    let whole = Case::new(&model, layout(ZeroStage::Off, 1), &train).outcome()?;
    let shards = Case::new(&model, layout(zero, pp), &train).wrapped(wrap).outcome()?;
    same_bits(&whole, &shards)
}

#[test]
fn groups_do_not_depend_on_the_layout() {
    for zero in [ZeroStage::Off, ZeroStage::One, TWO, THREE] {
        assert_holds(in_shards(zero, 2, &untouched));
    }
    // A shard that is updated by the rule of another.
    let usual_on_second = |coord: mesh::Coord, rank: RankEngine| {
        if replica(coord) == 0 {
            return rank;
        }
        alter_ops(rank, |op| {
            if let Op::AdamW { update, .. } = op {
                update.learning_rate = RATE;
            }
        })
    };
    assert_found(in_shards(ZeroStage::One, 1, &usual_on_second), "bits differ");
    // The copy of the tied table on the last stage forgets its group.
    let usual_on_last_stage = |coord: mesh::Coord, rank: RankEngine| {
        if coord.along(Axis::Pp) == 0 {
            return rank;
        }
        alter_ops(rank, |op| {
            if let Op::AdamW { update, .. } = op
                && update.learning_rate == 0.5 * RATE
            {
                update.learning_rate = RATE;
            }
        })
    };
    for zero in [ZeroStage::Off, ZeroStage::One, TWO, THREE] {
        assert_found(in_shards(zero, 2, &usual_on_last_stage), "bits differ");
    }
    let (model, train) = (small_model(Style::Llama, false), grouped(2));
    let train = TrainSpec { groups: train.groups[..3].to_vec(), ..train };
    let run = |at| Case::new(&model, degrees(at), &train).outcome().expect("runs");
    assert_holds(within_bounds(&model, &run((1, 1, 1)), &run((1, 2, 1))));
}
