//! The flat buffer of a unit: all of its parameters in one piece, so that gathers, reductions and the optimizer work in
//! place.

use std::ops::Range;

use mesh::{AxisSizes, Coord};

use crate::model::ModelSpec;
use crate::parallelism::Parallelism;
use crate::params::{ParamSpec, Sharding, params};
use crate::unit::Unit;
use crate::unit_axes::UnitAxes;
use crate::zero::{Kept, StateKind, ZeroStage};

/// Data-parallel shards end on a multiple of this many elements, which is also the block of the global norm:
/// a block never is on two ranks, so the norm has the same bits whatever is sharded.
pub const SHARD_BLOCK: usize = 4096;

/// Where one parameter's local part is in its unit's flat buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The declaration.
    pub param: ParamSpec,
    /// First element in the flat buffer.
    pub offset: usize,
    /// Local rows (1 for vectors).
    pub rows: usize,
    /// Local columns.
    pub cols: usize,
    /// Local dims.
    pub dims: Vec<usize>,
}

impl Segment {
    /// The segment's elements in the flat buffer.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.rows * self.cols
    }

    /// The matrices of a stack, whose last two dims are one; itself where there are no others. A rank has whole ones of
    /// a stack.
    pub fn matrices(&self) -> Vec<Segment> {
        let [.., rows, cols] = self.dims[..] else { return vec![self.clone()] };
        if self.dims.len() == 2 {
            return vec![self.clone()];
        }
        let matrix = |offset| Segment {
            param: ParamSpec { shape: vec![rows, cols], sharding: Sharding::Replicated, ..self.param.clone() },
            offset,
            rows,
            cols,
            dims: vec![rows, cols],
        };
        self.range().step_by(rows * cols).map(matrix).collect()
    }
}

/// A unit's flat buffer on one rank: decayed parameters, then the rest, then padding.
///
/// The same for every ZeRO stage, so that the stage changes neither the order of sums nor their grouping.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitLayout {
    /// Parameters in buffer order, without gaps.
    pub segments: Vec<Segment>,
    /// Elements with weight decay, at the front.
    pub decayed_len: usize,
    /// Elements of parameters.
    pub len: usize,
    /// Equal contiguous slices that data parallelism may hold.
    pub num_shards: usize,
    /// Elements of one slice: a multiple of [`SHARD_BLOCK`].
    pub shard_len: usize,
    /// The axes over which the unit's parameters are reduced and sharded.
    axes: UnitAxes,
}

impl UnitLayout {
    /// Lays out the parameters of `unit` for a rank of `parallelism`, with a slice for each replica.
    pub fn of(model: &ModelSpec, unit: Unit, parallelism: &Parallelism) -> UnitLayout {
        let (params, sizes) = (params(model, unit), parallelism.axis_sizes());
        let num_shards = sizes.size(UnitAxes::of(&params, sizes).data);
        UnitLayout::new(params, sizes, num_shards)
    }

    /// Lays out `params` (decayed first, as [`crate::params()`] returns them) for a rank of a mesh of `sizes`, and
    /// `num_shards` slices.
    pub fn new(params: Vec<ParamSpec>, sizes: AxisSizes, num_shards: usize) -> UnitLayout {
        let axes = UnitAxes::of(&params, sizes);
        let mut offset = 0;
        let mut decayed_len = 0;
        let segments: Vec<Segment> = params
            .into_iter()
            .map(|param| {
                let param = ParamSpec { sharding: param.sharding.on(sizes), ..param };
                let ((rows, cols), dims) = (param.local_shape(sizes), param.local_dims(sizes));
                let segment = Segment { param, offset, rows, cols, dims };
                offset += rows * cols;
                if segment.param.decay {
                    assert!(decayed_len == segment.offset, "decayed parameters come first in {}", segment.param.unit);
                    decayed_len = offset;
                }
                segment
            })
            .collect();
        let shard_len = offset.div_ceil(num_shards * SHARD_BLOCK) * SHARD_BLOCK;
        UnitLayout { segments, decayed_len, len: offset, num_shards, shard_len, axes }
    }

    /// Elements with padding: `num_shards * shard_len`.
    pub fn padded_len(&self) -> usize {
        self.num_shards * self.shard_len
    }

    /// Elements of slice `index`.
    pub fn shard(&self, index: usize) -> Range<usize> {
        self.part(self.num_shards, index)
    }

    /// Elements of part `index` of `num_parts` equal contiguous ones, each of one or several slices.
    ///
    /// # Panics
    /// When `num_parts` does not divide [`UnitLayout::num_shards`].
    pub fn part(&self, num_parts: usize, index: usize) -> Range<usize> {
        assert!(self.num_shards.is_multiple_of(num_parts), "{num_parts} parts of {} slices", self.num_shards);
        let len = self.padded_len() / num_parts;
        index * len..(index + 1) * len
    }

    /// The axes over which the unit's parameters are reduced and sharded.
    pub fn axes(&self) -> UnitAxes {
        self.axes
    }

    /// The elements of `state` that the rank at `coord` keeps between its uses.
    pub fn kept(&self, zero: ZeroStage, state: StateKind, coord: Coord) -> Range<usize> {
        match zero.keeps(state) {
            Kept::Whole => 0..self.padded_len(),
            Kept::Shard => self.shard_at(coord),
        }
    }

    /// The shard of the rank at `coord`, which is that of its position in every sharding group.
    pub fn shard_at(&self, coord: Coord) -> Range<usize> {
        let axes = self.axes().shards;
        self.part(coord.sizes().size(axes), coord.position(axes))
    }

    /// Whether the unit has no parameters (the embedding of a rotary model).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segment of the parameter with this global name.
    pub fn segment(&self, name: &str) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.param.name == name)
    }
}
