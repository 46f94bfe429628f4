//! A seeded sample of the promise of equality; `cargo run --release -p surveys -- equality` tries all of it.

use std::collections::BTreeSet;
use std::sync::Mutex;

use config::{Products, Tied};
use prove::MAX_RANKS;
use surveys::drawers::{equality, equality_exact, equality_in_pairs, equality_sequence_parallel, family};
use surveys::sample;
use surveys::space::{Form, Point, Task};
use surveys::survey::{Group, Known, Memory, groups, microbatch_sizes, survey};
use testkit::models::{Style, proof_text, proof_training};

/// Another seed is another sample.
const SEED: u32 = 7;

/// Sequences of a step of cases on few ranks; those on many ranks have 48.
const SEQUENCES: usize = 24;

fn with_fewer_sequences(point: Point) -> Point {
    point.shortened(proof_training().steps, SEQUENCES)
}

/// Four families in which every two of style, heads, tying and microbatch size meet.
fn families() -> [Point; 4] {
    [
        family(Style::Gpt2, 12, Tied::Yes, 1),
        family(Style::Gpt2, 4, Tied::No, 2),
        family(Style::Llama, 12, Tied::No, 2),
        family(Style::Llama, 4, Tied::Yes, 1),
    ]
}

/// Whether the model has this style.
fn is_of(case: &Point, style: Style) -> bool {
    matches!(case.task, Task::Proof { style: of, .. } if of == style)
}

/// `count` of `things`.
fn draw<T>(things: Vec<T>, count: usize, purpose: u32) -> Vec<T> {
    sample::draw(things, count, SEED, purpose)
}

/// Of each family a case of sixteen ranks.
fn layout_sample() -> Vec<Group> {
    let mut sample = Vec::new();
    for (index, family) in families().into_iter().enumerate() {
        let index = index as u32;
        let of_family = |case: &Point| case.is_of(&family) && case.is_legal();
        let orders = groups(equality().into_iter().filter(of_family));
        let is_large = |case: &Point| case.degrees.world_size() == MAX_RANKS;
        let large: Vec<Group> =
            orders.into_iter().filter(|order| order.points.len() > 2 && order.points.iter().any(is_large)).collect();
        sample.extend(draw(large, 1, 3 * index).into_iter().map(|order| {
            let cases = order.points.iter().filter(|case| is_large(case)).copied().collect();
            Group { points: draw(cases, 1, 100 + 3 * index), ..order }
        }));
    }
    sample
}

/// Of each family one pair (dp, tp) with sequence parallelism, and a case of it.
fn sequence_parallel_sample() -> Vec<Group> {
    let of_family = |(index, family): (usize, Point)| {
        let index = index as u32;
        let legal = |case: &Point| case.is_of(&family) && case.is_legal();
        let orders = groups(equality_sequence_parallel().into_iter().filter(legal));
        let order = draw(orders.into_iter().filter(|order| order.points.len() >= 2).collect(), 1, 3 * index + 2);
        order.into_iter().map(move |order| Group { points: draw(order.points, 1, 200 + index), ..order })
    };
    families().into_iter().enumerate().flat_map(of_family).collect()
}

/// Of each form of sharding a case with at least four replicas and two stages.
fn sharded_sample() -> Vec<Group> {
    let of_form = |(index, form): (usize, Form)| {
        let is_suitable = |case: &Point| {
            let degrees = case.degrees;
            let is_of_form = case.form == form && degrees.dp >= 4 && degrees.pp > 1;
            is_of_form && families().iter().any(|family| case.is_of(family)) && case.is_legal()
        };
        draw(equality().into_iter().filter(is_suitable).collect(), 1, 300 + index as u32)
    };
    groups(Form::ALL.into_iter().enumerate().flat_map(of_form))
}

/// One survey, so that each family has one oracle.
#[test]
fn layouts_sequence_parallelism_and_sharding_do_not_change_what_is_learned() {
    let sharded = sharded_sample();
    let forms: BTreeSet<Form> = sharded.iter().flat_map(|order| &order.points).map(|case| case.form).collect();
    assert_eq!(forms.len(), Form::ALL.len(), "forms of the sample: {forms:?}");
    assert_kept(&[layout_sample(), sequence_parallel_sample(), sharded].concat());
}

/// With exact sums replicas, accumulation, microbatches and the time of reduction have the bits of one rank, and of one
/// replica where ranks share matrices: a case of each.
fn exact_sample() -> Vec<Group> {
    let case = |tp: usize, style: Style| {
        let is_suitable = |case: &Point| {
            let has_tp = case.degrees.tp == tp && is_of(case, style);
            has_tp && case.degrees.dp > 1 && case.degrees.world_size() <= 4 && case.is_legal()
        };
        draw(equality_exact().into_iter().map(with_fewer_sequences).filter(is_suitable).collect(), 1, 400 + tp as u32)
    };
    groups([case(1, Style::Gpt2), case(2, Style::Llama)].concat())
}

#[test]
fn exact_sums_have_the_bits_of_one_replica() {
    assert_kept(&exact_sample());
}

/// With products in AMX order a case of replicas and stages, and one of ranks that shard matrices.
fn sample_in_pairs() -> Vec<Group> {
    let case = |tp: usize, style: Style| {
        let is_suitable = |case: &Point| {
            let has_tp = case.degrees.tp == tp && is_of(case, style) && case.degrees.pp > 1;
            has_tp && case.degrees.world_size() <= 4 && case.is_legal()
        };
        draw(
            equality_in_pairs().into_iter().map(with_fewer_sequences).filter(is_suitable).collect(),
            1,
            500 + tp as u32,
        )
    };
    groups([case(1, Style::Gpt2), case(2, Style::Llama)].concat())
}

#[test]
fn layouts_do_not_change_what_is_learned_with_products_in_pairs() {
    let orders = sample_in_pairs();
    assert!(orders.iter().all(|order| order.reference.numbers.products == Products::Pairs));
    assert_kept(&orders);
}

/// Every case of `orders` keeps the promise.
fn assert_kept(orders: &[Group]) {
    let said = Mutex::new(Vec::new());
    survey(orders, Memory::Plain, 2, &Known::default(), &|case, finding| {
        let (row, faults) = match finding {
            Ok(row) => (format!("{row:?}"), row.faults),
            Err(error) => (String::new(), error),
        };
        said.lock().expect("unpoisoned").push((format!("{case}: {row}"), faults));
    });
    let said = said.into_inner().expect("unpoisoned");
    assert_eq!(said.len(), orders.iter().map(|order| order.points.len()).sum::<usize>(), "cases of the sample");
    for (line, faults) in &said {
        println!("{line}\n    {faults}");
    }
    let broken: Vec<&str> =
        said.iter().filter(|(_, faults)| !faults.is_empty()).map(|(line, _)| line.as_str()).collect();
    assert!(broken.is_empty(), "{} of {} cases break the promise", broken.len(), said.len());
}

#[test]
fn microbatch_sizes_do_not_change_what_is_learned() {
    let families = families().map(with_fewer_sequences);
    for (family, finding) in microbatch_sizes(&families, Products::Chained) {
        let row = finding.expect("runs");
        assert_eq!(row.faults, "", "{} against 2: {row:?}", family.family());
    }
}

#[test]
fn the_first_loss_does_not_depend_on_how_sequences_are_grouped() {
    for family in families() {
        let first_loss = |dp: usize, microbatch_size: usize| {
            let mut layout = Point { microbatch_size, ..family }.layout();
            layout.parallelism.degrees.dp = dp;
            layout.train.steps = 1;
            layout.outcome(&proof_text()).expect("runs").losses[0].to_bits()
        };
        let one = first_loss(1, 1);
        for (dp, microbatch_size) in [(1, 2), (1, 48), (4, 3), (16, 1)] {
            assert_eq!(
                first_loss(dp, microbatch_size),
                one,
                "{}: dp {dp}, microbatches of {microbatch_size}",
                family.family()
            );
        }
    }
}
