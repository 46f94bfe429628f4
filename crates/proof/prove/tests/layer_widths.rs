//! A model whose layers differ in width: layouts that keep the order of sums change no bit, others stay within their
//! bounds, and each layer has the memory of its own width.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use config::{
    Gathering, GradientReduction, ModelSpec, Parallelism, Recompute, Reshard, ScheduleKind, TrainSpec, Unit, ZeroStage,
    params,
};
use program::Value;
use prove::{Distance, EqualityClass, Outcome, Promise, Promised, is_noise};
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};

/// Wide layers first, so that balanced stages have different numbers of layers.
const WIDTHS: [usize; 6] = [384, 384, 24, 48, 24, 24];

fn model(style: Style) -> ModelSpec {
    let proof = proof_model(style, 12, style == Style::Gpt2);
    ModelSpec { num_layers: WIDTHS.len(), ffn_hidden_of_layers: Some(WIDTHS.to_vec()), ..proof }
}

fn layout(style: Style, parallelism: Parallelism) -> Layout {
    let train = TrainSpec { steps: 4, global_batch: 8, warmup_steps: 1, ..proof_training() };
    Layout { model: model(style), parallelism, train }
}

fn outcome(layout: &Layout) -> Outcome {
    layout.outcome(&proof_text()).unwrap_or_else(|error| panic!("{:?}: {error}", layout.parallelism))
}

const STEP: GradientReduction = GradientReduction::Step;
const MICROBATCH: GradientReduction = GradientReduction::Microbatch;

fn three(reduce: GradientReduction) -> ZeroStage {
    ZeroStage::Three { reduce, gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse } }
}

fn layouts() -> Vec<Parallelism> {
    let (plain, uneven) = (plain_layout, Some(vec![1, 4, 1]));
    vec![
        plain(1, 1, 2, 2),
        Parallelism { stage_layers: uneven.clone(), ..plain(1, 1, 3, 2) },
        Parallelism { schedule: ScheduleKind::ZeroBubbleH1.into(), ..plain(1, 1, 3, 1) },
        Parallelism { schedule: ScheduleKind::Interleaved { stages_per_rank: 2 }.into(), ..plain(1, 1, 2, 2) },
        Parallelism { recompute: Recompute::FULL, ..plain(1, 1, 2, 2) },
        Parallelism { recompute: Recompute::Selective, ..plain(1, 1, 1, 2) },
        plain(1, 2, 1, 2),
        Parallelism { recompute: Recompute::FULL, stage_layers: uneven, ..plain(1, 2, 3, 2) },
        Parallelism { zero: ZeroStage::One, ..plain(2, 1, 1, 2) },
        Parallelism { zero: ZeroStage::Two { reduce: STEP }, ..plain(2, 1, 2, 2) },
        Parallelism { zero: ZeroStage::Two { reduce: MICROBATCH }, ..plain(2, 1, 1, 2) },
        Parallelism { zero: three(STEP), ..plain(2, 2, 1, 2) },
        Parallelism { zero: three(MICROBATCH), recompute: Recompute::FULL, ..plain(2, 1, 2, 2) },
    ]
}

#[test]
fn layouts_keep_their_promise_to_one_rank() {
    for style in [Style::Gpt2, Style::Llama] {
        let mut same = 0;
        for parallelism in layouts() {
            let one = layout(style, plain_layout(1, 1, 1, parallelism.microbatch_size));
            let many = layout(style, parallelism);
            let class = EqualityClass::of(&one.parallelism, &many.parallelism);
            let promise = Promise::of(class, &many.model, &many.train, many.train.steps);
            let outcomes = [outcome(&one), outcome(&many)];
            let distance = Distance::between(&outcomes[0], &outcomes[1], |name| is_noise(&many.model, name));
            let none: [&str; 0] = [];
            assert_eq!(promise.faults([&outcomes[0], &outcomes[1]], &distance), none, "{:?}", many.parallelism);
            same += usize::from(class.promises() == Promised::Bits);
        }
        assert!(same >= 6, "{same} layouts promise bits");
    }
}

/// Stages of equal numbers of layers would have the wide ones in one stage.
#[test]
fn stages_are_balanced_by_the_work_of_each_layer() {
    let setup = layout(Style::Gpt2, plain_layout(1, 1, 2, 2)).setup().unwrap();
    let layers =
        |pp: usize| setup.program(pp).view.computing_units().filter(|unit| matches!(unit, Unit::Layer(_))).count();
    assert!(layers(0) < layers(1), "{} and {} layers", layers(0), layers(1));
}

#[test]
fn planned_bytes_are_those_of_each_layer() {
    let (tp, single) = (2, 4);
    let setup = layout(Style::Llama, plain_layout(1, tp, 1, 2)).setup().unwrap();
    let plan = setup.plan(0);
    let bytes = |value| plan.state().iter().find(|(of, _)| *of == value).map(|(_, extent)| extent.len_bytes).unwrap();
    for (layer, width) in WIDTHS.into_iter().enumerate() {
        let unit = Unit::Layer(layer as u32);
        let shard = |param: &config::ParamSpec| {
            let is_replicated = matches!(param.sharding, config::Sharding::Replicated);
            param.len() / if is_replicated { 1 } else { tp }
        };
        let elements: usize = params(&setup.model, unit).iter().map(shard).sum();
        let padded = elements.next_multiple_of(config::SHARD_BLOCK);
        for value in [Value::Params(unit), Value::FirstMoment(unit)] {
            assert_eq!(bytes(value), padded * single, "{value}, width {width}");
        }
    }
}
