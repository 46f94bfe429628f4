//! Boxes of ranges, and copies between boxes, against element-by-element enumeration.

use mesh::{Region, boxes, copy_runs};
use proptest::prelude::*;

/// The row-major offsets, in a tensor of `shape`, of the elements of `region`, in its own order.
fn offsets(region: &Region, shape: &[usize]) -> Vec<usize> {
    let mut found = vec![0];
    for (dim, &size) in shape.iter().enumerate() {
        found = found.iter().flat_map(|&outer| region.indices(dim).map(move |index| outer * size + index)).collect();
    }
    found
}

fn shape_and_range() -> impl Strategy<Value = (Vec<usize>, std::ops::Range<usize>)> {
    proptest::collection::vec(1usize..7, 0..5).prop_flat_map(|shape| {
        let len: usize = shape.iter().product();
        (Just(shape), 0..=len, 0..=len).prop_map(|(shape, a, b)| (shape, a.min(b)..a.max(b)))
    })
}

fn region_of(shape: Vec<usize>) -> impl Strategy<Value = Region> {
    let dims: Vec<_> =
        shape.into_iter().map(|size| (0..size).prop_flat_map(move |start| (Just(start), 1..=size - start))).collect();
    dims.prop_map(|pairs| {
        let (start, extent) = pairs.into_iter().unzip();
        Region { start, extent }
    })
}

fn shape_and_two_regions() -> impl Strategy<Value = (Vec<usize>, Region, Region)> {
    proptest::collection::vec(1usize..7, 0..4)
        .prop_flat_map(|shape| (Just(shape.clone()), region_of(shape.clone()), region_of(shape)))
}

proptest! {
    #[test]
    fn boxes_cover_the_range_exactly_once_and_in_order((shape, range) in shape_and_range()) {
        let found = boxes(range.clone(), &shape);
        let covered: Vec<usize> = found.iter().flat_map(|b| offsets(b, &shape)).collect();
        prop_assert_eq!(covered, range.collect::<Vec<_>>());
        prop_assert!(found.len() <= (2 * shape.len()).saturating_sub(1).max(1));
        prop_assert!(found.iter().all(|b| !b.is_empty()));
    }

    #[test]
    fn an_intersection_holds_what_both_hold((shape, a, b) in shape_and_two_regions()) {
        let in_b = offsets(&b, &shape);
        let expected: Vec<usize> =
            offsets(&a, &shape).into_iter().filter(|o| in_b.contains(o)).collect();
        let common = a.intersect(&b);
        let found = common.as_ref().map_or(Vec::new(), |c| offsets(c, &shape));
        prop_assert_eq!(found, expected);
        prop_assert_eq!(a.contains(&b), common.as_ref() == Some(&b));
    }

    #[test]
    fn copy_runs_move_each_common_element_once((shape, a, b) in shape_and_two_regions()) {
        let (from, to) = (offsets(&a, &shape), offsets(&b, &shape));
        let mut received = vec![None; to.len()];
        for run in copy_runs(&a, &b) {
            prop_assert!(run.len > 0);
            for i in 0..run.len {
                prop_assert_eq!(received[run.target + i].replace(from[run.source + i]), None);
            }
        }
        let expected: Vec<_> = to.iter().map(|&o| from.contains(&o).then_some(o)).collect();
        prop_assert_eq!(received, expected);
    }

    #[test]
    fn the_first_offset_of_a_region_is_that_of_its_corner((shape, a, _) in shape_and_two_regions()) {
        prop_assert_eq!(a.offset_in(&Region::whole(&shape)), offsets(&a, &shape)[0]);
    }
}

#[test]
fn slabs_are_a_box_in_order() {
    let of = |region: &Region, len| region.slabs(len).collect::<Vec<_>>();
    let matrix = Region { start: vec![2, 1], extent: vec![5, 4] };
    let rows = |start, rows| Region { start: vec![start, 1], extent: vec![rows, 4] };
    assert_eq!(of(&matrix, 9), [rows(2, 2), rows(4, 2), rows(6, 1)]);
    assert_eq!(of(&matrix, 1), [2, 3, 4, 5, 6].map(|row| rows(row, 1)), "one row at least");
    assert_eq!(of(&matrix, 100), [matrix]);
    assert_eq!(of(&Region::whole(&[]), 7), [Region::whole(&[])]);
    assert_eq!(of(&Region::whole(&[0, 3]), 7), []);
}

#[test]
fn a_range_of_a_matrix_is_at_most_three_boxes() {
    let found = boxes(3..17, &[5, 4]);
    let expected = [
        Region { start: vec![0, 3], extent: vec![1, 1] },
        Region { start: vec![1, 0], extent: vec![3, 4] },
        Region { start: vec![4, 0], extent: vec![1, 1] },
    ];
    assert_eq!(found, expected);
}

#[test]
fn whole_tensors_are_one_box_and_empty_ranges_none() {
    assert_eq!(boxes(0..20, &[5, 4]), [Region::whole(&[5, 4])]);
    assert_eq!(boxes(0..1, &[]), [Region::whole(&[])]);
    assert!(boxes(7..7, &[5, 4]).is_empty());
    assert!(boxes(0..0, &[5, 0, 4]).is_empty());
}

#[test]
fn whole_trailing_dims_copy_as_one_piece() {
    let source = Region { start: vec![2, 0, 0], extent: vec![3, 4, 5] };
    let runs = copy_runs(&source, &Region::whole(&[10, 4, 5]));
    assert_eq!(runs.len(), 1);
    assert_eq!((runs[0].source, runs[0].target, runs[0].len), (0, 40, 60));
}

#[test]
#[should_panic(expected = "ends past the 20 elements")]
fn a_range_past_the_end_is_refused() {
    boxes(0..21, &[5, 4]);
}
