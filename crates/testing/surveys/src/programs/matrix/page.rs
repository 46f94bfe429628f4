//! The support matrix in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use config::{ContextKind, Products, context_kind_name};
use prove::{EqualityClass, LEAST_HEAD_DIM, LEAST_HIDDEN, Promised};
use surveys::results::Row;
use surveys::space::{Form, Point, Schedule, Shape, Sharing, recompute_name};
use testkit::numbers::Numbers;

/// The page, and every cell that is refused no reason for, has no result, or breaks the promise.
pub fn page((cells, sharing_sequences): (&[Point], &[Point]), rows: &BTreeMap<String, Row>) -> (String, Vec<String>) {
    let [shown, shared] =
        [cells, sharing_sequences].map(|cells| cells.iter().map(|cell| Shown::of(cell, rows)).collect::<Vec<Shown>>());
    let all = || shown.iter().chain(&shared);
    let faults: Vec<String> = all()
        .filter_map(|shown| match &shown.state {
            State::Kept(_) | State::Refused(_) => None,
            State::Broken(row) => Some(format!("{}: {}", shown.cell, row.faults)),
            State::Missing => Some(format!("{}: no result", shown.cell)),
        })
        .collect();
    let text = [
        introduction(&shown, &shared),
        matrix(&shown, Products::Chained, "The matrix, products chained"),
        matrix(&shown, Products::Pairs, "The matrix, products = \"pairs\""),
        matrix_of_shared(&shared),
        factors(),
        by_value(&all().collect::<Vec<_>>()),
        by_class(&all().collect::<Vec<_>>()),
        refusals(&all().collect::<Vec<_>>()),
    ]
    .join("\n");
    (text, faults)
}

/// A cell and what is known of it.
struct Shown<'a> {
    cell: &'a Point,
    state: State<'a>,
}

enum State<'a> {
    Kept(&'a Row),
    Broken(&'a Row),
    Refused(String),
    Missing,
}

impl<'a> Shown<'a> {
    fn of(cell: &'a Point, rows: &'a BTreeMap<String, Row>) -> Shown<'a> {
        let state = match (cell.refusals().first(), rows.get(&cell.to_string())) {
            (Some(problem), _) => State::Refused(format!("`{}` {}", problem.key, problem.rule)),
            (None, Some(row)) if row.faults.is_empty() => State::Kept(row),
            (None, Some(row)) => State::Broken(row),
            (None, None) => State::Missing,
        };
        Shown { cell, state }
    }

    fn row(&self) -> Option<&'a Row> {
        match self.state {
            State::Kept(row) | State::Broken(row) => Some(row),
            State::Refused(_) | State::Missing => None,
        }
    }
}

fn count(shown: &[Shown], is_counted: impl Fn(&Shown) -> bool) -> usize {
    shown.iter().filter(|shown| is_counted(shown)).count()
}

fn introduction(shown: &[Shown], shared: &[Shown]) -> String {
    let kept = count(shown, |shown| matches!(shown.state, State::Kept(_)));
    let refused = count(shown, |shown| matches!(shown.state, State::Refused(_)));
    let kept_shared = count(shared, |shown| matches!(shown.state, State::Kept(_)));
    let refused_shared = count(shared, |shown| matches!(shown.state, State::Refused(_)));
    let tied = count(shown, |shown| shown.cell.layout().model.tied_embeddings);
    let model = Shape::Gpt2.model();
    let ranks = shown.iter().map(|shown| shown.cell.degrees.world_size());
    let (least, most) = ranks.fold((usize::MAX, 0), |(least, most), ranks| (least.min(ranks), most.max(ranks)));
    format!(
        "# Support matrix\n\n\
         Every ZeRO form with every schedule, every way to share matrices, every recomputation, all numbers and both\n\
         orders of products (fp16 has the chained one only): {} cells, each a run of {least} to {most} ranks.\n\
         {kept} keep their promise, {refused} are refused. This page is written by\n\n\
         ```text\ncargo run --release -p surveys -- matrix --write docs/support-matrix.md\n```\n\n\
         A cell keeps its promise if\n\n\
         - losses, norms, first gradients and last weights have the bits of its reference: the same dp, tp, sequence\n  \
         parallelism, precision and order of products on one stage with GPipe, without recomputation and without ZeRO\n  \
         (with ZeRO where gradients are summed per microbatch or in groups). Where sums are exact, the reference is one\n  \
         replica in microbatches of two sequences, for every dp, ZeRO form and time of reduction;\n\
         - they are within the bounds of [numerics.md](numerics.md) for its precision from those of one rank, with which\n  \
         every cell of a precision and an order of products is compared. In fp16 both skip the same steps (the first\n  \
         overflows, the last does not) and have the same factors;\n\
         - the arena of every rank has the planned bytes, all of them are used, and no result depends on their earlier\n  \
         contents: they are filled with NaN at the start, and so is the place of each value after its last use.\n\n\
         dp (2 to 4), pp (2 to 4) and whether the token table is tied ({tied} of the cells) are drawn per cell. The\n\
         model has six layers and is {} wide, with heads of {} dims ([bounds hold](numerics.md#widths) from\n\
         {LEAST_HIDDEN} and {LEAST_HEAD_DIM} on); a run has four steps of 24 sequences. [equality.md](equality.md) has\n\
         larger runs of every degree.\n\n\
         {} more cells share sequences between two ranks (`parallelism.cp = 2`): every ZeRO form with every schedule,\n\
         every way to share matrices and every kind of `parallelism.cp_kind`; recomputation, numbers, degrees and the\n\
         model are drawn. {kept_shared} keep their promise, {refused_shared} are refused. The reference has the same cp\n\
         and kind; the oracle is one rank with whole sequences.\n\n\
         Models with experts are not cells: `cargo run --release -p surveys -- expert-pairs` compares random pairs of\n\
         their layouts, under the same forms, schedules, sharings and recomputation.\n",
        shown.len(),
        model.hidden,
        model.head_dim,
        shared.len(),
    )
}

/// The cells with one order of products.
fn matrix(shown: &[Shown], products: Products, title: &str) -> String {
    let numbers = || Numbers::ALL.into_iter().filter(|numbers| numbers.products == products);
    let columns: Vec<(Sharing, Numbers)> =
        Sharing::ALL.into_iter().flat_map(|sharing| numbers().map(move |numbers| (sharing, numbers))).collect();
    let mut text = format!(
        "## {title}\n\nEach place counts the forms of recomputation that keep the promise.\n\n\
         | ZeRO form | schedule |"
    );
    for (sharing, numbers) in &columns {
        let _ = write!(text, " {sharing}, {numbers} |");
    }
    let _ = write!(text, "\n|---|---|{}", "---|".repeat(columns.len()));
    for form in Form::OF_MATRIX {
        for schedule in Schedule::all() {
            let _ = write!(text, "\n| {form} | {schedule} |");
            for (sharing, numbers) in &columns {
                let of = |cell: &Point| {
                    cell.form == form
                        && cell.schedule == schedule
                        && cell.sharing() == *sharing
                        && cell.numbers == *numbers
                };
                let here: Vec<&Shown> = shown.iter().filter(|shown| of(shown.cell)).collect();
                let _ = write!(text, " {} |", place(&here));
            }
        }
    }
    text.push('\n');
    text
}

/// The cells whose sequences two ranks share.
fn matrix_of_shared(shown: &[Shown]) -> String {
    let columns: Vec<(Sharing, ContextKind)> =
        Sharing::ALL.into_iter().flat_map(|sharing| ContextKind::ALL.map(|kind| (sharing, kind))).collect();
    let mut text = "## Shared sequences\n\nOne cell in each place.\n\n| ZeRO form | schedule |".to_string();
    for (sharing, kind) in &columns {
        let _ = write!(text, " {sharing}, {} |", context_kind_name(*kind));
    }
    let _ = write!(text, "\n|---|---|{}", "---|".repeat(columns.len()));
    for form in Form::OF_MATRIX {
        for schedule in Schedule::all() {
            let _ = write!(text, "\n| {form} | {schedule} |");
            for (sharing, kind) in &columns {
                let of = |cell: &Point| {
                    let is_of_kind = cell.context.kind == *kind;
                    cell.form == form && cell.schedule == schedule && cell.sharing() == *sharing && is_of_kind
                };
                let here: Vec<&Shown> = shown.iter().filter(|shown| of(shown.cell)).collect();
                let _ = write!(text, " {} |", place(&here));
            }
        }
    }
    text.push('\n');
    text
}

/// `✓ 4`, followed by the cells that do not keep the promise.
fn place(here: &[&Shown]) -> String {
    let (mut kept, mut broken, mut missing, mut refused) = (0, 0, 0, Vec::new());
    for shown in here {
        match &shown.state {
            State::Kept(_) => kept += 1,
            State::Broken(_) => broken += 1,
            State::Missing => missing += 1,
            State::Refused(reason) => refused.push(reason.clone()),
        }
    }
    let some = |count: usize, word: &str| (count > 0).then(|| format!("{word} {count}"));
    refused.dedup();
    [some(kept, "✓"), some(broken, "broken"), some(missing, "no result")]
        .into_iter()
        .flatten()
        .chain(refused)
        .collect::<Vec<_>>()
        .join(", ")
}

fn factors() -> String {
    let mut text = "## The factors\n\n\
                    | sharing | recomputation |\n|---|---|\n"
        .to_string();
    for sharing in Sharing::ALL {
        let recomputes: Vec<String> = sharing.recomputes().into_iter().map(recompute_name).collect();
        let _ = writeln!(text, "| {sharing} | {} |", recomputes.join("; "));
    }
    text.push_str(
        "\nA rank that is alone has no peer to shard inputs over, and ranks that shard tokens have no whole inputs; those\n\
         are not cells. *Ahead 1*: the gather of a unit's parameters comes one use earlier in the order of instructions;\n\
         these ranks run without `parallelism.overlap`. *Kept*: gathered parameters live from the forward pass to the\n\
         backward pass. *In groups*: four replicas are two sharding groups. *A given file*: two neighbouring stages on\n\
         each rank, all forwards first, gradients of weights last.\n",
    );
    text
}

/// How many cells have each value of each factor, and how many of those keep the promise.
fn by_value(shown: &[&Shown]) -> String {
    const FACTORS: [&str; 7] =
        ["ZeRO form", "schedule", "sharing", "recomputation", "numbers and products", "shape", "sequences"];
    let mut text = "## By value\n\n| factor | value | cells | kept |\n|---|---|---|---|\n".to_string();
    for (factor, name) in FACTORS.into_iter().enumerate() {
        let mut values: Vec<(String, usize, usize)> = Vec::new();
        for shown in shown {
            let value = shown.cell.values()[factor].clone();
            let kept = usize::from(matches!(shown.state, State::Kept(_)));
            match values.iter_mut().find(|(known, ..)| *known == value) {
                Some((_, cells, all_kept)) => (*cells, *all_kept) = (*cells + 1, *all_kept + kept),
                None => values.push((value, 1, kept)),
            }
        }
        for (value, cells, kept) in values {
            let _ = writeln!(text, "| {name} | {value} | {cells} | {kept} |");
        }
    }
    text
}

fn by_class(shown: &[&Shown]) -> String {
    let mut text = "## Distances from one rank\n\n\
                    *Same bits* counts cells with the bits of their reference. Each distance is the largest of any tensor.\n\
                    The last column is the largest share that a distance is of its own bound, which\n\
                    [numerics.md](numerics.md#the-bounds) derives for each kind of parameters, model and precision.\n\n\
                    | class | precision | cells | same bits | first gradient | loss | last weights | nearest to its bound |\n\
                    |---|---|---|---|---|---|---|---|\n"
        .to_string();
    for (of, name) in [
        (EqualityClass::AnyOrder, "any order: dp, microbatch size"),
        (EqualityClass::OtherOrder, "other order: dp"),
        (EqualityClass::OtherSums, "other sums: tp or cp as well"),
    ] {
        for numbers in Numbers::ALL {
            let is_of = |shown: &&Shown| shown.cell.class() == of && shown.cell.numbers == numbers;
            let rows: Vec<&Row> = shown.iter().copied().filter(is_of).filter_map(Shown::row).collect();
            if rows.is_empty() {
                continue;
            }
            let same_bits = rows.iter().filter(|row| row.same_bits).count();
            let largest = |part: fn(&Row) -> f64| rows.iter().map(|row| part(row)).fold(0.0, f64::max);
            let nearest = match of.promises() {
                Promised::Bits => "same bits".to_string(),
                Promised::Bounds => format!("{:.0} %", 100.0 * largest(|row| row.nearest)),
                Promised::Nothing => "none".to_string(),
            };
            let _ = writeln!(
                text,
                "| {name} | {} | {} | {same_bits} | {:.1e} | {:.1e} | {:.1e} | {nearest} |",
                numbers,
                rows.len(),
                largest(|row| row.gradient),
                largest(|row| row.loss),
                largest(|row| row.weight),
            );
        }
    }
    text
}

fn refusals(shown: &[&Shown]) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for shown in shown {
        if let State::Refused(reason) = &shown.state {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let mut text = "## Refused\n\n".to_string();
    if reasons.is_empty() {
        text.push_str(
            "No cell. Degrees are drawn from those that divide what they split. Other degrees are refused before anything\n\
             starts, as [equality.md](equality.md) lists. So are interleaved stages whose microbatches are not a multiple of\n\
             pp: a group of pp microbatches passes each stage in turn.\n",
        );
        return text;
    }
    text.push_str("| rule | cells |\n|---|---|\n");
    for (reason, count) in reasons {
        let _ = writeln!(text, "| {reason} | {count} |");
    }
    text
}
