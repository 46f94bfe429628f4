//! The loss of a step, per sequence, as integers: the same bits whatever the layout.

use config::IGNORED_LABEL;
use device::{COUNT_WORD, SUM_WORDS};

use crate::fixed_point;

/// Adds the losses of `sequences` sequences and the number of valid labels to `sums` (words of [`fixed_point`]).
///
/// `loss[T]` and `labels[T]` hold the sequences one after the other, equally long. A sequence's losses are added in f64
/// in the order of its tokens, ignored labels left out, and rounded to fixed point once. The same on every instruction
/// set.
pub fn loss_sum(loss: &[f32], labels: &[i32], sequences: usize, sums: &mut [i64]) {
    assert_eq!(loss.len(), labels.len(), "one label per loss");
    assert_eq!(sums.len(), SUM_WORDS, "words of a sum");
    if loss.is_empty() {
        return;
    }
    assert!(loss.len().is_multiple_of(sequences), "{} tokens in {sequences} sequences", loss.len());
    let length = loss.len() / sequences;
    for (loss, labels) in loss.chunks(length).zip(labels.chunks(length)) {
        let valid = loss.iter().zip(labels).filter(|(_, label)| **label != IGNORED_LABEL);
        let sum = valid.map(|(&loss, _)| f64::from(loss)).sum();
        fixed_point::add(sums, sum);
        let count = labels.iter().filter(|&&label| label != IGNORED_LABEL).count();
        sums[COUNT_WORD] += count as i64;
    }
}
