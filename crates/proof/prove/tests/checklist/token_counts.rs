//! N16 and N17: loss and gradients are means over the valid tokens of all replicas and microbatches, and nothing is
//! learned from none.

use std::ops::Range;

use config::IGNORED_LABEL;
use device::{Dtype, LogitGradient, Op, Tensor};
use program::PeerGroup;
use prove::Outcome;
use testkit::intercepted::{alter_ops, drop_calls, intercept_ops};
use testkit::models::Style;
use testkit::text::{Labels, ProofText};
use testkit::wrapped_engine::WrapRank;
use train::{RankEngine, SequenceBuffers, TokenSource};

use crate::checklist::rig::*;

/// Sequences of a text from `first_sequence` on.
pub struct Offset {
    pub text: ProofText,
    pub first_sequence: u64,
}

impl TokenSource for Offset {
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        self.text.fill(step, self.first_sequence + sequence, buffers);
    }
}

/// Number of labels that count in `sequences` of the first step.
pub fn valid_labels(source: &dyn TokenSource, sequences: Range<u64>) -> usize {
    let count = |sequence| {
        let (mut tokens, mut labels, mut positions, mut visible) = ([0; 8], [0; 8], [0; 8], [0; 16]);
        let buffers = SequenceBuffers {
            tokens: &mut tokens,
            labels: &mut labels,
            positions: &mut positions,
            visible: &mut visible,
        };
        source.fill(0, sequence, buffers);
        labels.into_iter().filter(|label| *label != IGNORED_LABEL).count()
    };
    sequences.map(count).sum()
}

/// A text whose labels count in the first half of each step's eight sequences only.
struct FirstHalf;

impl TokenSource for FirstHalf {
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        let labels = if sequence < 4 { Labels::Every } else { Labels::Ignored };
        ProofText { labels, ..TEXT }.fill(step, sequence, buffers);
    }
}

/// Whether replicas with unequal numbers of valid labels learn what one rank learns.
fn check(tokens: &dyn TokenSource, wrap: &WrapRank<'_>) -> Verdict {
    let (model, train) = (small_model(Style::Gpt2, false), training(2));
    let one = Case::new(&model, degrees((1, 1, 1)), &train).tokens(tokens).outcome().expect("one rank");
    verdict([(2, 1, 1), (4, 1, 1), (2, 1, 2), (2, 2, 1)].into_iter().filter_map(|at| {
        let other = Case::new(&model, degrees(at), &train).tokens(tokens).wrapped(wrap).outcome();
        other.and_then(|other| within_bounds(&model, &one, &other)).err()
    }))
}

#[test]
fn loss_and_gradient_are_means_over_all_valid_tokens() {
    assert_holds(check(&RAGGED, &untouched));
    // One of two replicas has no valid token at all.
    assert_holds(check(&FirstHalf, &untouched));
}

/// Each replica divides by the number of its own valid labels; gradients are then averaged.
fn divide_by_own(tokens: &'static (dyn TokenSource + Sync), coord: mesh::Coord, rank: RankEngine) -> RankEngine {
    let first = 4 * replica(coord) as u64;
    let (own, all) = (valid_labels(tokens, first..first + 4), valid_labels(tokens, 0..8));
    let factor = all as f32 / (2 * own.max(1)) as f32;
    alter_ops(rank, move |op| {
        if let Op::CrossEntropy { gradient: Some(LogitGradient { scale, .. }), .. } = op {
            *scale *= factor;
        }
    })
}

#[test]
fn division_by_a_replicas_own_count_is_found() {
    assert_found(check(&RAGGED, &|coord, rank| divide_by_own(&RAGGED, coord, rank)), "the gradient of");
    // With all valid tokens on one replica, every gradient is halved.
    assert_found(check(&FirstHalf, &|coord, rank| divide_by_own(&FirstHalf, coord, rank)), "5.0e-1 away");
    let own_loss = |_, rank: RankEngine| drop_calls(rank, PeerGroup::WORLD, after_the_agreement());
    assert_found(check(&RAGGED, &own_loss), "a loss is");
}

/// One replica counts labels that do not count, and learns from them.
#[test]
fn masked_tokens_that_count_are_found() {
    let unmasked = |coord: mesh::Coord, rank: RankEngine| {
        if replica(coord) == 0 {
            return rank;
        }
        intercept_ops(rank, |device, stream, op| {
            if let Op::CrossEntropy { labels, .. } = op {
                let mut values = vec![0i32; labels.len()];
                device.read(*labels, bytemuck::cast_slice_mut(&mut values))?;
                values.iter_mut().filter(|label| **label == IGNORED_LABEL).for_each(|label| *label = 0);
                device.write(*labels, bytemuck::cast_slice(&values))?;
            }
            device.submit(stream, op)
        })
    };
    for tokens in [&RAGGED as &dyn TokenSource, &FirstHalf] {
        assert_found(check(tokens, &unmasked), "a loss is");
        assert_found(check(tokens, &unmasked), "the gradient of");
    }
}

/// Every call after the two with which ranks agree, before the first step, that they run the same.
fn after_the_agreement() -> impl Fn(&testkit::intercepted::Call) -> bool {
    let calls = std::cell::Cell::new(0);
    move |_| {
        calls.set(calls.get() + 1);
        calls.get() > 2
    }
}

/// Whether a step without valid labels has loss 0 and no gradient, and leaves weights that can be used.
fn nothing_is_learned(wrap: &WrapRank<'_>) -> Verdict {
    let model = small_model(Style::Gpt2, true);
    let tokens = ProofText { labels: Labels::Ignored, ..TEXT };
    verdict([(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)].into_iter().filter_map(|at| {
        let outcome = Case::new(&model, degrees(at), &training(1)).tokens(&tokens).wrapped(wrap).outcome();
        outcome.and_then(|outcome| is_nothing(&outcome)).err()
    }))
}

fn is_nothing(outcome: &Outcome) -> Verdict {
    let learned = outcome.gradients.iter().filter(|(_, values)| values.iter().any(|value| *value != 0.0));
    let broken = outcome.weights.iter().filter(|(_, values)| values.iter().any(|value| !value.is_finite()));
    let sums = (outcome.losses[0], outcome.norms[0]);
    let wrong_sums = (sums != (0.0, 0.0)).then(|| format!("loss and norm are {sums:?}"));
    let learned = learned.map(|(name, _)| format!("{name} has a gradient"));
    verdict(learned.chain(broken.map(|(name, _)| format!("{name} is not finite"))).chain(wrong_sums))
}

#[test]
fn nothing_is_learned_from_no_valid_token() {
    assert_holds(nothing_is_learned(&untouched));
    let count_ignored = |_, rank: RankEngine| {
        intercept_ops(rank, |device, stream, op| {
            if let Op::CrossEntropy { labels, .. } = op {
                device.write(*labels, &vec![0; labels.size_bytes()])?;
            }
            device.submit(stream, op)
        })
    };
    assert_found(nothing_is_learned(&count_ignored), "loss and norm are");
    let divide_by_none = |_, rank: RankEngine| {
        intercept_ops(rank, |device, stream, op| {
            device.submit(stream, op)?;
            if let Op::ClipCoefficient { out, .. } = op {
                let coefficient = Tensor::new(out.offset_bytes, 1, 1, Dtype::F32);
                device.write(coefficient, &f32::NAN.to_ne_bytes())?;
            }
            Ok(())
        })
    };
    assert_found(nothing_is_learned(&divide_by_none), "is not finite");
}
