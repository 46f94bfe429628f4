//! The capacity of experts: of each sequence an expert keeps the tokens that want it most.

use config::IGNORED_LABEL;

/// The choices of a microbatch, one sequence after the other.
pub struct LimitChoices<'a> {
    /// `[T,k]`
    pub choice: &'a [i32],
    /// `[T,k]`
    pub weights: &'a [f32],
    /// `[T]`
    pub labels: &'a [i32],
    pub sequences: usize,
    /// The most tokens of a sequence that an expert keeps.
    pub capacity: usize,
    /// `[T,k]`, assigned: the choice, or -1 where it is dropped.
    pub kept: &'a mut [i32],
}

/// Drops choices beyond the capacity, those with the smallest weights first, of equal weights the later tokens; a NaN
/// is larger than all numbers. Tokens without a label neither count nor are dropped. Returns how many were dropped.
pub fn limit_choices(LimitChoices { choice, weights, labels, sequences, capacity, kept }: LimitChoices<'_>) -> i64 {
    kept.copy_from_slice(choice);
    if labels.is_empty() {
        return 0;
    }
    assert!(labels.len().is_multiple_of(sequences), "{} tokens in {sequences} sequences", labels.len());
    let (per_token, per_sequence) = (choice.len() / labels.len(), labels.len() / sequences);
    let mut wanted: Vec<(i32, usize)> = Vec::with_capacity(per_sequence * per_token);
    let mut dropped = 0;
    for sequence in 0..sequences {
        let tokens = sequence * per_sequence..(sequence + 1) * per_sequence;
        wanted.clear();
        for token in tokens.filter(|token| labels[*token] != IGNORED_LABEL) {
            wanted.extend((token * per_token..(token + 1) * per_token).map(|slot| (choice[slot], slot)));
        }
        wanted.sort_unstable_by(|(expert, slot), (other_expert, other_slot)| {
            let by_weight = weights[*other_slot].total_cmp(&weights[*slot]);
            expert.cmp(other_expert).then(by_weight).then(slot.cmp(other_slot))
        });
        for of_expert in wanted.chunk_by(|(expert, _), (other, _)| expert == other) {
            for (_, slot) in of_expert.iter().skip(capacity) {
                kept[*slot] = -1;
                dropped += 1;
            }
        }
    }
    dropped
}
