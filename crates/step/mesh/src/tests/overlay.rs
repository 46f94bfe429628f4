//! An axis over others: its groups and its replicas partition the ranks below, whatever the mesh.

#![allow(clippy::unwrap_used)]

use mesh::{Axis, AxisSet, AxisSizes, Mesh, Overlay, OverlayError, Rank};
use proptest::prelude::*;

const DP_TP: AxisSet = AxisSet::DATA.with(Axis::Tp);

fn experts(sizes: AxisSizes, over: AxisSet, degree: usize) -> Result<Overlay, OverlayError> {
    Overlay::new(Mesh::new(sizes).unwrap(), Axis::Ep, over, degree)
}

/// A mesh with one rank along ep, some axes, and a degree that divides the ranks along them.
fn any_overlay() -> impl Strategy<Value = (Mesh, AxisSet, Overlay)> {
    let sizes = proptest::array::uniform5(1usize..4);
    let below = AxisSet::of(Axis::Ep).complement().iter().collect::<Vec<_>>();
    let axes = proptest::sample::subsequence(below, 0..=5);
    (sizes, axes, any::<proptest::sample::Index>()).prop_map(|([pp, dp_outer, dp_inner, cp, tp], axes, degree)| {
        let mesh = Mesh::new(AxisSizes { pp, dp_outer, dp_inner, cp, ep: 1, tp }).unwrap();
        let over: AxisSet = axes.into_iter().collect();
        let divisors = mesh::divisors(mesh.size(over));
        (mesh, over, Overlay::new(mesh, Axis::Ep, over, divisors[degree.index(divisors.len())]).unwrap())
    })
}

proptest! {
    #[test]
    fn groups_and_replicas_are_the_rows_and_columns_of_the_ranks_below((mesh, over, overlay) in any_overlay()) {
        for rank in mesh.ranks() {
            let (below, group, replicas) = (mesh.group(rank, over), overlay.group(rank), overlay.replicas(rank));
            prop_assert_eq!(group.size() * replicas.size(), below.size());
            prop_assert_eq!((group.rank(), replicas.rank()), (rank, rank));
            prop_assert_eq!(group.position(), overlay.index(rank));
            let mut met = Vec::new();
            for &member in group.members() {
                let seen = overlay.group(member);
                prop_assert_eq!(seen.members(), group.members());
                met.extend_from_slice(overlay.replicas(member).members());
            }
            met.sort_unstable();
            prop_assert_eq!(&met[..], below.members(), "each rank below once");
            for &member in replicas.members() {
                prop_assert_eq!(overlay.index(member), overlay.index(rank));
            }
        }
    }
}

#[test]
fn experts_over_dp_and_tp_take_neighbours_first() {
    let listed = |degree| {
        let overlay = experts(AxisSizes::dp_tp_pp(2, 2, 2), DP_TP, degree).unwrap();
        (overlay.group(Rank(6)).to_string(), overlay.replicas(Rank(6)).to_string(), overlay.index(Rank(6)))
    };
    assert_eq!(listed(1), ("ranks 6".into(), "ranks 4, 5, 6, 7".into(), 0));
    assert_eq!(listed(2), ("ranks 6, 7".into(), "ranks 4, 6".into(), 0));
    assert_eq!(listed(4), ("ranks 4, 5, 6, 7".into(), "ranks 6".into(), 2));
}

#[test]
fn an_overlay_that_does_not_fit_is_refused_by_name() {
    let refused = |sizes, over, degree| experts(sizes, over, degree).unwrap_err().to_string();
    let sizes = AxisSizes::dp_tp_pp(2, 2, 1);
    assert_eq!(refused(sizes, DP_TP, 3), "ep = 3 must divide the 4 ranks along dp_outer+dp_inner+tp");
    assert_eq!(refused(sizes, AxisSet::of(Axis::Tp), 0), "ep = 0 must divide the 2 ranks along tp");
    assert_eq!(
        refused(AxisSizes { ep: 2, ..sizes }, DP_TP, 2),
        "the mesh must have 1 rank along ep, which has the ranks of other axes; got 2"
    );
}
