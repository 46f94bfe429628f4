//! A contiguous range of a row-major tensor as boxes.

use crate::region::Region;
use std::ops::Range;

/// The elements `range` of a row-major tensor of `shape`, as disjoint boxes in ascending order.
///
/// At most `2 * ndim - 1` boxes (three for a matrix: the rest of the first row, whole rows, the
/// beginning of the last row), and none for an empty range. This is how a flat shard of a buffer
/// becomes something that a checkpoint of any other layout can intersect.
///
/// # Panics
/// When `range` ends past the last element.
pub fn boxes(range: Range<usize>, shape: &[usize]) -> Vec<Region> {
    let len: usize = shape.iter().product();
    assert!(range.end <= len, "the range {range:?} ends past the {len} elements of shape {shape:?}");
    let mut found = Vec::new();
    collect(range, shape, &mut Vec::new(), &mut found);
    found
}

/// Appends the boxes of `range`, which counts elements of the sub-tensor at the indices `outer`.
fn collect(range: Range<usize>, shape: &[usize], outer: &mut Vec<usize>, found: &mut Vec<Region>) {
    if range.is_empty() {
        return;
    }
    let Some((&rows, inner_shape)) = shape.get(outer.len()..).and_then(<[_]>::split_first) else {
        found.push(slab(outer, &[]));
        return;
    };
    let row_len: usize = inner_shape.iter().product();
    let (first, head) = (range.start / row_len, range.start % row_len);
    let (last, tail) = (range.end / row_len, range.end % row_len);
    if first == last {
        return collect_in_row(first, head..tail, shape, outer, found);
    }
    let mut whole_rows = first..last;
    if head > 0 {
        collect_in_row(first, head..row_len, shape, outer, found);
        whole_rows.start += 1;
    }
    if !whole_rows.is_empty() {
        debug_assert!(whole_rows.end <= rows, "whole rows are inside the tensor");
        let mut whole = slab(outer, &shape[outer.len()..]);
        whole.start[outer.len()] = whole_rows.start;
        whole.extent[outer.len()] = whole_rows.len();
        found.push(whole);
    }
    collect_in_row(last, 0..tail, shape, outer, found);
}

/// Appends the boxes of `range`, which counts elements of row `row` of that sub-tensor.
fn collect_in_row(row: usize, range: Range<usize>, shape: &[usize], outer: &mut Vec<usize>, found: &mut Vec<Region>) {
    outer.push(row);
    collect(range, shape, outer, found);
    outer.pop();
}

/// The box of all of the sub-tensor of `inner_shape` at the indices `outer`.
fn slab(outer: &[usize], inner_shape: &[usize]) -> Region {
    let zeros = std::iter::repeat_n(&0, inner_shape.len());
    Region {
        start: outer.iter().chain(zeros).copied().collect(),
        extent: std::iter::repeat_n(&1, outer.len()).chain(inner_shape).copied().collect(),
    }
}
