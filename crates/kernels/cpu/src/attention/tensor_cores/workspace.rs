//! Memory for the blocks of one group of queries and one tile of keys, in that of packed panels.

use super::{BLOCK_KEYS, GROUP};
use crate::attention::QUERIES;
use crate::gemm::tensor_cores::pack::{PackedBuffer, Side, take};
use crate::gemm::{Narrow, PackingBuffers};
use crate::lanes::LANES;

/// Room that is given away from the front.
pub(super) struct Memory<'a> {
    narrow: Narrow,
    head_dim: usize,
    rest: &'a mut [u8],
}

/// Buffers of both passes.
pub(super) struct Workspace<'a> {
    /// `[BLOCK_KEYS, head_dim]`: a tile's keys.
    pub key: PackedBuffer<'a>,
    /// `[head_dim, queries]`: the group's queries.
    pub query: PackedBuffer<'a>,
    /// `[BLOCK_KEYS, QUERIES]`: probabilities, or gradients of scores, of a block.
    pub block: PackedBuffer<'a>,
    /// `[BLOCK_KEYS, QUERIES]`: products of keys and queries.
    pub scores: &'a mut [[f32; QUERIES]],
    /// Per block `[head_dim, QUERIES]`: the sums over keys of its outputs, or of its queries' gradients.
    pub sums: &'a mut [f32],
    /// `[QUERIES, head_dim up to whole registers]`: the transpose of a block's sums.
    pub rows: &'a mut [f32],
}

/// Further buffers of the backward pass.
pub(super) struct BackwardWorkspace<'a> {
    /// `[BLOCK_KEYS, head_dim]`: a tile's values.
    pub value: PackedBuffer<'a>,
    /// `[head_dim, BLOCK_KEYS]`: a tile's keys.
    pub key_channels: PackedBuffer<'a>,
    /// `[head_dim, queries]`: gradients of the group's outputs.
    pub d_out: PackedBuffer<'a>,
    /// `[queries, head_dim]`: the group's queries.
    pub query_rows: PackedBuffer<'a>,
    /// `[queries, head_dim]`: gradients of the group's outputs.
    pub d_out_rows: PackedBuffer<'a>,
    /// `[BLOCK_KEYS, QUERIES]`: probabilities, or gradients of scores, by rows.
    pub block_rows: PackedBuffer<'a>,
    /// `[BLOCK_KEYS, QUERIES]`: products of values and gradients of outputs.
    pub d_probabilities: &'a mut [[f32; QUERIES]],
}

impl<'a> Memory<'a> {
    /// All of the buffers.
    pub fn new(narrow: Narrow, packing: &'a mut PackingBuffers, head_dim: usize) -> Self {
        Self { narrow, head_dim, rest: packing.bytes() }
    }

    fn rows(&mut self, lanes: usize, steps: usize) -> PackedBuffer<'a> {
        PackedBuffer::take(Side::Rows, self.narrow, (lanes, steps), &mut self.rest)
    }

    fn columns(&mut self, lanes: usize, steps: usize) -> PackedBuffer<'a> {
        PackedBuffer::take(Side::Columns, self.narrow, (lanes, steps), &mut self.rest)
    }

    /// `[BLOCK_KEYS, QUERIES]`
    fn tile(&mut self) -> &'a mut [[f32; QUERIES]] {
        take(&mut self.rest, BLOCK_KEYS * QUERIES).as_chunks_mut().0
    }

    /// `[head_dim, BLOCK_KEYS]`, of keys or values.
    pub fn channels(&mut self) -> PackedBuffer<'a> {
        self.rows(self.head_dim, BLOCK_KEYS)
    }

    /// Buffers of both passes.
    pub fn workspace(&mut self) -> Workspace<'a> {
        let head_dim = self.head_dim;
        Workspace {
            key: self.rows(BLOCK_KEYS, head_dim),
            query: self.columns(GROUP * QUERIES, head_dim),
            block: self.columns(QUERIES, BLOCK_KEYS),
            scores: self.tile(),
            sums: take(&mut self.rest, GROUP * head_dim * QUERIES),
            // Also room for a transpose of as many numbers.
            rows: take(&mut self.rest, QUERIES * head_dim.next_multiple_of(LANES)),
        }
    }

    /// Further buffers of the backward pass.
    pub fn backward_workspace(&mut self) -> BackwardWorkspace<'a> {
        let head_dim = self.head_dim;
        BackwardWorkspace {
            value: self.rows(BLOCK_KEYS, head_dim),
            key_channels: self.channels(),
            d_out: self.columns(GROUP * QUERIES, head_dim),
            query_rows: self.columns(head_dim, GROUP * QUERIES),
            d_out_rows: self.columns(head_dim, GROUP * QUERIES),
            block_rows: self.rows(BLOCK_KEYS, QUERIES),
            d_probabilities: self.tile(),
        }
    }
}
