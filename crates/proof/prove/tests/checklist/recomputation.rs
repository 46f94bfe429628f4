//! N26: recomputed activations have the bits of the first time: the same operations on the same inputs with the same
//! masks.

use std::cell::RefCell;
use std::collections::HashSet;

use config::{FullRecompute, ModelSpec, Parallelism, Recompute, SavedInputs, SequenceParallel};
use device::{AttentionOperands, DropoutKey, Op};
use program::PeerGroup;
use testkit::intercepted::{Call, alter_ops, drop_calls};
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

/// Half of everything is dropped: another mask is another gradient. Heads are normed, which the attention core does
/// again.
fn model(style: Style) -> ModelSpec {
    ModelSpec {
        dropout: 0.5,
        attention_dropout: 0.5,
        qk_norm: if style == Style::Llama { config::QkNorm::Heads } else { config::QkNorm::Off },
        ..small_model(style, false)
    }
}

fn full(every: usize, inputs: SavedInputs) -> Recompute {
    Recompute::Full(FullRecompute { every, inputs })
}

/// Whether a layout that recomputes learns the same bits as one that keeps.
fn check(style: Style, kept: &Parallelism, recompute: Recompute, wrap: &WrapRank<'_>) -> Verdict {
    let (model, train) = (model(style), training(2));
    let keeping = Case::new(&model, kept.clone(), &train).outcome().expect("runs");
    let recomputing = Parallelism { recompute, ..kept.clone() };
    let other = Case::new(&model, recomputing, &train).wrapped(wrap).outcome();
    other.and_then(|other| same_bits(&keeping, &other))
}

#[test]
fn every_form_leaves_the_same_bits() {
    use SavedInputs::{Sharded, Whole};
    for style in [Style::Gpt2, Style::Llama] {
        let layout = degrees((1, 2, 2));
        for recompute in [Recompute::Selective, full(1, Whole), full(2, Whole), full(1, Sharded), full(2, Sharded)] {
            assert_holds(check(style, &layout, recompute, &untouched));
        }
        let shared = Parallelism { sequence_parallel: SequenceParallel::On, ..layout };
        for recompute in [Recompute::Selective, full(1, Sharded)] {
            assert_holds(check(style, &shared, recompute, &untouched));
        }
    }
}

fn mask(op: &mut Op) -> Option<&mut DropoutKey> {
    if let Op::Attention { operands: AttentionOperands { dropout, .. } } | Op::DropoutAdd { dropout, .. } = op {
        return dropout.as_mut();
    }
    None
}

#[test]
fn masks_that_are_redrawn_are_found() {
    // A mask that was drawn before is drawn for the next step.
    let drawn_anew = |_, rank: RankEngine| {
        let drawn = RefCell::new(HashSet::new());
        alter_ops(rank, move |op| {
            if let Some(key) = mask(op)
                && !drawn.borrow_mut().insert((key.step, key.site, key.first_token))
            {
                key.step += 1;
            }
        })
    };
    for recompute in [Recompute::Selective, Recompute::FULL] {
        let layout = degrees((1, 1, 2));
        assert_holds(check(Style::Gpt2, &layout, Recompute::None, &drawn_anew));
        assert_found(check(Style::Gpt2, &layout, recompute, &drawn_anew), "bits differ");
    }
}

#[test]
fn inputs_that_are_not_gathered_are_found() {
    let ungathered =
        |_, rank: RankEngine| drop_calls(rank, PeerGroup::TENSOR, |call| matches!(call, Call::AllGather(_)));
    let layout = degrees((1, 2, 1));
    assert_holds(check(Style::Llama, &layout, Recompute::FULL, &ungathered));
    assert_found(check(Style::Llama, &layout, full(1, SavedInputs::Sharded), &ungathered), "bits differ");
}
