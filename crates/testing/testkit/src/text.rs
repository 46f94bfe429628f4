//! Tokens for proofs: a seeded text with structure that a small model learns within a few steps.

use philox::philox4x32_10;
use train::{SequenceBuffers, TokenSource};

/// A text in which each token is mostly a function of the one before, over an unevenly used vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct ProofText {
    /// Number of tokens.
    pub vocabulary: usize,
    /// Seed of the text.
    pub seed: u64,
    /// Which labels count.
    pub labels: Labels,
}

/// Which labels count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// All.
    Every,
    /// The labels of a random part of each sequence, down to none: replicas and microbatches have unequal
    /// counts.
    Ragged,
    /// None.
    Ignored,
}

impl ProofText {
    fn draw(&self, step: u32, sequence: u64, place: usize) -> [u32; 4] {
        let counter = [place as u32, sequence as u32, step, 0x7465_7874];
        philox4x32_10(counter, [self.seed as u32, (self.seed >> 32) as u32])
    }

    /// Squaring a uniform number makes small tokens frequent.
    fn fresh_token(&self, random: u32) -> i32 {
        let uniform = f64::from(random) / 4_294_967_296.0;
        (uniform * uniform * self.vocabulary as f64) as i32
    }

    fn next_token(&self, token: i32, random: [u32; 4]) -> i32 {
        if random[0].is_multiple_of(4) { self.fresh_token(random[1]) } else { (token * 7 + 3) % self.vocabulary as i32 }
    }
}

impl TokenSource for ProofText {
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        let SequenceBuffers { tokens, labels, positions, visible } = buffers;
        let length = tokens.len();
        let counted = match self.labels {
            Labels::Every => length,
            Labels::Ragged => self.draw(step, sequence, usize::MAX)[2] as usize % (length + 1),
            Labels::Ignored => 0,
        };
        let mut token = self.fresh_token(self.draw(step, sequence, 0)[1]);
        for place in 0..length {
            let next = self.next_token(token, self.draw(step, sequence, place + 1));
            tokens[place] = token;
            labels[place] = if place < counted { next } else { config::IGNORED_LABEL };
            positions[place] = place as i32;
            visible[2 * place] = 0;
            visible[2 * place + 1] = place as i32 + 1;
            token = next;
        }
    }
}
