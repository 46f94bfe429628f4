//! A seeded sample of random pairs of layouts; `cargo run --release -p surveys -- pairs` runs all of them.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use config::{Format, LossScaling, Precision};
use prove::{EqualityClass, narrow, without_bounds};
use surveys::pairs::{LossScale, Pair, Shares, draw, measure};

/// Another seed is another sample.
const SEED: u32 = 7;
/// Pairs of the sample.
const PAIRS: usize = 20;

/// The first pairs of few steps and little work.
fn sample() -> Vec<Pair> {
    let is_small = |pair: &Pair| {
        let layout = &pair.layouts[0];
        layout.train.steps <= 3 && layout.model.num_layers <= 4 && layout.model.hidden <= 64
    };
    sample_of(is_small, PAIRS)
}

fn sample_of(is_wanted: impl Fn(&Pair) -> bool, pairs: usize) -> Vec<Pair> {
    (0..).map(|number| draw(SEED, number)).filter(is_wanted).take(pairs).collect()
}

#[test]
fn no_pair_exceeds_a_bound() {
    let mut shares = Shares::default();
    let pairs = sample();
    for pair in &pairs {
        shares.add(pair.number, &measure(pair).unwrap());
    }
    assert_eq!((shares.pairs(), shares.exceeded()), (PAIRS, vec![]));
    for class in [EqualityClass::OtherOrder, EqualityClass::OtherSums] {
        assert!(pairs.iter().any(|pair| pair.class() == class), "{class}");
    }
}

/// The loss of one layout is scaled beyond the largest number of fp16, as rounding may do it to one of two.
#[test]
fn layouts_that_skip_different_steps_are_compared_with_a_lower_scale() {
    let is_small = |pair: &Pair| {
        let train = &pair.layouts[0].train;
        let is_fp16 = train.precision.stored() == Format::Fp16;
        is_fp16 && pair.class() == EqualityClass::OtherSums && train.global_batch * train.sequence_length <= 32
    };
    let mut pair = sample_of(is_small, 1).remove(0);
    for (layout, initial) in pair.layouts.iter_mut().zip([16_384.0, 4_194_304.0]) {
        layout.train.precision = match layout.train.precision {
            Precision::Fp16(products, scaling) => Precision::Fp16(products, LossScaling { initial, ..scaling }),
            other @ (Precision::Fp32(_) | Precision::Bf16(_)) => other,
        };
    }
    let compared = measure(&pair).unwrap();
    assert_eq!(compared.scale, LossScale::Lowered);
    assert!(!compared.shares.is_empty() && compared.shares.iter().all(|share| share.share < 1.0), "{compared:?}");
}

#[test]
fn every_pair_is_as_wide_as_the_bounds_need() {
    for number in 0..100 {
        let model = draw(SEED, number).layouts[0].model.clone();
        assert_eq!((narrow(&model), without_bounds(&model)), (None, None), "pair {number}");
    }
}

#[test]
fn a_seed_draws_the_same_pairs() {
    let text = |seed| (0..20).map(|number| draw(seed, number).to_string()).collect::<Vec<_>>();
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}
