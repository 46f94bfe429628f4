//! Memory for the blocks of one group of queries and one tile of keys, in that of packed panels.

use device::Bf16;

use super::query_sums::QuerySums;
use super::{GROUP, RoundedRow};
use crate::attention::{KEYS, QUERIES};
use crate::gemm::PackingBuffers;
use crate::gemm::pairs::small::{PackingWorkspace, Side, SmallProducts};
use crate::lanes::LANES;

/// Buffers of both passes.
pub(super) struct Workspace<'a> {
    /// `[KEYS, head_dim]`: a tile's keys.
    pub key: PackingWorkspace<'a>,
    /// `[head_dim, queries]`: the group's queries.
    pub query: PackingWorkspace<'a>,
    /// `[KEYS, QUERIES]`: probabilities, or gradients of scores, of a block.
    pub block: PackingWorkspace<'a>,
    /// `[KEYS, QUERIES]`: products of keys and queries.
    pub scores: &'a mut [[f32; QUERIES]],
    /// `[KEYS, queries]`: probabilities.
    pub probabilities: &'a mut [RoundedRow],
    pub sums: QuerySums<'a>,
    /// `[QUERIES, head_dim up to whole registers]`: the transpose of a block's sums.
    pub rows: &'a mut [f32],
}

/// Further buffers of the backward pass.
pub(super) struct BackwardWorkspace<'a> {
    /// `[KEYS, head_dim]`: a tile's values.
    pub value: PackingWorkspace<'a>,
    /// `[head_dim, KEYS]`: a tile's keys.
    pub key_channels: PackingWorkspace<'a>,
    /// `[head_dim, queries]`: gradients of the group's outputs.
    pub d_out: PackingWorkspace<'a>,
    /// `[queries, head_dim]`: the group's queries, and gradients of its outputs.
    pub query_rows: PackingWorkspace<'a>,
    pub d_out_rows: PackingWorkspace<'a>,
    /// `[KEYS, queries]`: probabilities, or gradients of scores, of the group.
    pub group: PackingWorkspace<'a>,
    /// `[KEYS, QUERIES]`: products of values and gradients of outputs.
    pub d_probabilities: &'a mut [[f32; QUERIES]],
    /// `[KEYS, queries]`: gradients of scores.
    pub d_scores: &'a mut [RoundedRow],
}

/// Memory that is given away from the front, a cache line at a time.
pub(super) struct Memory<'a> {
    products: &'a SmallProducts,
    head_dim: usize,
    rest: &'a mut [u8],
}

impl<'a> Memory<'a> {
    /// All of the buffers.
    pub fn new(products: &'a SmallProducts, packing: &'a mut PackingBuffers, head_dim: usize) -> Self {
        Self { products, head_dim, rest: packing.bytes() }
    }

    fn panels(&mut self, side: Side, lanes: usize, steps: usize) -> PackingWorkspace<'a> {
        PackingWorkspace::take(self.products, side, (lanes, steps), &mut self.rest)
    }

    fn numbers<T: bytemuck::Pod>(&mut self, len: usize) -> &'a mut [T] {
        let bytes = (len * size_of::<T>()).next_multiple_of(64);
        let Some(memory) = self.rest.split_off_mut(..bytes) else { panic!("{bytes} bytes in {}", self.rest.len()) };
        &mut bytemuck::cast_slice_mut(memory)[..len]
    }

    /// `[KEYS, QUERIES]`
    fn tile(&mut self) -> &'a mut [[f32; QUERIES]] {
        self.numbers(KEYS * QUERIES).as_chunks_mut().0
    }

    /// `[KEYS, queries]`
    fn rounded(&mut self) -> &'a mut [RoundedRow] {
        self.numbers::<Bf16>(KEYS * size_of::<RoundedRow>() / size_of::<Bf16>()).as_chunks_mut().0.as_chunks_mut().0
    }

    /// `[head_dim, KEYS]`, of keys or values.
    pub fn channels(&mut self) -> PackingWorkspace<'a> {
        self.panels(Side::A, self.head_dim, KEYS)
    }

    /// Buffers of both passes.
    pub fn workspace(&mut self) -> Workspace<'a> {
        let head_dim = self.head_dim;
        Workspace {
            key: self.panels(Side::A, KEYS, head_dim),
            query: self.panels(Side::B, GROUP * QUERIES, head_dim),
            block: self.panels(Side::B, QUERIES, KEYS),
            scores: self.tile(),
            probabilities: self.rounded(),
            sums: QuerySums::new(self.numbers(GROUP * head_dim * QUERIES), head_dim),
            // Also room for a transpose of as many numbers.
            rows: self.numbers(QUERIES * head_dim.next_multiple_of(LANES)),
        }
    }

    /// Further buffers of the backward pass.
    pub fn backward_workspace(&mut self) -> BackwardWorkspace<'a> {
        let head_dim = self.head_dim;
        BackwardWorkspace {
            value: self.panels(Side::A, KEYS, head_dim),
            key_channels: self.channels(),
            d_out: self.panels(Side::B, GROUP * QUERIES, head_dim),
            query_rows: self.panels(Side::B, head_dim, GROUP * QUERIES),
            d_out_rows: self.panels(Side::B, head_dim, GROUP * QUERIES),
            group: self.panels(Side::A, KEYS, GROUP * QUERIES),
            d_probabilities: self.tile(),
            d_scores: self.rounded(),
        }
    }
}
