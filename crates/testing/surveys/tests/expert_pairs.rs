//! A seeded sample of random pairs of layouts with experts; `cargo run --release -p surveys -- expert-pairs` runs all
//! of them.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::{BTreeMap, BTreeSet};

use prove::{EqualityClass, Promised, narrow, without_bounds};
use surveys::expert_pairs::{Count, ExpertPair, compare, draw, factors};

/// Another seed is another sample.
const SEED: u32 = 7;
/// The factors of layouts that are drawn, whether ranks divide experts or not.
pub const OF_LAYOUTS: [&str; 38] = [
    "Muon",
    "ZeRO-1",
    "ZeRO-2",
    "ZeRO-3",
    "balance loss of sequences",
    "balance loss of steps",
    "bf16",
    "biases of routers and experts",
    "capacity",
    "clamped gates",
    "core recomputed",
    "cp by gather",
    "cp by heads",
    "cp by ring",
    "dense first layer",
    "dense layers between",
    "dp",
    "exact sums",
    "fp16",
    "fp32",
    "groups of experts",
    "interleaved",
    "layers recomputed",
    "moving average",
    "offload of activations",
    "offload of both",
    "offload of the optimizer",
    "overlap",
    "pp",
    "sequence parallelism",
    "sharding groups",
    "shared expert",
    "shared expert with a gate",
    "top query",
    "tp",
    "update of corrections",
    "z-loss of routers",
    "zero bubble",
];
/// The pairs of `docs/experts.md`.
const PAIRS: u32 = 1200;
const PAGE_SEED: u32 = 32;

fn pairs_of(class: EqualityClass) -> impl Iterator<Item = ExpertPair> {
    (0..).map(|number| draw(SEED, number)).filter(move |pair| pair.class() == class)
}

#[test]
fn pairs_of_every_class_keep_their_promise() {
    let classes =
        [EqualityClass::SameOrder, EqualityClass::AnyOrder, EqualityClass::OtherOrder, EqualityClass::OtherSums];
    for class in classes {
        let compared: Vec<_> = pairs_of(class).take(3).map(|pair| compare(&pair).unwrap()).collect();
        let count = Count::of(compared.iter());
        let promised = match class.promises() {
            Promised::Bits => count.same_bits,
            Promised::Bounds => count.within + count.chosen_otherwise,
            Promised::Nothing => 0,
        };
        assert_eq!((promised, count.broken), (3, 0), "{class}: {compared:?}");
    }
}

/// A pair whose second run has other initial weights is neither within bounds nor of the same bits, and not because
/// choices nearly tie.
#[test]
fn another_run_keeps_no_promise() {
    for class in [EqualityClass::SameOrder, EqualityClass::OtherSums] {
        let mut pair = pairs_of(class).next().unwrap();
        pair.layouts[1].train.seed += 1;
        let compared = compare(&pair).unwrap();
        assert!(!compared.fault.is_empty(), "{class}: {compared:?}");
    }
}

/// The pairs of the page have every factor a hundred times.
#[test]
fn every_factor_is_drawn_often() {
    let mut counts = BTreeMap::new();
    for number in 0..PAIRS {
        factors(&draw(PAGE_SEED, number)).into_iter().for_each(|factor| *counts.entry(factor).or_insert(0) += 1);
    }
    let rare: Vec<_> = counts.iter().filter(|(_, count)| **count < 100).collect();
    assert!(rare.is_empty(), "{rare:?}");
}

#[test]
fn a_seed_draws_the_same_pairs_of_every_factor() {
    let text = |seed| (0..10).map(|number| draw(seed, number).to_string()).collect::<Vec<_>>();
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
    let mut found = BTreeSet::new();
    for number in 0..150 {
        let pair = draw(SEED, number);
        let model = &pair.layouts[0].model;
        assert_eq!((narrow(model), without_bounds(model)), (None, None), "pair {number}");
        found.extend(factors(&pair));
    }
    let expected = OF_LAYOUTS.into_iter().chain(["LoRA on attention"]).map(String::from).collect();
    assert_eq!(found, expected);
}
