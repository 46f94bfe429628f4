//! The memory of layouts on this machine: what ranks write in their arenas is what the plan says, and what is resident follows from it.
//!
//! Times on a machine that others use say nothing here.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use std::process::Command;

use cluster::{Cluster, named};
use plan::machine::{LAYOUTS, Measured, PlannedArena, predict, prepared, run_in_child, run_layout};
use program::{RankPlan, Sizes, plan_memory};

/// ZeRO-3, sequence parallelism and ZB-H1.
const SHARDED_AND_SPLIT: [usize; 3] = [6, 8, 11];

fn planned(index: usize) -> Vec<PlannedArena> {
    let cluster = Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap();
    predict(&cluster, LAYOUTS[index]).unwrap().arenas
}

#[test]
fn ranks_write_what_their_plan_has_places_for() {
    for index in 0..LAYOUTS.len() {
        let Measured { written_bytes, .. } = run_layout(LAYOUTS[index]).unwrap();
        let arenas = planned(index);
        println!("{} {written_bytes:?} {arenas:?}", LAYOUTS[index].0);
    }
}

#[test]
fn resident() {
    for index in 0..LAYOUTS.len() {
        let measured = run_in_child(&mut Command::new(env!("CARGO_BIN_EXE_accuracy")), index).unwrap();
        println!("{} {measured:?}", LAYOUTS[index].0);
    }
}
