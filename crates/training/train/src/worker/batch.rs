//! A microbatch's tokens: from the data index to the arena.

use config::Microbatch;
use device::{Device, DeviceError, Stream, Tensor};
use model::MicrobatchShape;
use thiserror::Error;

/// Where tokens come from. A pure function of (step, sequence): it does not know ranks.
pub trait TokenSource: Sync {
    /// Fills one sequence: `tokens[S]`, `labels[S]` (the target at each place, or [`config::IGNORED_LABEL`]),
    /// `positions[S]` and `visible[2 S]` (first and past-the-end key that each token sees).
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>);

    /// Place in its sequence of the first token that it fills: 0, unless sequences are continued.
    fn first_place(&self) -> usize {
        0
    }
}

impl TokenSource for data::Batches {
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        let SequenceBuffers { tokens, labels, positions, visible } = buffers;
        data::Batches::fill(self, step, sequence, tokens, labels, positions, visible);
    }
}

/// Host memory of one sequence.
pub struct SequenceBuffers<'a> {
    /// Input tokens.
    pub tokens: &'a mut [i32],
    /// Targets.
    pub labels: &'a mut [i32],
    pub positions: &'a mut [i32],
    /// Intervals of visible keys, interleaved.
    pub visible: &'a mut [i32],
}

/// Which sequences of a step a replica's microbatch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceOrder {
    /// Data-parallel position of the replica.
    pub replica: usize,
    /// Microbatches per step and replica.
    pub num_microbatches: usize,
    /// Sequences per microbatch.
    pub microbatch_size: usize,
}

impl SequenceOrder {
    /// Index within the step of the microbatch's first sequence. Replicas hold consecutive sequences.
    pub fn first_sequence(&self, microbatch: Microbatch) -> u64 {
        ((self.replica * self.num_microbatches + microbatch.0 as usize) * self.microbatch_size) as u64
    }
}

/// A token that sees more than the chunks of its run let it see.
#[derive(Debug, Error)]
#[error(
    "token {token} of sequence {sequence} sees {last} tokens, but its chunk lets it see {seen}; \
     use parallelism.cp_chunks = \"contiguous\""
)]
pub struct HiddenToken {
    sequence: u64,
    token: usize,
    last: i32,
    seen: usize,
}

/// Host copy of one microbatch, reused.
#[derive(Debug)]
pub struct HostBatch {
    tokens: Vec<i32>,
    labels: Vec<i32>,
    positions: Vec<i32>,
    visible: Vec<i32>,
    /// Intervals of local layers, and tokens that these see at most.
    local: Option<(usize, Vec<i32>)>,
    /// Labels of whole sequences, where ranks share them.
    labels_of_all: Vec<i32>,
    /// Intervals of whole sequences, where ranks share them.
    visible_of_all: Vec<i32>,
    local_of_all: Vec<i32>,
}

impl HostBatch {
    /// Buffers for microbatches of at most `len` tokens, whole sequences, of a model whose local layers, if it has any,
    /// see `window` tokens.
    pub fn new(len: usize, window: Option<usize>) -> HostBatch {
        let zeros = || vec![0; len];
        HostBatch {
            tokens: zeros(),
            labels: zeros(),
            positions: zeros(),
            visible: vec![0; 2 * len],
            labels_of_all: vec![],
            visible_of_all: vec![],
            local: window.map(|window| (window, vec![0; 2 * len])),
            local_of_all: vec![],
        }
    }

    /// Fetches sequences `first_sequence ..` of `step`, as many as `shape` says, and keeps the tokens of the rank at
    /// position `slice` of those that share them.
    ///
    /// # Errors
    /// See [`HiddenToken`].
    pub fn fetch(
        &mut self,
        source: &dyn TokenSource,
        step: u32,
        first_sequence: u64,
        (shape, slice): (MicrobatchShape, usize),
    ) -> Result<(), HiddenToken> {
        self.fetch_whole(source, step, first_sequence, shape);
        if shape.slices.ranks == 1 {
            return Ok(());
        }
        self.labels_of_all.clone_from(&self.labels);
        self.visible_of_all.clone_from(&self.visible);
        if let Some((_, local)) = &self.local {
            self.local_of_all.clone_from(local);
        }
        let mut row = 0;
        for sequence in 0..shape.sequences {
            for chunk in shape.slices.chunks(shape.sequence_length, slice) {
                let (first, seen) =
                    (sequence * shape.sequence_length, shape.slices.keys_seen_by(shape.sequence_length, &chunk));
                for token in chunk.clone() {
                    let last = self.visible[2 * (first + token) + 1];
                    if last > seen as i32 {
                        let sequence = first_sequence + sequence as u64;
                        return Err(HiddenToken { sequence, token, last, seen });
                    }
                }
                // Rows move towards the front, in ascending order of places.
                let from = first + chunk.start..first + chunk.end;
                for values in [&mut self.tokens, &mut self.labels, &mut self.positions] {
                    values.copy_within(from.clone(), row);
                }
                for intervals in std::iter::once(&mut self.visible).chain(self.local.as_mut().map(|(_, local)| local)) {
                    intervals.copy_within(2 * from.start..2 * from.end, 2 * row);
                }
                row += chunk.len();
            }
        }
        Ok(())
    }

    fn fetch_whole(&mut self, source: &dyn TokenSource, step: u32, first_sequence: u64, shape: MicrobatchShape) {
        let length = shape.sequence_length;
        let rows = self.tokens.chunks_mut(length).zip(self.labels.chunks_mut(length));
        let more = self.positions.chunks_mut(length).zip(self.visible.chunks_mut(2 * length));
        for (index, ((tokens, labels), (positions, visible))) in rows.zip(more).enumerate().take(shape.sequences) {
            let buffers = SequenceBuffers { tokens, labels, positions, visible };
            source.fill(step, first_sequence + index as u64, buffers);
        }
        let Some((window, local)) = &mut self.local else { return };
        let intervals = self.visible.as_chunks().0.iter().zip(local.as_chunks_mut().0);
        let tokens = shape.sequences * length;
        for (token, ([first, last], local)) in intervals.enumerate().take(tokens) {
            let end = source.first_place() + token % length + 1;
            // A row that no token fills may be beyond what it sees: it keeps the last key.
            let in_window = (end.saturating_sub(*window) as i32).min(*last - 1);
            *local = [in_window.max(*first), *last];
        }
    }

    /// Copies the microbatch, on the stream that computes, to its places: `tokens, labels, positions [1, T]`, `visible
    /// [T, 2]`, and the labels and intervals of whole sequences where the batch has them.
    pub fn write(&self, device: &dyn Device, batch: &model::Batch) -> Result<(), DeviceError> {
        let write =
            |to: Tensor, from: &[i32]| device.upload(Stream::Compute, to, bytemuck::cast_slice(&from[..to.len()]));
        write(batch.tokens, &self.tokens)?;
        write(batch.labels, &self.labels)?;
        write(batch.positions, &self.positions)?;
        batch.labels_of_all.map_or(Ok(()), |labels| write(labels, &self.labels_of_all))?;
        let intervals = |to: model::Visible, own: &[i32], of_all: &[i32]| {
            write(to.own, own)?;
            to.of_all.map_or(Ok(()), |to| write(to, of_all))
        };
        intervals(batch.visible, &self.visible, &self.visible_of_all)?;
        match (batch.local, &self.local) {
            (Some(to), Some((_, local))) => intervals(to, local, &self.local_of_all),
            (Some(_) | None, _) => Ok(()),
        }
    }
}
