//! Every schedule has the bits of one rank; a file that leaves the order of microbatches has not, and says so.

#![allow(clippy::unwrap_used)]

use config::{GivenSchedule, Parallelism, ScheduleKind, ScheduleSpec, TrainSpec};
use prove::{Distance, EqualityClass, Outcome};
use surveys::space::Schedule;
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};

const NUM_MICROBATCHES: usize = 12;

fn given(text: String) -> ScheduleSpec {
    ScheduleSpec::Given(GivenSchedule { path: "by hand".into(), text })
}

fn layout(style: Style, pp: usize, schedule: ScheduleSpec) -> Layout {
    // Llama's table is not tied here, GPT-2's is: on ZB-V's first rank both of its uses come together.
    let model = proof_model(style, 4, style == Style::Gpt2);
    let train = TrainSpec { steps: 3, global_batch: NUM_MICROBATCHES, ..proof_training() };
    Layout { model, parallelism: Parallelism { schedule, ..plain_layout(1, 1, pp, 1) }, train }
}

fn outcome(layout: &Layout) -> Outcome {
    layout.outcome(&proof_text()).unwrap()
}

fn same_bits(a: &Outcome, b: &Outcome) -> bool {
    Distance::between(a, b, |_| false).same_bits
}

#[test]
fn every_schedule_has_the_bits_of_one_rank() {
    for style in [Style::Gpt2, Style::Llama] {
        let alone = layout(style, 1, ScheduleKind::GPipe.into());
        let oracle = outcome(&alone);
        for pp in [1, 3, 4] {
            let three = ScheduleKind::Interleaved { stages_per_rank: 3 };
            let generated = Schedule::GENERATED.into_iter().chain([three]);
            for schedule in generated.map(ScheduleSpec::from) {
                let layout = layout(style, pp, schedule.clone());
                assert_eq!(EqualityClass::of(&alone.parallelism, &layout.parallelism), EqualityClass::SameOrder);
                assert!(same_bits(&oracle, &outcome(&layout)), "{style}, {pp} ranks, {schedule:?}");
            }
        }
    }
}

/// The embedding and the head may each have a stage of their own, where they cost as much as layers.
#[test]
fn ends_without_a_layer_have_the_bits_of_one_rank() {
    let oracle = outcome(&layout(Style::Gpt2, 1, ScheduleKind::GPipe.into()));
    for schedule in [ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward, ScheduleKind::ZeroBubbleH1] {
        let mut layout = layout(Style::Gpt2, 3, schedule.into());
        layout.parallelism.stage_layers = Some(vec![0, layout.model.num_layers, 0]);
        assert!(same_bits(&oracle, &outcome(&layout)), "{schedule:?}");
    }
}

/// A file for one rank with all forwards, then all backwards of the inputs, then those of the weights in the given
/// order.
fn written(weights: impl Iterator<Item = usize>) -> ScheduleSpec {
    let cells = |kind: char| (0..NUM_MICROBATCHES).map(move |number| format!("0{kind}{number}"));
    let weights = weights.map(|number| format!("0W{number}"));
    given(cells('F').chain(cells('I')).chain(weights).collect::<Vec<_>>().join(" "))
}

#[test]
fn a_file_in_order_has_the_same_bits_and_one_out_of_order_says_that_it_has_not() {
    let alone = layout(Style::Gpt2, 1, ScheduleKind::GPipe.into());
    let in_order = layout(Style::Gpt2, 1, written(0..NUM_MICROBATCHES));
    let out_of_order = layout(Style::Gpt2, 1, written((0..NUM_MICROBATCHES).rev()));
    let class = |layout: &Layout| EqualityClass::of(&alone.parallelism, &layout.parallelism);
    assert_eq!([class(&in_order), class(&out_of_order)], [EqualityClass::SameOrder, EqualityClass::OtherOrder]);
    let again = EqualityClass::of(&out_of_order.parallelism, &out_of_order.parallelism);
    assert_eq!(again, EqualityClass::SameOrder, "the same file adds in the same order");
    let oracle = outcome(&alone);
    assert!(same_bits(&oracle, &outcome(&in_order)));
    let other = outcome(&out_of_order);
    assert!(!same_bits(&oracle, &other), "sums in another order that have the same bits prove nothing");
    let distance = Distance::between(&oracle, &other, |name| prove::is_noise(&alone.model, name));
    let promise = prove::Promise::of(class(&out_of_order), &alone.model, &alone.train, alone.train.steps);
    assert_eq!(promise.faults([&oracle, &other], &distance), [""; 0]);
}
