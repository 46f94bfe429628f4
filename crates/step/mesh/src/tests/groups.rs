//! Coordinates and groups, on meshes of every shape.

#![allow(clippy::unwrap_used)]

use mesh::{Axis, AxisSet, AxisSizes, Mesh, MeshError, Rank};
use proptest::prelude::*;

fn any_mesh() -> impl Strategy<Value = Mesh> {
    proptest::array::uniform6(1usize..4).prop_map(|[pp, dp_outer, dp_inner, cp, ep, tp]| {
        let sizes = AxisSizes { pp, dp_outer, dp_inner, cp, ep, tp };
        Mesh::new(sizes).unwrap()
    })
}

fn any_axes() -> impl Strategy<Value = AxisSet> {
    proptest::sample::subsequence(Axis::ALL.to_vec(), 0..=6).prop_map(|axes| axes.into_iter().collect())
}

proptest! {
    #[test]
    fn ranks_and_coordinates_round_trip(mesh in any_mesh()) {
        for rank in mesh.ranks() {
            prop_assert_eq!(mesh.rank(mesh.coord(rank)), rank);
        }
    }

    #[test]
    fn the_groups_of_a_set_partition_the_world(mesh in any_mesh(), axes in any_axes()) {
        let mut seen = vec![0; mesh.world_size()];
        for members in mesh.groups(axes) {
            prop_assert_eq!(members.len(), mesh.size(axes));
            prop_assert!(members.is_sorted());
            for rank in members {
                seen[rank.0] += 1;
            }
        }
        prop_assert!(seen.iter().all(|&times| times == 1));
    }

    #[test]
    fn members_see_the_same_group_from_their_own_position(mesh in any_mesh(), axes in any_axes()) {
        for members in mesh.groups(axes) {
            for (position, &rank) in members.iter().enumerate() {
                let group = mesh.group(rank, axes);
                prop_assert_eq!(group.members(), &members[..]);
                prop_assert_eq!(group.position(), position);
                prop_assert_eq!(group.rank(), rank);
                prop_assert_eq!(mesh.coord(rank).position(axes), position);
            }
        }
    }

    #[test]
    fn members_differ_along_the_axes_of_the_set_only(mesh in any_mesh(), axes in any_axes()) {
        for rank in mesh.ranks() {
            let own = mesh.coord(rank);
            for &member in mesh.group(rank, axes).members() {
                for axis in axes.complement().iter() {
                    prop_assert_eq!(mesh.coord(member).along(axis), own.along(axis));
                }
            }
        }
    }

    #[test]
    fn moving_along_an_axis_changes_that_index_only(mesh in any_mesh()) {
        for rank in mesh.ranks() {
            let own = mesh.coord(rank);
            for axis in Axis::ALL {
                for value in 0..mesh.size(axis) {
                    let moved = mesh.with(own, axis, value);
                    prop_assert_eq!(moved.along(axis), value);
                    prop_assert_eq!(mesh.with(moved, axis, own.along(axis)), own);
                }
            }
        }
    }
}

#[test]
fn tp_varies_fastest_and_pp_slowest() {
    let mesh = Mesh::new(AxisSizes::dp_tp_pp(2, 2, 2)).unwrap();
    let places: Vec<String> = mesh.ranks().map(|r| mesh.coord(r).to_string()).collect();
    assert_eq!(
        places,
        [
            "pp 0, dp 0, tp 0",
            "pp 0, dp 0, tp 1",
            "pp 0, dp 1, tp 0",
            "pp 0, dp 1, tp 1",
            "pp 1, dp 0, tp 0",
            "pp 1, dp 0, tp 1",
            "pp 1, dp 1, tp 0",
            "pp 1, dp 1, tp 1",
        ]
    );
    assert_eq!(mesh.group(Rank(5), Axis::Tp).to_string(), "ranks 4, 5");
    assert_eq!(mesh.group(Rank(5), AxisSet::DATA).to_string(), "ranks 5, 7");
    assert_eq!(mesh.group(Rank(5), Axis::Pp).to_string(), "ranks 1, 5");
}

#[test]
fn a_coordinate_shows_the_axes_that_the_mesh_has() {
    let sizes = AxisSizes { dp_outer: 2, dp_inner: 3, cp: 2, ..AxisSizes::ONE };
    let mesh = Mesh::new(sizes).unwrap();
    assert_eq!(mesh.coord(Rank(11)).to_string(), "pp 0, dp 5, cp 1, tp 0");
    assert_eq!(mesh.coord(Rank(11)).position(AxisSet::DATA), 5);
}

#[test]
fn one_rank_is_a_mesh_with_groups_of_one() {
    let mesh = Mesh::new(AxisSizes::ONE).unwrap();
    let group = mesh.group(Rank(0), AxisSet::ALL);
    assert_eq!((group.size(), group.position()), (1, 0));
}

#[test]
fn sizes_of_zero_and_overflow_are_refused_by_name() {
    let zero = AxisSizes { cp: 0, ..AxisSizes::ONE };
    assert_eq!(Mesh::new(zero), Err(MeshError::EmptyAxis(Axis::Cp)));
    let huge = AxisSizes { pp: usize::MAX, tp: 2, ..AxisSizes::ONE };
    assert!(Mesh::new(huge).unwrap_err().to_string().contains("exceeds"));
}

#[test]
#[should_panic(expected = "rank 2 is outside a mesh of 2 ranks")]
fn a_rank_of_another_world_is_refused() {
    Mesh::new(AxisSizes::dp_tp_pp(2, 1, 1)).unwrap().coord(Rank(2));
}

#[test]
fn sets_of_axes_combine() {
    let model = AxisSet::DATA.complement();
    assert_eq!(model.to_string(), "pp+cp+ep+tp");
    assert!(model.intersection(AxisSet::DATA).is_empty());
    assert_eq!(model.union(AxisSet::DATA), AxisSet::ALL);
    assert_eq!(AxisSet::ALL.without(Axis::Pp).with(Axis::Pp), AxisSet::ALL);
    assert_eq!(AxisSet::NONE.to_string(), "none");
}
