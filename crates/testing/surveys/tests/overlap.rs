//! Ranks that communicate while they compute learn the same bits. The full count is
//! `cargo run --release -p surveys -- interleavings --cells 1000`.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use config::{ContextKind, ZeroStage};
use surveys::drawers::matrix_of_shared_sequences;
use surveys::interleavings::{cells, compare, overlapped};
use surveys::sample::draw;
use surveys::space::Point;
use testkit::models::proof_text;

#[test]
fn streams_in_any_order_learn_the_same_bits() {
    for (seed, cell) in cells(10, 1).iter().enumerate() {
        compare(cell, seed as u64).unwrap();
    }
}

/// Blocks that are passed around during attention.
#[test]
fn rings_in_any_order_learn_the_same_bits() {
    let is_ring = |cell: &Point| cell.context.kind == ContextKind::Ring;
    let rings: Vec<Point> = matrix_of_shared_sequences().into_iter().filter(is_ring).collect();
    for (seed, cell) in draw(rings, 4, 1, 2).iter().enumerate() {
        compare(cell, seed as u64).unwrap();
    }
}

#[test]
fn a_run_with_overlap_learns() {
    let cell = cells(400, 3).into_iter().find(|cell| matches!(cell.form.zero, ZeroStage::Three { .. })).unwrap();
    let outcome = overlapped(&cell.layout()).outcome(&proof_text()).unwrap();
    assert!(outcome.losses.last() < outcome.losses.first());
}
