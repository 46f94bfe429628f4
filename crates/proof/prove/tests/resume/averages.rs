//! Moving averages of weights: the formula, the bits of every layout of one class, and resumptions.

use std::collections::BTreeMap;

use config::{Format, LinearLayer, LoraSpec, ModelSpec, Parallelism, Tied, TrainSpec, ZeroStage};
use device::Op;
use mesh::Region;
use program::Value;
use testkit::intercepted::drop_ops;
use testkit::layout::Layout;
use testkit::models::{plain_layout, proof_text};
use testkit::resumed::{LayoutPart, Surroundings, newest, outcome_of_part};
use testkit::wrapped_engine::WrapRank;

use crate::checklist::findings::{Verdict, assert_found, assert_holds, verdict};
use crate::resume::pairs::THREE;
use crate::resume::resumption::untouched;
use crate::resume::rig::{Folder, layout};

const DECAY: f32 = 0.75;

type Averages = BTreeMap<String, Vec<f32>>;

/// Four steps with averages, under `parallelism`.
fn averaged(format: Format, parallelism: Parallelism) -> Layout {
    let plain = layout(Tied::Yes, format, parallelism);
    Layout { train: TrainSpec { ema_decay: Some(DECAY), ..plain.train }, ..plain }
}

fn zero(zero: ZeroStage, dp: usize, tp: usize, pp: usize) -> Parallelism {
    Parallelism { zero, ..plain_layout(dp, tp, pp, 1) }
}

/// The tensors of the newest checkpoint whose names begin with `prefix`, without it.
fn tensors(folder: &Folder, prefix: &str) -> Averages {
    let checkpoint = newest(&folder.0).expect("a checkpoint");
    let names =
        checkpoint.manifest().tensors.iter().filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?, tensor)));
    names
        .map(|(name, tensor)| {
            let region = Region::whole(&tensor.shape);
            let mut values = vec![0.0; region.len()];
            checkpoint.get(&format!("{prefix}{name}"), &region, &mut values).expect("read");
            (name.to_string(), values)
        })
        .collect()
}

/// Runs `layout` in `folder` from its newest checkpoint until `until` steps are done.
fn go_on(folder: &Folder, layout: &Layout, until: u32, wrap: &WrapRank<'_>) -> Averages {
    let text = proof_text();
    let surroundings = Surroundings { wrap, ..Surroundings::plain(&text) };
    let layout_part = LayoutPart { layout: layout.clone(), until };
    outcome_of_part(&layout_part, &folder.0, surroundings).expect("a run");
    tensors(folder, "average.")
}

fn averages(layout: &Layout) -> Averages {
    go_on(&Folder::new(), layout, layout.train.steps, &untouched)
}

/// The weights after the last of `steps` steps.
fn weights_after(layout: &Layout, steps: u32) -> Averages {
    let train = TrainSpec { steps, ..layout.train.clone() };
    let outcome = Layout { train, ..layout.clone() }.outcome(&proof_text()).expect("a run");
    outcome.weights.into_iter().collect()
}

/// Two roundings of a product and a sum per step, each at most 2^-24 of the largest value of the tensor.
fn check(layout: &Layout, wrap: &WrapRank<'_>) -> Verdict {
    let found = go_on(&Folder::new(), layout, layout.train.steps, wrap);
    // With the schedule of the whole run, steps are those of a shorter one: the rate is constant.
    let mut expected: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for steps in 0..=layout.train.steps {
        for (name, weights) in weights_after(layout, steps) {
            let weights = weights.into_iter().map(f64::from);
            match expected.get_mut(&name) {
                None => drop(expected.insert(name, weights.collect())),
                Some(average) => average.iter_mut().zip(weights).for_each(|(average, weight)| {
                    *average = f64::from(DECAY) * *average + (1.0 - f64::from(DECAY)) * weight;
                }),
            }
        }
    }
    let far = expected.iter().filter(|(name, expected)| {
        let largest = expected.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let bound = 2.0 * f64::from(layout.train.steps) * 2f64.powi(-24) * largest;
        !found.get(*name).is_some_and(|found| {
            found.iter().zip(*expected).all(|(found, expected)| (f64::from(*found) - expected).abs() <= bound)
        })
    });
    verdict(far.map(|(name, _)| format!("{name} is not averaged as its weights say")))
}

fn constant(layout: Layout) -> Layout {
    let schedule = config::LearningRateSchedule::Constant;
    Layout { train: TrainSpec { schedule, warmup_steps: 0, ..layout.train }, ..layout }
}

#[test]
fn averages_follow_the_weights_of_all_steps() {
    for format in [Format::Fp32, Format::Bf16] {
        let layout = constant(averaged(format, zero(ZeroStage::One, 2, 1, 2)));
        assert_holds(check(&layout, &untouched));
    }
    let layout = constant(averaged(Format::Fp32, zero(ZeroStage::One, 2, 1, 1)));
    let forgets = |_, rank| drop_ops(rank, |op| matches!(op, Op::ScaledSum { .. }));
    assert_found(check(&layout, &forgets), "is not averaged");
}

#[test]
fn sharded_averages_have_the_bits_of_whole_ones() {
    for format in [Format::Fp32, Format::Bf16] {
        let whole = averages(&averaged(format, zero(ZeroStage::Off, 2, 1, 1)));
        assert!(!whole.is_empty());
        for parallelism in [zero(ZeroStage::One, 2, 1, 2), zero(THREE, 2, 1, 1), zero(ZeroStage::Off, 2, 1, 2)] {
            let other = averages(&averaged(format, parallelism.clone()));
            assert!(whole == other, "{format:?}: {} with {:?} differs", parallelism.degrees, parallelism.zero);
        }
    }
}

#[test]
fn averages_resume_in_the_same_layout_and_in_another() {
    let first = averaged(Format::Bf16, zero(ZeroStage::One, 2, 1, 2));
    let undisturbed = averages(&first);
    for second in [first.clone(), averaged(Format::Bf16, zero(THREE, 2, 1, 1))] {
        for cut in 1..first.train.steps {
            let folder = Folder::new();
            go_on(&folder, &first, cut, &untouched);
            let resumed = go_on(&folder, &second, first.train.steps, &untouched);
            assert!(resumed == undisturbed, "after {cut} steps, to {}", second.parallelism.degrees);
        }
    }
}

/// A run may begin to average, and end it; averages begin as the weights of the checkpoint.
#[test]
fn averages_begin_with_the_weights_of_a_checkpoint_without() {
    let with = averaged(Format::Fp32, zero(ZeroStage::One, 2, 1, 1));
    let without = Layout { train: TrainSpec { ema_decay: None, ..with.train.clone() }, ..with.clone() };
    let folder = Folder::new();
    assert!(go_on(&folder, &without, 2, &untouched).is_empty());
    let before = tensors(&folder, "");
    let average = go_on(&folder, &with, 3, &untouched);
    let after = tensors(&folder, "");
    for (name, average) in &average {
        for (index, value) in average.iter().enumerate() {
            let expected = after[name][index] * (1.0 - DECAY);
            assert_eq!(*value, before[name][index].mul_add(DECAY, expected), "{name}");
        }
    }
    assert!(!average.is_empty() && go_on(&folder, &without, 4, &untouched).is_empty());
}

/// Adapters alone are averaged: the frozen weights stay as they are.
#[test]
fn averages_of_adapters_follow_them_and_resume() {
    let adapters = |parallelism| {
        let plain = constant(averaged(Format::Fp32, parallelism));
        let lora = LoraSpec { rank: 4, alpha: 8.0, targets: vec![LinearLayer::Query, LinearLayer::Up] };
        Layout { model: ModelSpec { lora: Some(lora), ..plain.model }, ..plain }
    };
    let whole = adapters(zero(ZeroStage::Off, 2, 1, 1));
    let expected = averages(&whole);
    assert!(!expected.is_empty() && expected.keys().all(|name| name.contains("lora")), "{:?}", expected.keys());
    let sharded = adapters(zero(ZeroStage::One, 2, 1, 2));
    assert!(averages(&sharded) == expected, "sharded averages have other bits");
    let folder = Folder::new();
    go_on(&folder, &whole, 2, &untouched);
    assert!(go_on(&folder, &sharded, whole.train.steps, &untouched) == expected, "resumed averages have other bits");
    // The formula, for what is averaged.
    let last = weights_after(&whole, whole.train.steps);
    let mut moved = 0;
    for (name, average) in &expected {
        moved += usize::from(average != &last[name]);
    }
    assert!(moved > 0, "averages are not the weights");
}

/// Averages of experts follow their weights. They are those of one rank wherever the experts are, and continue where
/// they were.
#[test]
fn averages_of_experts_have_the_same_bits_and_resume() {
    let experts = |parallelism| {
        let plain = averaged(Format::Fp32, parallelism);
        let exact = TrainSpec { sums: config::GradientSums::Exact, ..plain.train };
        Layout { model: crate::experts::rig::model(|_| {}), train: exact, ..plain }
    };
    assert_holds(check(&constant(experts(zero(ZeroStage::One, 2, 2, 1))), &untouched));
    let whole = experts(zero(ZeroStage::Off, 1, 1, 1));
    let expected = averages(&whole);
    assert_eq!(expected.keys().filter(|name| name.contains(".experts.")).count(), 8);
    let sharded = experts(Parallelism { recompute: config::Recompute::FULL, ..zero(THREE, 2, 1, 2) });
    assert!(averages(&sharded) == expected, "sharded averages have other bits");
    let folder = Folder::new();
    go_on(&folder, &whole, 2, &untouched);
    assert!(go_on(&folder, &sharded, whole.train.steps, &untouched) == expected, "resumed averages have other bits");
}

/// Four bytes for each element that a rank updates, and nothing else.
#[test]
fn plans_count_averages_to_the_byte() {
    for (parallelism, group) in
        [(zero(ZeroStage::Off, 2, 1, 2), 1), (zero(ZeroStage::One, 2, 1, 2), 2), (zero(THREE, 2, 2, 1), 2)]
    {
        let with = averaged(Format::Bf16, parallelism);
        let without = Layout { train: TrainSpec { ema_decay: None, ..with.train.clone() }, ..with.clone() };
        let [with, without] = [with, without].map(|layout| layout.setup().expect("a plan"));
        for stage in 0..with.parallelism.degrees.pp {
            let bytes = |setup: &train::Setup| -> usize {
                setup.plan(stage).state().iter().map(|(_, extent)| extent.len_bytes).sum()
            };
            let view = &with.program(stage).view;
            let own: usize = view.parameter_units().map(|unit| with.layouts[&unit].padded_len() / group * 4).sum();
            assert_eq!(bytes(&with) - bytes(&without), own);
            let averages =
                with.plan(stage).state().iter().filter(|(value, _)| matches!(value, Value::Average(_))).count();
            assert_eq!(averages, view.parameter_units().count());
        }
    }
}
