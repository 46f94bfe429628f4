//! Which probabilities dropout keeps.

use philox::{key_of_seed, philox4x32_10_x16, probability_threshold};

use super::DropoutKey;
use crate::lanes::LANES;

/// Keys that one random block decides about.
pub(super) const KEYS_PER_BLOCK: usize = 4;

/// The decisions about one head's probabilities.
///
/// (query token, head, key) is kept where word `key % 4` of Philox4x32-10 is at least the probability's threshold, for
/// the counter `[key / 4 | global head << 16, global query token in the step, step, site]` under the seed as key.
#[derive(Clone, Copy)]
pub(super) struct HeadDropout {
    key: [u32; 2],
    head: u32,
    step: u32,
    site: u32,
    first_token: u64,
    /// Blocks of keys before the call's first.
    first_block: u32,
    threshold: u32,
    /// Factor of kept values.
    pub scale: f32,
}

impl HeadDropout {
    /// The decisions for the local head `head` on keys from the place `first_key` on, a multiple of four.
    pub fn new(dropout: &DropoutKey, head: usize, first_key: usize) -> Self {
        Self {
            key: key_of_seed(dropout.seed),
            head: (dropout.first_channel + head as u32) << 16,
            step: dropout.step,
            site: dropout.site,
            first_token: dropout.first_token,
            first_block: (first_key / KEYS_PER_BLOCK) as u32,
            threshold: probability_threshold(dropout.probability),
            scale: 1.0 / (1.0 - dropout.probability),
        }
    }

    /// One for kept and zero for dropped, of sixteen queries from the call's token `token` on and four keys from
    /// `first_key` on, a multiple of four: `[key][query]`.
    #[inline(always)]
    pub fn keep(&self, token: usize, first_key: usize) -> [[f32; LANES]; KEYS_PER_BLOCK] {
        let key = ((first_key / KEYS_PER_BLOCK) as u32 + self.first_block) | self.head;
        let first = (self.first_token + token as u64) as u32;
        let mut tokens = [first; LANES];
        for (lane, token) in tokens.iter_mut().enumerate() {
            *token = token.wrapping_add(lane as u32);
        }
        let counters = [[key; LANES], tokens, [self.step; LANES], [self.site; LANES]];
        philox4x32_10_x16(counters, self.key)
            .map(|words| words.map(|word| if word >= self.threshold { 1.0 } else { 0.0 }))
    }
}
