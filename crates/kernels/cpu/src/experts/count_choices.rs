//! Counts of choices, loads, and the corrections that follow from counts: integers, so that no order matters.

use config::IGNORED_LABEL;
use device::Write;

use crate::view::MatMut;

/// `counts[R,E]` = or += the slots of `choice[T,k]` with each expert, of the tokens of each of `runs` runs whose
/// `labels[T]` count.
pub fn count_choices(choice: &[i32], labels: &[i32], runs: usize, counts: &mut [i64], write: Write) {
    match write {
        Write::Assign => counts.fill(0),
        Write::Accumulate => {}
    }
    if choice.is_empty() || counts.is_empty() {
        return;
    }
    assert!(labels.len().is_multiple_of(runs), "{} tokens in {runs} runs", labels.len());
    assert!(choice.len().is_multiple_of(labels.len()), "{} slots of {} tokens", choice.len(), labels.len());
    let (per_token, per_run, experts) = (choice.len() / labels.len(), labels.len() / runs, counts.len() / runs);
    let tokens = choice.chunks_exact(per_token).zip(labels);
    for (token, (slots, _)) in tokens.enumerate().filter(|(_, (_, label))| **label != IGNORED_LABEL) {
        let first = token / per_run * experts;
        for expert in slots {
            counts[first + *expert as usize] += 1;
        }
    }
}

/// `load[R,E] = E counts[R,E] / sum of the run`, rounded once; 0 for a run without counts.
pub fn load(counts: &[i64], mut load: MatMut<'_>) {
    let experts = load.cols();
    for (row, counts) in counts.chunks_exact(experts).enumerate() {
        let sum: i64 = counts.iter().sum();
        for (load, count) in load.row_mut(row).iter_mut().zip(counts) {
            // Both products are whole numbers that f64 has.
            *load = if sum == 0 { 0.0 } else { ((experts as i64 * count) as f64 / sum as f64) as f32 };
        }
    }
}

/// `correction[R,E] += rate sign(sum of the run - E counts[R,E])`.
pub fn correct(counts: &[i64], rate: f32, mut correction: MatMut<'_>) {
    let experts = correction.cols();
    for (row, counts) in counts.chunks_exact(experts).enumerate() {
        let sum: i64 = counts.iter().sum();
        for (correction, count) in correction.row_mut(row).iter_mut().zip(counts) {
            *correction += rate * (sum - experts as i64 * count).signum() as f32;
        }
    }
}
