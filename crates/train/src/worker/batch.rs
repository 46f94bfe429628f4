//! A microbatch's tokens: from the data index to the arena.

use config::Microbatch;
use device::{Device, DeviceError, Stream, Tensor};
use model::MicrobatchShape;

/// Where tokens come from. A pure function of (step, sequence): it does not know ranks.
pub trait TokenSource: Sync {
    /// Fills one sequence: `tokens[S]`, `labels[S]` (the target at each place, or [`config::IGNORED_LABEL`]), `positions[S]`
    /// and `visible[2 S]` (first and behind-last key that each token sees).
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>);
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
    /// Positions.
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

/// Host copy of one microbatch, reused.
#[derive(Debug)]
pub struct HostBatch {
    tokens: Vec<i32>,
    labels: Vec<i32>,
    positions: Vec<i32>,
    visible: Vec<i32>,
}

impl HostBatch {
    /// Buffers for microbatches of at most `len` tokens.
    pub fn new(len: usize) -> HostBatch {
        HostBatch { tokens: vec![0; len], labels: vec![0; len], positions: vec![0; len], visible: vec![0; 2 * len] }
    }

    /// Fetches sequences `first_sequence ..` of `step`, as many as `shape` says.
    pub fn fetch(&mut self, source: &dyn TokenSource, step: u32, first_sequence: u64, shape: MicrobatchShape) {
        let length = shape.sequence_length;
        let rows = self.tokens.chunks_mut(length).zip(self.labels.chunks_mut(length));
        let more = self.positions.chunks_mut(length).zip(self.visible.chunks_mut(2 * length));
        for (index, ((tokens, labels), (positions, visible))) in rows.zip(more).enumerate().take(shape.sequences) {
            let buffers = SequenceBuffers { tokens, labels, positions, visible };
            source.fill(step, first_sequence + index as u64, buffers);
        }
    }

    /// Copies the microbatch, on the stream that computes, to its places: `tokens, labels, positions [1, T]`, `visible [T, 2]`.
    pub fn write(&self, device: &dyn Device, batch: &model::Batch) -> Result<(), DeviceError> {
        let write =
            |to: Tensor, from: &[i32]| device.upload(Stream::Compute, to, bytemuck::cast_slice(&from[..to.len()]));
        write(batch.tokens, &self.tokens)?;
        write(batch.labels, &self.labels)?;
        write(batch.positions, &self.positions)?;
        write(batch.visible, &self.visible)
    }
}
