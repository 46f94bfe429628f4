//! Whether boxes of different owners make up a tensor.

use std::collections::BTreeMap;

use crate::region::Region;

/// A box of a tensor, and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedBox {
    /// A number of the owner.
    pub owner: usize,
    /// The box.
    pub region: Region,
}

/// Why boxes do not tile a tensor. Elements are `(row, col)`, as in [`Region::in_matrix`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TilingFault {
    /// A box reaches beyond the tensor.
    Outside {
        /// Whose box it is.
        owner: usize,
    },
    /// Two boxes have an element in common.
    Twice {
        /// The element.
        element: (usize, usize),
        /// Whose boxes they are.
        owners: [usize; 2],
    },
    /// No box has an element.
    Missing {
        /// The first such element.
        element: (usize, usize),
    },
}

/// Rows and columns of a box as half-open ranges.
#[derive(Clone, Copy)]
struct Rectangle {
    owner: usize,
    rows: (usize, usize),
    cols: (usize, usize),
}

/// The first fault found where `boxes` do not hold each element of a tensor of `shape` exactly once.
///
/// # Panics
/// The panics of [`Region::in_matrix`].
pub fn tiling_fault(shape: &[usize], boxes: &[OwnedBox]) -> Option<TilingFault> {
    let whole = rectangle(0, &Region::whole(shape), shape);
    let mut all: Vec<Rectangle> = boxes.iter().map(|one| rectangle(one.owner, &one.region, shape)).collect();
    all.retain(|one| one.rows.0 < one.rows.1 && one.cols.0 < one.cols.1);
    if let Some(outside) = all.iter().find(|one| one.rows.1 > whole.rows.1 || one.cols.1 > whole.cols.1) {
        return Some(TilingFault::Outside { owner: outside.owner });
    }
    all.sort_by_key(|one| (one.rows.0, one.cols.0));
    twice(&all).or_else(|| missing(whole, &all))
}

fn rectangle(owner: usize, region: &Region, shape: &[usize]) -> Rectangle {
    let ((row, col), rows, cols) = region.in_matrix(shape);
    Rectangle { owner, rows: (row, row + rows), cols: (col, col + cols) }
}

/// Sweeps over the rows. Boxes of earlier rows that still reach into the swept one have disjoint columns.
fn twice(sorted: &[Rectangle]) -> Option<TilingFault> {
    let mut open: BTreeMap<usize, Rectangle> = BTreeMap::new();
    for one in sorted {
        while let Some((&start, &other)) = open.range(..one.cols.1).next_back() {
            if other.cols.1 <= one.cols.0 {
                break;
            }
            if other.rows.1 > one.rows.0 {
                let element = (one.rows.0, one.cols.0.max(other.cols.0));
                return Some(TilingFault::Twice { element, owners: [other.owner, one.owner] });
            }
            open.remove(&start);
        }
        open.insert(one.cols.0, *one);
    }
    None
}

/// Boxes that have no element in common miss one where they have too few together.
fn missing(whole: Rectangle, sorted: &[Rectangle]) -> Option<TilingFault> {
    let size = |one: &Rectangle| (one.rows.1 - one.rows.0) * (one.cols.1 - one.cols.0);
    if sorted.iter().map(size).sum::<usize>() == size(&whole) {
        return None;
    }
    // The first missing element is in row 0 or in the first row after a box.
    let mut rows: Vec<usize> = sorted.iter().map(|one| one.rows.1).chain([0]).collect();
    rows.sort_unstable();
    rows.dedup();
    rows.into_iter().filter(|row| *row < whole.rows.1).find_map(|row| {
        let mut cols: Vec<(usize, usize)> =
            sorted.iter().filter(|one| one.rows.0 <= row && row < one.rows.1).map(|one| one.cols).collect();
        cols.sort_unstable();
        let covered = cols.iter().fold(0, |covered, (start, end)| if *start == covered { *end } else { covered });
        (covered < whole.cols.1).then_some(TilingFault::Missing { element: (row, covered) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes(list: &[([usize; 2], [usize; 2])]) -> Vec<OwnedBox> {
        let owned = |(owner, (start, extent)): (usize, &([usize; 2], [usize; 2]))| OwnedBox {
            owner,
            region: Region { start: start.to_vec(), extent: extent.to_vec() },
        };
        list.iter().enumerate().map(owned).collect()
    }

    #[test]
    fn boxes_that_tile_have_no_fault() {
        let list = [([0, 0], [2, 3]), ([0, 3], [3, 1]), ([2, 0], [1, 2]), ([2, 2], [1, 1]), ([3, 0], [1, 4])];
        assert_eq!(tiling_fault(&[4, 4], &boxes(&list)), None);
        let vector = |start, extent| OwnedBox { owner: 0, region: Region { start: vec![start], extent: vec![extent] } };
        assert_eq!(tiling_fault(&[5], &[vector(2, 3), vector(0, 2)]), None);
    }

    #[test]
    fn faults_are_named() {
        let twice = [([0, 0], [4, 2]), ([0, 2], [4, 2]), ([3, 1], [1, 1])];
        let expected = TilingFault::Twice { element: (3, 1), owners: [0, 2] };
        assert_eq!(tiling_fault(&[4, 4], &boxes(&twice)), Some(expected));
        let missing = [([0, 0], [4, 2]), ([0, 2], [2, 2]), ([3, 2], [1, 2])];
        assert_eq!(tiling_fault(&[4, 4], &boxes(&missing)), Some(TilingFault::Missing { element: (2, 2) }));
        assert_eq!(tiling_fault(&[4, 4], &[]), Some(TilingFault::Missing { element: (0, 0) }));
        assert_eq!(tiling_fault(&[4, 4], &boxes(&[([3, 0], [2, 4])])), Some(TilingFault::Outside { owner: 0 }));
    }

    /// Against counting every element, on all sets of three boxes that end on a grid of 3 x 2.
    #[test]
    fn every_set_of_three_boxes_is_judged_as_by_counting() {
        let mut all = vec![];
        for (row, col) in (0..3).flat_map(|row| (0..2).map(move |col| (row, col))) {
            for (rows, cols) in (1..=3 - row).flat_map(|rows| (1..=2 - col).map(move |cols| (rows, cols))) {
                all.push(([row, col], [rows, cols]));
            }
        }
        let mut tilings = 0;
        for (first, second, third) in
            all.iter().flat_map(|a| all.iter().flat_map(|b| all.iter().map(|c| (*a, *b, *c))).collect::<Vec<_>>())
        {
            let list = [first, second, third];
            let mut counts = [[0; 2]; 3];
            for ([row, col], [rows, cols]) in list {
                counts[row..row + rows]
                    .iter_mut()
                    .for_each(|row| row[col..col + cols].iter_mut().for_each(|n| *n += 1));
            }
            let is_tiling = counts.iter().flatten().all(|count| *count == 1);
            assert_eq!(tiling_fault(&[3, 2], &boxes(&list)).is_none(), is_tiling, "{list:?}");
            tilings += usize::from(is_tiling);
        }
        assert!(tilings > 0);
    }
}
