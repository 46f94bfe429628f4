//! A seeded sample of layouts whose ranks divide experts, each with the bits of one replica: `PLEACH_CASES=300 cargo
//! test --release -p surveys --test suite spread_experts -- --nocapture` compares 300 and prints what was drawn.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use config::{Optimizer, ZeroStage};
use device::{ExpertOp, Op};
use prove::{Distance, Outcome, outcome_from};
use surveys::arena_use::Arenas;
use surveys::spread_experts::{SpreadLayout, draw, factors};
use testkit::initial_weights::initial_weights;
use testkit::intercepted::intercept_ops;
use testkit::layout::Layout;
use testkit::models::proof_text;
use testkit::wrapped_engine::WrappedEngine;

use crate::expert_pairs::OF_LAYOUTS;

const SEED: u32 = 11;

/// Runs `layout` in arenas of the planned sizes; whether an expert had no rows of a microbatch.
fn run(layout: &Layout) -> (Outcome, bool) {
    let setup = layout.setup().unwrap_or_else(|error| panic!("{error}: {layout:?}"));
    let (arenas, idle) = (Arenas::of(&setup), Arc::new(Mutex::new(false)));
    let engine = WrappedEngine::opened_by(Box::new(arenas.engine()), |inner, rank, size, numerics| {
        let idle = Arc::clone(&idle);
        Ok(intercept_ops(inner.open(rank, size, numerics)?, move |device, stream, op| {
            device.submit(stream, op)?;
            if let Op::Experts(ExpertOp::GroupRows { rows, .. }) = op {
                let mut bytes = vec![0; 4 * rows.offsets.len()];
                device.read(rows.offsets, &mut bytes)?;
                let offsets: Vec<i32> = bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
                let of_ranks = offsets.chunks(rows.offsets.cols);
                *idle.lock().expect("no panic") |=
                    of_ranks.into_iter().any(|offsets| offsets.windows(2).any(|pair| pair[0] == pair[1]));
            }
            Ok(())
        }))
    });
    let initial = initial_weights(layout, |_, _| {}).unwrap();
    let outcome = outcome_from(&setup, &engine, &proof_text(), Some(&initial))
        .unwrap_or_else(|error| panic!("{error}: {layout:?}"));
    // Muon's temporary memory is planned for the largest matrix, also on ranks that update no part of it.
    let is_exact = layout.train.optimizer == Optimizer::AdamW || layout.parallelism.zero == ZeroStage::Off;
    assert!(!is_exact || arenas.faults().is_empty(), "{:?}: {layout:?}", arenas.faults());
    let idle = *idle.lock().expect("no panic");
    (outcome, idle)
}

#[test]
fn drawn_layouts_have_the_bits_of_one_replica() {
    let cases = needs::cases!(8);
    let mut counts = BTreeMap::<String, u32>::new();
    for number in 0..cases {
        let drawn = draw(SEED, number);
        let SpreadLayout { one, many } = &drawn;
        let ((one, _), (outcome, idle)) = (run(one), run(many));
        assert!(Distance::between(&one, &outcome, |_| false).same_bits, "layout {number}: {many:?}");
        let idle = idle.then(|| "experts without rows".to_string());
        factors(&drawn).into_iter().chain(idle).for_each(|factor| *counts.entry(factor).or_default() += 1);
    }
    println!("{cases} layouts: {counts:?}");
}

#[test]
fn every_factor_is_drawn() {
    let found: BTreeSet<String> = (0..200).flat_map(|number| factors(&draw(SEED, number))).collect();
    let own = ["ep 2", "ep 4", "ep 8", "replicas of experts", "several rounds"];
    let expected = OF_LAYOUTS.into_iter().chain(own).map(String::from).collect();
    assert_eq!(found, expected);
}
