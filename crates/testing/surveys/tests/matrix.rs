//! Cells of the support matrix in which every two values of its factors meet;
//! `cargo run --release -p surveys -- matrix` tries all.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex};

use config::{ContextKind, Format};
use surveys::covering::three_wise;
use surveys::drawers::{matrix, matrix_of_other_shapes, matrix_of_shared_sequences};
use surveys::sample;
use surveys::space::{Point, Shape, Sharing, Task};
use surveys::survey::{Known, Memory, groups, survey};
use testkit::numbers::Numbers;
use train::UpdateOutcome;

/// Another seed is another sample.
const SEED: u32 = 3;

/// Oracles of all tests.
static KNOWN: LazyLock<Known> = LazyLock::new(Known::default);

/// Every two values of a row, with their columns.
fn pairs(row: &[String; 7]) -> impl Iterator<Item = [(usize, &String); 2]> {
    (0..7).flat_map(move |a| (a + 1..7).map(move |b| [a, b].map(|column| (column, &row[column]))))
}

/// The first of the cells in which every three values meet, as many as every two need: those that add most.
#[test]
fn every_two_factors_combine() {
    let cells = matrix();
    let rows: Vec<[String; 7]> = cells.iter().map(Point::values).collect();
    let all: BTreeSet<_> = rows.iter().flat_map(pairs).collect();
    let (mut met, mut chosen) = (BTreeSet::new(), Vec::new());
    for row in three_wise(&rows) {
        if met == all {
            break;
        }
        met.extend(pairs(&rows[row]));
        chosen.push(cells[row]);
    }
    assert!(met == all, "{} of {} pairs meet in {} cells", met.len(), all.len(), chosen.len());
    all_keep_their_promise(&chosen);
}

/// Products in the order of tensor cores, in bf16 and fp16, with single and exact sums: a cell of each with
/// each sharing.
#[test]
fn products_in_blocks_combine_with_every_form_and_sharing() {
    let cells = matrix();
    let mut chosen = Vec::new();
    for (index, numbers) in Numbers::IN_BLOCKS.into_iter().enumerate() {
        let alike: Vec<Point> = cells.iter().filter(|cell| cell.numbers == numbers.plain()).copied().collect();
        for (turn, sharing) in Sharing::ALL.into_iter().enumerate() {
            let of_sharing: Vec<Point> = alike.iter().filter(|cell| cell.sharing() == sharing).copied().collect();
            let drawn = sample::draw(of_sharing, 1, SEED, (10 * index + turn) as u32);
            chosen.extend(drawn.into_iter().map(|cell| Point { numbers, ..cell }));
        }
    }
    let forms: BTreeSet<String> = chosen.iter().map(|cell| cell.form.to_string()).collect();
    assert!(forms.len() > 4, "forms of the sample: {forms:?}");
    all_keep_their_promise(&chosen);
}

/// Parallel blocks whose sums are taken together, and a layer after the final norm: each order with each sharing in one
/// of the two shapes, and each order in both.
#[test]
fn other_shapes_combine_with_every_order_and_sharing() {
    let cells = matrix_of_other_shapes();
    let of_each = cells.len() / 2;
    let is_drawn = |index: usize| (index / of_each + index % of_each).is_multiple_of(2);
    let chosen: Vec<Point> = (0..cells.len()).filter(|index| is_drawn(*index)).map(|index| cells[index]).collect();
    let met = |cells: &[Point], columns: [usize; 2]| -> BTreeSet<[String; 2]> {
        cells.iter().map(|cell| columns.map(|column| cell.values()[column].clone())).collect()
    };
    let (order, sharing, shape) = (1, 2, 5);
    for columns in [[order, sharing], [order, shape], [sharing, shape]] {
        assert_eq!(met(&chosen, columns), met(&cells, columns));
    }
    all_keep_their_promise(&chosen);
}

/// Cells of each kind with each sharing.
const SHARED_OF_EACH: usize = 2;

#[test]
fn shared_sequences_combine_with_every_sharing() {
    let cells = matrix_of_shared_sequences();
    let mut chosen = Vec::new();
    for (index, kind) in ContextKind::ALL.into_iter().enumerate() {
        for (turn, sharing) in Sharing::ALL.into_iter().enumerate() {
            let is_of = |cell: &&Point| cell.sharing() == sharing && cell.context.kind == kind;
            let alike: Vec<Point> = cells.iter().filter(is_of).copied().collect();
            chosen.extend(sample::draw(alike, SHARED_OF_EACH, SEED, (100 + 10 * index + turn) as u32));
        }
    }
    assert_eq!(chosen.len(), SHARED_OF_EACH * Sharing::ALL.len() * ContextKind::ALL.len());
    all_keep_their_promise(&chosen);
}

fn all_keep_their_promise(chosen: &[Point]) {
    let (kept, broken) = (Mutex::new(0), Mutex::new(Vec::new()));
    let groups = groups(chosen.iter().copied());
    survey(&groups, Memory::Measured, 2, &KNOWN, &|cell, finding| match finding {
        Ok(row) if row.faults.is_empty() => *kept.lock().unwrap() += 1,
        Ok(row) => broken.lock().unwrap().push(format!("{cell}: {}", row.faults)),
        Err(error) => broken.lock().unwrap().push(error),
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{} of {} cells break the promise:\n{}", broken.len(), chosen.len(), broken.join("\n"));
    assert_eq!(kept.into_inner().unwrap(), chosen.len());
}

/// Runs that learn nothing, or skip nothing, prove little.
#[test]
fn oracles_learn_and_those_in_fp16_skip_steps() {
    let cells = matrix();
    for numbers in Numbers::ALL.into_iter().chain(Numbers::IN_BLOCKS) {
        for shape in [Shape::Gpt2, Shape::Llama] {
            let alike = |cell: &&Point| cell.numbers == numbers.plain() && cell.task == Task::Small(shape);
            let cell = Point { numbers, ..*cells.iter().find(alike).unwrap() };
            let oracle = KNOWN.outcome(&cell.oracle()).unwrap();
            println!("{}: {:?} {:?}", cell.oracle(), oracle.losses, oracle.scaling);
            assert!(oracle.losses.last() < oracle.losses.first(), "{numbers}: {:?}", oracle.losses);
            let updates: Vec<UpdateOutcome> = oracle.scaling.iter().flatten().map(|scaling| scaling.update).collect();
            match numbers.format {
                Format::Fp32 | Format::Bf16 => assert_eq!(updates, []),
                Format::Fp16 => {
                    assert_eq!(updates.first(), Some(&UpdateOutcome::Skipped), "{updates:?}");
                    assert!(updates.ends_with(&[UpdateOutcome::Updated; 2]), "{updates:?}");
                }
            }
        }
    }
}
