//! Ranks that communicate while they compute learn the same bits. The full count is
//! `cargo run --release -p surveys --bin interleavings -- --cells 1000`.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use config::ZeroStage;
use surveys::interleavings::{cells, compare, overlapped};
use testkit::models::proof_text;

#[test]
fn streams_in_any_order_learn_the_same_bits() {
    for (seed, cell) in cells(20, 1).iter().enumerate() {
        compare(cell, seed as u64).unwrap();
    }
}

#[test]
fn a_run_with_overlap_learns() {
    let cell = cells(400, 3).into_iter().find(|cell| matches!(cell.form.zero, ZeroStage::Three { .. })).unwrap();
    let outcome = overlapped(&cell.layout()).outcome(&proof_text()).unwrap();
    assert!(outcome.losses.last() < outcome.losses.first());
}
