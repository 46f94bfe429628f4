//! Cells of the support matrix in which every three values of its factors meet; `cargo run --release -p surveys --bin matrix` tries all.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use config::Format;
use surveys::matrix::covering::three_wise;
use surveys::matrix::proof::{Known, prove_all};
use surveys::matrix::{Cell, Shape};
use testkit::numbers::Numbers;
use train::StepFate;

#[test]
fn every_three_factors_combine() {
    let cells = Cell::all();
    let rows: Vec<[String; 6]> = cells.iter().map(Cell::values).collect();
    all_keep_their_promise(&three_wise(&rows).into_iter().map(|row| cells[row]).collect::<Vec<Cell>>());
}

/// Parallel blocks whose sums are taken together, and a layer behind the final norm.
#[test]
fn other_shapes_combine_with_every_order_and_sharing() {
    all_keep_their_promise(&Cell::of_other_shapes());
}

fn all_keep_their_promise(chosen: &[Cell]) {
    let (kept, broken) = (Mutex::new(0), Mutex::new(Vec::new()));
    prove_all(chosen, 2, &|cell, finding| match finding {
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
    let (known, cells) = (Known::default(), Cell::all());
    for numbers in Numbers::ALL {
        for shape in [Shape::Gpt2, Shape::Llama] {
            let cell = cells.iter().find(|cell| cell.numbers == numbers && cell.shape == shape).unwrap();
            let oracle = known.outcome(&cell.oracle()).unwrap();
            println!("{}: {:?} {:?}", cell.oracle(), oracle.losses, oracle.scaling);
            assert!(oracle.losses.last() < oracle.losses.first(), "{numbers}: {:?}", oracle.losses);
            let fates: Vec<StepFate> = oracle.scaling.iter().flatten().map(|scaling| scaling.fate).collect();
            match numbers.format {
                Format::Fp32 | Format::Bf16 => assert_eq!(fates, []),
                Format::Fp16 => {
                    assert_eq!(fates.first(), Some(&StepFate::Skipped), "{fates:?}");
                    assert!(fates.ends_with(&[StepFate::Updated; 2]), "{fates:?}");
                }
            }
        }
    }
}
