//! A seeded sample of the promise of equality; `cargo run --release -p surveys --bin equality` tries all of it.

use std::collections::BTreeSet;
use std::sync::Mutex;

use config::{Products, Tied};
use prove::MAX_RANKS;
use surveys::cases::{Case, Family, Form};
use surveys::survey::Order;
use surveys::{sample, survey};
use testkit::models::{Style, proof_text};

/// Another seed is another sample.
const SEED: u32 = 7;

/// Four families in which every two of style, heads, tying and microbatch size meet.
fn families() -> [Family; 4] {
    let family = |style, num_kv_heads, tied, microbatch_size| Family { style, num_kv_heads, tied, microbatch_size };
    [
        family(Style::Gpt2, 12, Tied::Yes, 1),
        family(Style::Gpt2, 4, Tied::No, 2),
        family(Style::Llama, 12, Tied::No, 2),
        family(Style::Llama, 4, Tied::Yes, 1),
    ]
}

/// `count` of `things`.
fn draw<T>(things: Vec<T>, count: usize, purpose: u32) -> Vec<T> {
    sample::draw(things, count, SEED, purpose)
}

/// Of each family a case of sixteen ranks.
fn layout_sample() -> Vec<Order> {
    let mut sample = Vec::new();
    for (index, family) in families().into_iter().enumerate() {
        let index = index as u32;
        let of_family = |case: &Case| case.family == family && case.divides();
        let orders = survey::orders(Case::all().into_iter().filter(of_family));
        let is_large = |case: &Case| case.degrees.world_size() == MAX_RANKS;
        let large: Vec<Order> =
            orders.into_iter().filter(|order| order.cases.len() > 2 && order.cases.iter().any(is_large)).collect();
        sample.extend(draw(large, 1, 3 * index).into_iter().map(|order| {
            let cases = order.cases.iter().filter(|case| is_large(case)).copied().collect();
            Order { cases: draw(cases, 1, 100 + 3 * index), ..order }
        }));
    }
    sample
}

/// Of each family one pair (dp, tp) with sequence parallelism, and a case of it.
fn sequence_parallel_sample() -> Vec<Order> {
    let of_family = |(index, family): (usize, Family)| {
        let index = index as u32;
        let legal = |case: &Case| case.family == family && case.divides();
        let orders = survey::orders(Case::all_sequence_parallel().into_iter().filter(legal));
        let order = draw(orders.into_iter().filter(|order| order.cases.len() >= 2).collect(), 1, 3 * index + 2);
        order.into_iter().map(move |order| Order { cases: draw(order.cases, 1, 200 + index), ..order })
    };
    families().into_iter().enumerate().flat_map(of_family).collect()
}

/// Of each form of sharding a case with at least four replicas and two stages.
fn sharded_sample() -> Vec<Order> {
    let of_form = |(index, form): (usize, Form)| {
        let is_suitable = |case: &Case| {
            let degrees = case.degrees;
            let is_of_form = case.manner.form == form && degrees.dp >= 4 && degrees.pp > 1;
            is_of_form && families().contains(&case.family) && case.divides()
        };
        draw(Case::all().into_iter().filter(is_suitable).collect(), 1, 300 + index as u32)
    };
    survey::orders(Form::all().into_iter().enumerate().flat_map(of_form))
}

/// One survey, so that each family has one oracle.
#[test]
fn layouts_sequence_parallelism_and_sharding_do_not_change_what_is_learned() {
    let sharded = sharded_sample();
    let forms: BTreeSet<Form> = sharded.iter().flat_map(|order| &order.cases).map(|case| case.manner.form).collect();
    assert_eq!(forms.len(), Form::all().len(), "forms of the sample: {forms:?}");
    assert_kept(&[layout_sample(), sequence_parallel_sample(), sharded].concat());
}

/// With exact sums replicas, accumulation, microbatches and the time of reduction have the bits of one rank, and of one
/// replica where ranks share matrices: a case of each.
fn exact_sample() -> Vec<Order> {
    let case = |tp: usize, style: Style| {
        let is_suitable = |case: &Case| {
            let has_tp = case.degrees.tp == tp && case.family.style == style;
            has_tp && case.degrees.dp > 1 && case.degrees.world_size() <= 4 && case.divides()
        };
        draw(Case::all_exact().into_iter().filter(is_suitable).collect(), 1, 400 + tp as u32)
    };
    survey::orders([case(1, Style::Gpt2), case(2, Style::Llama)].concat())
}

#[test]
fn exact_sums_have_the_bits_of_one_replica() {
    assert_kept(&exact_sample());
}

/// With products in AMX order a case of replicas and stages, and one of ranks that shard matrices.
fn sample_in_pairs() -> Vec<Order> {
    let case = |tp: usize, style: Style| {
        let is_suitable = |case: &Case| {
            let has_tp = case.degrees.tp == tp && case.family.style == style && case.degrees.pp > 1;
            has_tp && case.degrees.world_size() <= 4 && case.divides()
        };
        draw(Case::all_in_pairs().into_iter().filter(is_suitable).collect(), 1, 500 + tp as u32)
    };
    survey::orders([case(1, Style::Gpt2), case(2, Style::Llama)].concat())
}

#[test]
fn layouts_do_not_change_what_is_learned_with_products_in_pairs() {
    let orders = sample_in_pairs();
    assert!(orders.iter().all(|order| order.reference.products == Products::Pairs));
    assert_kept(&orders);
}

/// Every case of `orders` keeps the promise.
fn assert_kept(orders: &[Order]) {
    let said = Mutex::new(Vec::new());
    survey::survey(orders, 2, &|case, finding| {
        let (distances, faults) = match finding {
            Ok(verdict) => (format!("{:?}", verdict.distance), verdict.faults()),
            Err(error) => (String::new(), vec![error]),
        };
        said.lock().expect("unpoisoned").push((format!("{case}: {distances}"), faults));
    });
    let said = said.into_inner().expect("unpoisoned");
    assert_eq!(said.len(), orders.iter().map(|order| order.cases.len()).sum::<usize>(), "cases of the sample");
    for (line, faults) in &said {
        println!("{line}{}", faults.iter().map(|fault| format!("\n    {fault}")).collect::<String>());
    }
    let broken: Vec<&str> =
        said.iter().filter(|(_, faults)| !faults.is_empty()).map(|(line, _)| line.as_str()).collect();
    assert!(broken.is_empty(), "{} of {} cases break the promise", broken.len(), said.len());
}

#[test]
fn microbatch_sizes_do_not_change_what_is_learned() {
    for (family, finding) in survey::microbatch_sizes(&families(), Products::Chained) {
        let verdict = finding.expect("runs");
        assert_eq!(verdict.faults(), [""; 0], "{family} against 2: {:?}", verdict.distance);
    }
}

#[test]
fn the_first_loss_does_not_depend_on_how_sequences_are_grouped() {
    for family in families() {
        let first_loss = |dp: usize, microbatch_size: usize| {
            let mut layout = Case::oracle(Family { microbatch_size, ..family }).layout();
            layout.parallelism.degrees.dp = dp;
            layout.train.steps = 1;
            layout.outcome(&proof_text()).expect("runs").losses[0].to_bits()
        };
        let one = first_loss(1, 1);
        for (dp, microbatch_size) in [(1, 2), (1, 48), (4, 3), (16, 1)] {
            assert_eq!(first_loss(dp, microbatch_size), one, "{family}: dp {dp}, microbatches of {microbatch_size}");
        }
    }
}
