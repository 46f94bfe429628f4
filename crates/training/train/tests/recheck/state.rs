//! Bits that flip in weights and moments between two updates.

use std::cell::{Cell, RefCell};

use blame::CauseKind;
use config::Recheck;
use device::{Op, Stream, Tensor};
use mesh::{Coord, Rank};
use testkit::intercepted::intercept_ops;
use testkit::wrapped_engine::WrappedEngine;
use train::RankEngine;

use crate::recheck::{Draw, failure, flip, flips, four_ranks};

/// The tensors that the optimizer writes, by the order of its calls: in step 1 they are noted, and in step 2 one of
/// them has a bit flipped at an operation before the optimizer. Each operation is computed twice; the flip is before
/// the first of two computations, so that both read it.
fn flips_state(rank: RankEngine, which: usize, bit: usize, delay: usize) -> RankEngine {
    let (state, updates, since) = (RefCell::new(Vec::<Tensor>::new()), Cell::new(0), Cell::new(0));
    intercept_ops(rank, move |device, stream: Stream, op: &Op| {
        if let Op::AdamW { param, first_moment, second_moment, .. } = op {
            state
                .borrow_mut()
                .extend([*param, *first_moment, *second_moment].iter().filter(|tensor| !tensor.is_empty()));
            updates.set(updates.get() + 1);
            since.set(0);
        } else if updates.get() > 0 {
            since.set(since.get() + 1);
            if since.get() == delay {
                let state = state.borrow();
                flip(device, state[which % state.len()], bit)?;
            }
        }
        device.submit(stream, op)
    })
}

#[test]
fn every_flip_in_weights_and_moments_is_found_before_the_next_update() {
    let setup = four_ranks();
    let mut draw = Draw(11);
    for _ in 0..flips() {
        let (rank, which, bit, delay) = (draw.below(4), draw.below(1000), draw.below(1 << 20), 1 + 2 * draw.below(20));
        let wrap = |coord: Coord, engine: RankEngine| {
            if setup.mesh.rank(coord) == Rank(rank) { flips_state(engine, which, bit, delay) } else { engine }
        };
        let engine = WrappedEngine::new(&setup, &wrap);
        let failure = failure(&setup, &engine, Recheck::All);
        let place = format!("rank {rank}, tensor {which}, bit {bit}, operation {delay}: {failure}");
        assert_eq!((failure.rank, failure.kind, failure.step), (Rank(rank), CauseKind::Corruption, 2), "{place}");
        assert!(failure.cause.contains("changed since step 1 updated it: XXH3 "), "{place}");
        assert!(failure.cause.ends_with("read again, it is the same: memory keeps wrong bits"), "{place}");
    }
    println!("{} flips of weights and moments, all with their rank and step", flips());
}
