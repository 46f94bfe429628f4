//! The order in which ranks fill hosts.

use crate::axis::Axis;
use crate::{Mesh, Rank};

/// The order in which the ranks of a mesh fill hosts: peers along the axis that is named first are nearest, and share a
/// host before all others do. Context- and expert-parallel peers are next to tensor-parallel ones where an order does
/// not name them, and the replicas of one sharding group are nearer than the groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementOrder {
    /// Tensor-parallel peers talk inside every layer, stages for each microbatch, replicas once a step.
    #[default]
    TpPpDp,
    /// As ranks are numbered: Megatron's order. It suits replicas that gather for each use (ZeRO-3).
    TpDpPp,
    /// Stages nearest, then tensor-parallel peers.
    PpTpDp,
    /// Stages nearest, then replicas.
    PpDpTp,
    /// Replicas nearest, then tensor-parallel peers.
    DpTpPp,
    /// Replicas nearest, then stages.
    DpPpTp,
    /// Ranks that share sequences nearest: they talk inside every layer, too. It suits long sequences and few heads.
    CpTpPpDp,
    /// Ranks that share sequences farther than stages: it suits models whose keys and values are few.
    TpPpCpDp,
    /// Ranks that share sequences farthest.
    TpPpDpCp,
}

impl PlacementOrder {
    /// All axes, nearest peers first.
    pub fn axes(self) -> [Axis; 6] {
        use Axis::{Cp, DpInner, DpOuter, Ep, Pp, Tp};
        match self {
            PlacementOrder::TpPpDp => [Tp, Cp, Ep, Pp, DpInner, DpOuter],
            PlacementOrder::TpDpPp => [Tp, Cp, Ep, DpInner, DpOuter, Pp],
            PlacementOrder::PpTpDp => [Pp, Tp, Cp, Ep, DpInner, DpOuter],
            PlacementOrder::PpDpTp => [Pp, DpInner, DpOuter, Tp, Cp, Ep],
            PlacementOrder::DpTpPp => [DpInner, DpOuter, Tp, Cp, Ep, Pp],
            PlacementOrder::DpPpTp => [DpInner, DpOuter, Pp, Tp, Cp, Ep],
            PlacementOrder::CpTpPpDp => [Cp, Tp, Ep, Pp, DpInner, DpOuter],
            PlacementOrder::TpPpCpDp => [Tp, Ep, Pp, Cp, DpInner, DpOuter],
            PlacementOrder::TpPpDpCp => [Tp, Ep, Pp, DpInner, DpOuter, Cp],
        }
    }

    /// The place of `rank` among all ranks of `mesh` when they fill hosts in this order, from 0.
    pub fn slot(self, mesh: &Mesh, rank: Rank) -> usize {
        let coord = mesh.coord(rank);
        let farthest_first = self.axes().into_iter().rev();
        farthest_first.fold(0, |slot, axis| slot * mesh.size(axis) + coord.along(axis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AxisSizes;

    const ALL: [PlacementOrder; 9] = [
        PlacementOrder::TpPpDp,
        PlacementOrder::TpDpPp,
        PlacementOrder::PpTpDp,
        PlacementOrder::PpDpTp,
        PlacementOrder::DpTpPp,
        PlacementOrder::DpPpTp,
        PlacementOrder::CpTpPpDp,
        PlacementOrder::TpPpCpDp,
        PlacementOrder::TpPpDpCp,
    ];

    #[test]
    fn every_order_has_every_axis_once() {
        for order in ALL {
            let mut axes = order.axes();
            axes.sort_unstable();
            assert_eq!(axes, Axis::ALL, "{order:?}");
        }
    }

    /// Four slots of a host: 2 replicas, 2 ranks that share sequences, 2 tensor-parallel ones, 2 stages.
    #[test]
    fn ranks_that_share_sequences_are_as_near_as_the_order_says() {
        let sizes = AxisSizes { cp: 2, ..AxisSizes::dp_tp_pp(2, 2, 2) };
        let mesh = Mesh::new(sizes).expect("a mesh");
        let near = |order: PlacementOrder| {
            let mut slots: Vec<usize> =
                mesh.group(Rank(0), Axis::Cp).members().iter().map(|rank| order.slot(&mesh, *rank)).collect();
            slots.sort_unstable();
            slots
        };
        assert_eq!(near(PlacementOrder::CpTpPpDp), [0, 1]);
        assert_eq!(near(PlacementOrder::TpPpDp), [0, 2]);
        assert_eq!(near(PlacementOrder::TpPpCpDp), [0, 4]);
        assert_eq!(near(PlacementOrder::TpPpDpCp), [0, 8]);
        for order in ALL {
            let mut slots: Vec<usize> = mesh.ranks().map(|rank| order.slot(&mesh, rank)).collect();
            slots.sort_unstable();
            assert_eq!(slots, (0..16).collect::<Vec<_>>(), "{order:?}");
        }
    }

    #[test]
    fn the_order_of_rank_numbers_is_one_of_them() {
        let mut axes = PlacementOrder::TpDpPp.axes();
        axes.reverse();
        let data: Vec<Axis> = axes.into_iter().filter(|axis| !matches!(axis, Axis::Cp | Axis::Ep)).collect();
        assert_eq!(data, [Axis::Pp, Axis::DpOuter, Axis::DpInner, Axis::Tp]);
    }
}
