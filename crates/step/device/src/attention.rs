//! Operands of attention: sizes, tensors, and the function from scores to probabilities.

use crate::Tensor;
use crate::dropout_key::DropoutKey;

/// Sizes of an attention operation on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences in the microbatch.
    pub sequences: usize,
    /// Tokens per sequence.
    pub sequence_length: usize,
    /// Local query heads.
    pub heads: usize,
    /// Local key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// The heads of a linear bias of scores (ALiBi, Press et al. 2022, arXiv 2108.12409).
///
/// A visible key gets `slope` times its distance from the last one that its query sees, which is no more than 0. Before
/// the softmax that is the bias `slope * key` of the paper, up to a constant of each query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alibi {
    /// Global index of the operation's head 0.
    pub first_head: usize,
    /// Heads of the model.
    pub num_heads: usize,
}

impl Alibi {
    /// The slope of the operation's head `head`. With `n` the largest power of two among the heads, the first `n` fall
    /// geometrically from `2^(-8/n)` to `2^-8`; the others are every second one of the series for `2 n`, from its first
    /// on.
    pub fn slope(self, head: usize) -> f32 {
        let head = self.first_head + head;
        let power_of_two = 1 << self.num_heads.ilog2();
        let (number, series) = match head < power_of_two {
            true => (head + 1, power_of_two),
            false => (2 * (head - power_of_two) + 1, 2 * power_of_two),
        };
        (-8.0 * number as f64 / series as f64).exp2() as f32
    }
}

/// Where the first query and the first key of an attention on some keys of one sequence are in the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Place of query 0.
    pub first_query: usize,
    /// Place of key 0; a multiple of 4 where probabilities are dropped.
    pub first_key: usize,
}

/// Operands of both passes of attention, over `T` = sequences x length tokens, `H` heads and `K` key and value heads
/// of width `d`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOperands {
    /// Sizes.
    pub shape: AttentionShape,
    /// Of some keys of one sequence; `None` where keys are those of whole sequences, and queries their last tokens. A
    /// query sees of its interval what there is of the keys, and nothing is an output of zero and a log-sum-exp of
    /// minus infinity.
    pub places: Option<Places>,
    /// Queries `[T, H d]`.
    pub q: Tensor,
    /// Keys `[T, K d]`, or with more rows, equally many per sequence.
    pub k: Tensor,
    /// Values, as many as keys.
    pub v: Tensor,
    /// `[T, 2]`: the interval `[first, last)` of keys of its sequence that a query sees.
    pub visible: Tensor,
    /// Keys that a query sees at most, its own being the last. The intervals hold to it already; costs count by it.
    pub window: Option<usize>,
    /// Factor of the scores.
    pub scale: f32,
    /// Scores end below this number, as `cap tanh(score / cap)`, before their biases; GPUs have no kernel for it.
    pub soft_cap: Option<f32>,
    /// Biases of the scores.
    pub alibi: Option<Alibi>,
    /// Dropout of the probabilities.
    pub dropout: Option<DropoutKey>,
    /// `[T, H d]`: assigned by the forward pass, read by the backward pass.
    pub out: Tensor,
    /// `[T, H]`: assigned by the forward pass, read by the backward pass.
    pub log_sum_exp: Tensor,
}

impl AttentionOperands {
    /// Multiply-adds of one product over all (query, visible key) pairs of a causal mask, or of one with windows, the
    /// queries being the last of the keys' tokens.
    pub fn causal_multiply_adds(&self) -> u64 {
        let AttentionShape { sequences, sequence_length: queries, heads, head_dim, .. } = self.shape;
        let keys = self.k.rows / if self.places.is_some() { 1 } else { sequences };
        let whole = Places { first_query: keys.saturating_sub(queries), first_key: 0 };
        let Places { first_query, first_key } = self.places.unwrap_or(whole);
        let causal = |first_query: usize, queries: usize| {
            causal_pairs(first_query + queries, first_key, keys) - causal_pairs(first_query, first_key, keys)
        };
        // A window leaves out the keys that a query sees from its place minus the window.
        let left_out = self.window.map_or(0, |window| {
            let end = (first_query + queries).saturating_sub(window);
            let first = first_query.saturating_sub(window);
            causal(first, end - first)
        });
        let pairs = (causal(first_query, queries) - left_out) * sequences as u64;
        pairs * heads as u64 * head_dim as u64
    }
}

/// Pairs of the queries at places below `end` with the `keys` keys from place `first_key` on that are not after them.
fn causal_pairs(end: usize, first_key: usize, keys: usize) -> u64 {
    let (seen, keys) = (end.saturating_sub(first_key) as u64, keys as u64);
    let slope = seen.min(keys);
    slope * (slope + 1) / 2 + (seen - slope) * keys
}

/// Gradients of attention's operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionGradients {
    /// Of the output `[T, H d]`.
    pub dout: Tensor,
    /// Assigned: of the queries.
    pub dq: Tensor,
    /// Assigned: of the keys.
    pub dk: Tensor,
    /// Assigned: of the values.
    pub dv: Tensor,
    /// Where the gradients of each head's keys and values are summed before they are stored: of width `d`, with at
    /// least two rows for each key of each sequence and head, and equally many for each head.
    pub key_sums: Tensor,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    /// Operands of one head of one channel.
    fn operands(
        [sequences, queries, keys]: [usize; 3],
        places: Option<Places>,
        window: Option<usize>,
    ) -> AttentionOperands {
        let tensor = |rows: usize, cols: usize| Tensor::new(0, rows, cols, Dtype::F32);
        let (q, k) = (tensor(sequences * queries, 1), tensor(sequences * keys, 1));
        AttentionOperands {
            shape: AttentionShape { sequences, sequence_length: queries, heads: 1, kv_heads: 1, head_dim: 1 },
            places,
            q,
            k,
            v: k,
            visible: Tensor::new(0, sequences * queries, 2, Dtype::I32),
            window,
            scale: 1.0,
            soft_cap: None,
            alibi: None,
            dropout: None,
            out: q,
            log_sum_exp: q,
        }
    }

    /// Pairs of a query and a key that is not after it, and in its window, one by one.
    fn counted([sequences, queries, keys]: [usize; 3], places: Places, window: usize) -> u64 {
        let Places { first_query, first_key } = places;
        let pairs = (first_query..first_query + queries)
            .flat_map(|query| (first_key..first_key + keys).map(move |key| (query, key)))
            .filter(|(query, key)| key <= query && query - key < window);
        sequences as u64 * pairs.count() as u64
    }

    #[test]
    fn pairs_of_windows_are_counted_one_by_one() {
        for window in [None, Some(1), Some(3), Some(8), Some(100)] {
            let most = window.unwrap_or(usize::MAX);
            for (sequences, queries, keys) in [(1, 8, 8), (3, 5, 5), (2, 1, 9), (2, 4, 9)] {
                let sizes = [sequences, queries, keys];
                let last = Places { first_query: keys - queries, first_key: 0 };
                let found = operands(sizes, None, window).causal_multiply_adds();
                assert_eq!(found, counted(sizes, last, most), "{sizes:?}, {window:?}");
            }
            for (first_query, first_key) in [(0, 0), (8, 0), (8, 8), (8, 4), (4, 8), (20, 4)] {
                let places = Places { first_query, first_key };
                let found = operands([1, 4, 4], Some(places), window).causal_multiply_adds();
                assert_eq!(found, counted([1, 4, 4], places, most), "{places:?}, {window:?}");
            }
        }
    }
}
