//! How many cases have each value of each factor, so that a reader sees that each occurs.

use std::fmt::Write as _;

use config::{GradientSums, Products, SequenceParallel, Tied};
use surveys::space::{Point, ShardGroups, Task, recompute_name};

/// A value of a factor in one case.
struct Value {
    factor: &'static str,
    name: String,
    /// Whether the ranks of the case do something else than without it.
    acts: bool,
}

/// A value and its counts.
struct Counts {
    value: Value,
    cases: usize,
    acting: usize,
    in_pairs: usize,
    exact: usize,
}

/// The table of all values that `cases` have.
pub fn by_value(cases: &[&Point]) -> String {
    let mut counted: Vec<Counts> = Vec::new();
    for case in cases {
        for value in values(case) {
            let is_same = |known: &Counts| (known.value.factor, &known.value.name) == (value.factor, &value.name);
            let place = counted.iter().position(is_same).unwrap_or_else(|| {
                counted.push(Counts {
                    value: Value { name: value.name.clone(), ..value },
                    cases: 0,
                    acting: 0,
                    in_pairs: 0,
                    exact: 0,
                });
                counted.len() - 1
            });
            let counts = &mut counted[place];
            counts.cases += 1;
            counts.acting += usize::from(value.acts);
            counts.in_pairs += usize::from(case.numbers.products == Products::Pairs);
            counts.exact += usize::from(case.numbers.sums == GradientSums::Exact);
        }
    }
    counted.sort_by_key(|counts| counts.value.factor);
    let mut text = "## By value\n\n\
                    The cases of all tables that have a value of a factor. *Acting*: with dp > 1 for ZeRO, with several\n\
                    groups of several replicas for groups, with pp > 1 for a schedule.\n\n\
                    | factor | value | cases | acting | pairs | exact sums |\n|---|---|---|---|---|---|\n"
        .to_string();
    for Counts { value: Value { factor, name, .. }, cases, acting, in_pairs, exact } in counted {
        let _ = writeln!(text, "| {factor} | {name} | {cases} | {acting} | {in_pairs} | {exact} |");
    }
    text
}

fn values(case: &Point) -> Vec<Value> {
    let (dp, pp, group) = (case.degrees.dp, case.degrees.pp, case.layout().parallelism.shard_group());
    let shards = match case.form.shard_groups {
        ShardGroups::One => dp > 1,
        ShardGroups::Several => 1 < group && group < dp,
    };
    let value = |factor, name: &str, acts| Value { factor, name: name.to_string(), acts };
    let (style, tied) = match case.task {
        Task::Proof { style, tied, .. } => (style.to_string(), tied_name(tied)),
        Task::Small(_) | Task::Long { .. } => (case.task.to_string(), "of the model"),
    };
    vec![
        value("ZeRO form", &case.form.to_string(), shards),
        value("schedule", &case.schedule.to_string(), pp > 1),
        value("recomputation", &recompute_name(case.recompute), true),
        value("products", products_name(case.numbers.products), true),
        value("sums", sums_name(case.numbers.sums), true),
        value("sequence parallelism", sequence_parallel_name(case.sequence_parallel), true),
        value("style", &style, true),
        value("token table", tied, true),
    ]
}

fn products_name(products: Products) -> &'static str {
    match products {
        Products::Chained => "chained",
        Products::Pairs => "pairs",
        Products::Blocks16 => "in blocks of 16",
        Products::Blocks8 => "in blocks of 8",
        Products::Device => "of the device",
    }
}

fn sums_name(sums: GradientSums) -> &'static str {
    match sums {
        GradientSums::Single => "single precision",
        GradientSums::Exact => "exact",
    }
}

fn sequence_parallel_name(sequence_parallel: SequenceParallel) -> &'static str {
    match sequence_parallel {
        SequenceParallel::Off => "off",
        SequenceParallel::On => "on",
    }
}

fn tied_name(tied: Tied) -> &'static str {
    match tied {
        Tied::Yes => "tied",
        Tied::No => "untied",
    }
}
