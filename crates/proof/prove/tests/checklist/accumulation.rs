//! N9 and N22: a step's gradient is the sum over its microbatches, however many there are, however large, and whatever
//! happens between them.

use std::cell::Cell;

use device::{LogitGradient, Op, Orientation, Write};
use prove::{Outcome, Watch};
use testkit::models::{Style, plain_layout};
use testkit::poison::PoisonFreed;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;
use crate::checklist::token_counts::{Offset, valid_labels};

/// Whether the gradient of eight microbatches is the sum of the gradients of eight steps of one microbatch each.
fn sum_of_parts(wrap: &WrapRank<'_>, watch: &dyn Watch) -> Verdict {
    let model = still_model(Style::Gpt2, true);
    let train = training(1);
    let together =
        Case::new(&model, degrees((1, 1, 1)), &train).tokens(&RAGGED).wrapped(wrap).watched(watch).outcome()?;
    let parts = (0..8).map(|sequence| {
        let tokens = Offset { text: RAGGED, first_sequence: sequence };
        let train = config::TrainSpec { global_batch: 1, ..train.clone() };
        let part = Case::new(&model, degrees((1, 1, 1)), &train).tokens(&tokens).outcome().expect("one sequence");
        (part, valid_labels(&RAGGED, sequence..sequence + 1) as f64)
    });
    let expected = weighted_mean(parts);
    let step = |outcome: &Outcome| Outcome { norms: vec![], weights: Default::default(), ..outcome.clone() };
    within_bounds(&model, &expected, &step(&together))
}

/// Losses and gradients of several steps as those of one, each weighted by its number of valid labels.
fn weighted_mean(parts: impl Iterator<Item = (Outcome, f64)>) -> Outcome {
    let parts: Vec<(Outcome, f64)> = parts.collect();
    let all: f64 = parts.iter().map(|(_, valid)| valid).sum();
    let mut gradients = std::collections::BTreeMap::new();
    for (part, valid) in &parts {
        for (name, values) in &part.gradients {
            let sum: &mut Vec<f64> = gradients.entry(name.clone()).or_insert_with(|| vec![0.0; values.len()]);
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value) * valid / all);
        }
    }
    let rounded = |sum: Vec<f64>| sum.into_iter().map(|value| value as f32).collect();
    Outcome {
        losses: vec![parts.iter().map(|(part, valid)| part.losses[0] * valid / all).sum()],
        gradients: gradients.into_iter().map(|(name, sum)| (name, rounded(sum))).collect(),
        ..Outcome::default()
    }
}

#[test]
fn a_gradient_is_the_sum_over_its_microbatches() {
    assert_holds(sum_of_parts(&untouched, &prove::NoWatch));
    // Between microbatches everything is overwritten but the accumulators and what is still to be read.
    assert_holds(sum_of_parts(&untouched, &PoisonFreed));
}

#[test]
fn an_accumulator_that_starts_anew_is_found() {
    let assign_always = |_, rank: RankEngine| {
        testkit::intercepted::alter_ops(rank, |op| {
            if let Op::MatMul { orientation: Orientation::Tn, write, .. } = op {
                *write = Write::Assign;
            }
        })
    };
    assert_found(sum_of_parts(&assign_always, &prove::NoWatch), "the gradient of");
    let clear_again = |_, rank: RankEngine| {
        testkit::intercepted::intercept_ops(rank, |device, stream, op| {
            if let Op::EmbeddingBackward { dtable, .. } = *op {
                device.submit(stream, &Op::Fill { out: dtable, value: 0.0 })?;
            }
            device.submit(stream, op)
        })
    };
    assert_found(sum_of_parts(&clear_again, &prove::NoWatch), "the gradient of embedding");
}

/// Whether microbatches of `size` learn what microbatches of one sequence learn, on `dp` replicas.
fn sizes_agree(dp: usize, size: usize, wrap: &WrapRank<'_>) -> Verdict {
    let (model, train) = (small_model(Style::Llama, true), training(3));
    let layout = |dp, size| plain_layout(dp, 1, 1, size);
    let ones = Case::new(&model, layout(1, 1), &train).tokens(&RAGGED).outcome().expect("microbatches of one");
    let other = Case::new(&model, layout(dp, size), &train).tokens(&RAGGED).wrapped(wrap).outcome()?;
    within_bounds(&model, &ones, &other)
}

#[test]
fn the_size_of_microbatches_does_not_matter() {
    for (dp, size) in [(1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4), (4, 2)] {
        assert_holds(sizes_agree(dp, size, &untouched));
    }
}

#[test]
fn means_of_microbatches_are_found() {
    // Divides once more by the number of microbatches.
    let over_accumulation = |_, rank: RankEngine| {
        testkit::intercepted::alter_ops(rank, |op| {
            if let Op::CrossEntropy { gradient: Some(LogitGradient { scale, .. }), .. } = op {
                *scale /= 4.0;
            }
        })
    };
    assert_found(sizes_agree(1, 2, &over_accumulation), "the gradient of");
    // The mean of the means of microbatches instead of the mean over tokens; a chunk of logits is one microbatch.
    let mean_of_means = |_, rank: RankEngine| {
        let chunks = Cell::new(0);
        testkit::intercepted::alter_ops(rank, move |op| {
            if let Op::CrossEntropy { gradient: Some(LogitGradient { scale, .. }), .. } = op {
                let first = 4 * chunks.get();
                let (own, all) = (valid_labels(&RAGGED, first..first + 4), valid_labels(&RAGGED, 0..8));
                *scale *= all as f32 / (2 * own) as f32;
                chunks.set((chunks.get() + 1) % 2);
            }
        })
    };
    assert_found(sizes_agree(1, 4, &mean_of_means), "the gradient of");
}
