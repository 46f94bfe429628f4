//! A box of a tensor, and copying between boxes.

use std::ops::Range;

/// A box of a global tensor: `extent[d]` indices from `start[d]` on along every dim `d`.
///
/// Elements inside a box are stored row-major: the last dim varies fastest. A box of a scalar
/// (no dims) holds one element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The first index along each dim.
    pub start: Vec<usize>,
    /// The number of indices along each dim.
    pub extent: Vec<usize>,
}

impl Region {
    /// The box that covers a whole tensor of `shape`.
    pub fn whole(shape: &[usize]) -> Region {
        Region { start: vec![0; shape.len()], extent: shape.to_vec() }
    }

    /// The number of dims.
    pub fn ndim(&self) -> usize {
        self.start.len()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.extent.iter().product()
    }

    /// Whether the box holds no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The indices along `dim`.
    pub fn indices(&self, dim: usize) -> Range<usize> {
        self.start[dim]..self.start[dim] + self.extent[dim]
    }

    /// The box of the elements that are in both, or none when there are none.
    ///
    /// # Panics
    /// When the two have different numbers of dims.
    pub fn intersect(&self, other: &Region) -> Option<Region> {
        assert_same_ndim(self, other);
        let mut common = Region::whole(&self.extent);
        for dim in 0..self.ndim() {
            let (a, b) = (self.indices(dim), other.indices(dim));
            let (start, end) = (a.start.max(b.start), a.end.min(b.end));
            if start >= end {
                return None;
            }
            common.start[dim] = start;
            common.extent[dim] = end - start;
        }
        Some(common)
    }

    /// Whether every element of `other` is in this box.
    pub fn contains(&self, other: &Region) -> bool {
        other.is_empty() || self.intersect(other).as_ref() == Some(other)
    }

    /// The box cut along its first dim into boxes of at most `len` elements, or of one index where that has more; in
    /// row-major order of the box. A box of a scalar is one.
    pub fn slabs(&self, len: usize) -> impl Iterator<Item = Region> {
        let rows = self.extent.first().copied().unwrap_or(1);
        let row_len = self.extent.iter().skip(1).product::<usize>();
        let step = (len / row_len.max(1)).max(1);
        (0..rows).step_by(step).map(move |row| {
            let mut slab = self.clone();
            if let (Some(start), Some(extent)) = (slab.start.first_mut(), slab.extent.first_mut()) {
                *start += row;
                *extent = step.min(rows - row);
            }
            slab
        })
    }

    /// First `(row, col)`, rows and columns of the box in the matrix that a tensor of `shape` is when all of its dims
    /// but the last number rows; a vector is one row.
    ///
    /// # Panics
    /// When the box's rows are not neighbours there.
    pub fn in_matrix(&self, shape: &[usize]) -> ((usize, usize), usize, usize) {
        let Some(last) = self.ndim().checked_sub(1) else { return ((0, 0), 1, 1) };
        let (row, rows) = (0..last).fold((0, 1), |(row, rows), dim| {
            assert!(rows == 1 || self.extent[dim] == shape[dim], "rows of {self:?} are apart in {shape:?}");
            (row * shape[dim] + self.start[dim], rows * self.extent[dim])
        });
        ((row, self.start[last]), rows, self.extent[last])
    }

    /// The offset, in elements, of the first element of `self` in the row-major storage of `outer`.
    ///
    /// # Panics
    /// When `self` does not start inside `outer`.
    pub fn offset_in(&self, outer: &Region) -> usize {
        assert_same_ndim(self, outer);
        (0..self.ndim()).fold(0, |offset, dim| {
            let index = self.start[dim];
            assert!(
                outer.indices(dim).contains(&index),
                "index {index} along dim {dim} is outside {:?}",
                outer.indices(dim)
            );
            offset * outer.extent[dim] + index - outer.start[dim]
        })
    }
}

/// One contiguous piece of a copy between two boxes, in elements of their row-major storages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRun {
    /// The offset of the piece in the storage of the source box.
    pub source: usize,
    /// The offset of the piece in the storage of the target box.
    pub target: usize,
    /// The number of elements of the piece.
    pub len: usize,
}

/// The contiguous pieces that move everything that `source` and `target` have in common from the
/// storage of the one to the storage of the other, in row-major order of the tensor. Nothing in
/// common gives nothing. Trailing dims that both boxes span wholly make one piece.
pub fn copy_runs(source: &Region, target: &Region) -> Vec<CopyRun> {
    let Some(common) = source.intersect(target) else {
        return Vec::new();
    };
    let spans_both = |dim: usize| common.extent[dim] == source.extent[dim] && common.extent[dim] == target.extent[dim];
    // A piece spans the dims from `inner` on: all but its first are whole in both storages.
    let mut inner = common.ndim().saturating_sub(1);
    while inner > 0 && spans_both(inner) {
        inner -= 1;
    }
    let len = common.extent[inner..].iter().product();
    let pieces = common.extent[..inner].iter().product();
    let mut corner = Region { start: common.start.clone(), extent: vec![1; common.ndim()] };
    let mut runs = Vec::with_capacity(pieces);
    for _ in 0..pieces {
        runs.push(CopyRun { source: corner.offset_in(source), target: corner.offset_in(target), len });
        advance(&mut corner.start[..inner], &common);
    }
    runs
}

/// Moves `index` to the next one of `within` in row-major order, from the last back to the first.
fn advance(index: &mut [usize], within: &Region) {
    for dim in (0..index.len()).rev() {
        index[dim] += 1;
        if index[dim] < within.indices(dim).end {
            return;
        }
        index[dim] = within.start[dim];
    }
}

fn assert_same_ndim(a: &Region, b: &Region) {
    assert_eq!(a.ndim(), b.ndim(), "boxes of tensors of different ndim");
}
