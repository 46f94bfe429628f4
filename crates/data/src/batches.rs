//! Which tokens a sequence of a step has.

use philox::Permutation;

use crate::corpus::Corpus;
use crate::error::DataError;

/// The order in which windows of the text become sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A permutation per epoch, a function of the seed and the epoch.
    Shuffled {
        /// Seed of the run.
        seed: u64,
    },
    /// From beginning to end: for evaluation.
    AsWritten,
}

/// Sequences as a pure function of (step, sequence within the step).
///
/// The text is cut into windows that overlap by one token: window `w` has the tokens `w S ..= w S + S`, the first `S` as inputs and the
/// last `S` as their targets, so every token but the first is a target exactly once per epoch. What is left at the end of the
/// text and shorter than a window is not used.
#[derive(Clone, Debug)]
pub struct Batches {
    corpus: Corpus,
    order: Order,
    sequence_length: usize,
    global_batch: u64,
    num_windows: u64,
}

impl Batches {
    /// Sequences of `sequence_length` tokens from `corpus`, `global_batch` per step. `part` names the corpus in messages.
    ///
    /// # Errors
    /// Less text than one window, or a token outside `vocabulary`.
    pub fn new(
        corpus: Corpus,
        part: &'static str,
        train: &spec::TrainSpec,
        vocabulary: usize,
        order: Order,
    ) -> Result<Batches, DataError> {
        let sequence_length = train.sequence_length;
        let tokens = corpus.len();
        if sequence_length == 0 || tokens <= sequence_length {
            return Err(DataError::TooShort { part, tokens, sequence_length });
        }
        corpus.check_vocabulary(vocabulary)?;
        let num_windows = ((tokens - 1) / sequence_length) as u64;
        Ok(Batches { corpus, order, sequence_length, global_batch: train.global_batch as u64, num_windows })
    }

    /// Sequences of one epoch.
    pub fn num_windows(&self) -> u64 {
        self.num_windows
    }

    /// The text.
    pub fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// The window of sequence `sequence` of `step`, both counted from 0.
    pub fn window(&self, step: u32, sequence: u64) -> u64 {
        let index = u64::from(step) * self.global_batch + sequence;
        let (epoch, position) = (index / self.num_windows, index % self.num_windows);
        match self.order {
            Order::Shuffled { seed } => Permutation::new(seed, epoch, self.num_windows).get(position),
            Order::AsWritten => position,
        }
    }

    /// Fills one sequence: `tokens[S]`; `labels[S]`, the token after each; `positions[S]`, `0..S`; `visible[2 S]`, for each token the
    /// first key that it sees and the one behind the last, which are its own past and itself.
    ///
    /// # Panics
    /// When a slice has another length.
    pub fn fill(
        &self,
        step: u32,
        sequence: u64,
        tokens: &mut [i32],
        labels: &mut [i32],
        positions: &mut [i32],
        visible: &mut [i32],
    ) {
        let length = self.sequence_length;
        let lengths = [tokens.len(), labels.len(), positions.len(), visible.len()];
        assert!(lengths == [length, length, length, 2 * length], "a sequence has {length} tokens, not {lengths:?}");
        let start = self.window(step, sequence) as usize * length;
        let window = &self.corpus.tokens()[start..=start + length];
        for (token, byte) in tokens.iter_mut().zip(&window[..length]) {
            *token = i32::from(*byte);
        }
        for (label, byte) in labels.iter_mut().zip(&window[1..]) {
            *label = i32::from(*byte);
        }
        // A sequence length is below 2^31 wherever it is read.
        for (index, (position, seen)) in positions.iter_mut().zip(visible.chunks_exact_mut(2)).enumerate() {
            *position = index as i32;
            seen[0] = 0;
            seen[1] = index as i32 + 1;
        }
    }
}
