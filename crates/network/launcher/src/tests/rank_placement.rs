//! Ranks on hosts: which peers are together.

use launcher::{Host, RankPlacement};
use mesh::{Axis, AxisSet, AxisSizes, Mesh, PlacementOrder, Rank};
use proptest::prelude::*;

fn hosts(processes: &[usize]) -> Vec<Host> {
    let host = |(number, processes): (usize, &usize)| Host { name: format!("n{number}"), processes: *processes };
    processes.iter().enumerate().map(host).collect()
}

fn mesh(dp: usize, tp: usize, pp: usize) -> Mesh {
    Mesh::new(AxisSizes::dp_tp_pp(dp, tp, pp)).expect("a mesh")
}

fn shown(placement: &RankPlacement) -> Vec<Vec<usize>> {
    (0..placement.processes()).map(|process| placement.ranks_of(process).iter().map(|rank| rank.0).collect()).collect()
}

#[test]
fn tensor_peers_are_together_then_stages_then_replicas() {
    let mesh = mesh(2, 2, 2);
    let placement = RankPlacement::new(&mesh, &hosts(&[2, 2]), PlacementOrder::default()).expect("placed");
    assert_eq!(shown(&placement), [[0, 1], [4, 5], [2, 3], [6, 7]]);
    assert_eq!(mesh.ranks().map(|rank| placement.host_of(rank)).collect::<Vec<_>>(), [0, 0, 1, 1, 0, 0, 1, 1]);
    assert!(placement.crossing(&mesh, Axis::Tp).is_empty() && placement.crossing(&mesh, Axis::Pp).is_empty());
    assert_eq!(placement.crossing(&mesh, AxisSet::DATA).len(), 4);
}

#[test]
fn an_order_names_the_nearest_peers_first() {
    let mesh = mesh(2, 2, 2);
    let placed = |order| shown(&RankPlacement::new(&mesh, &hosts(&[2, 2]), order).expect("placed"));
    assert_eq!(placed(PlacementOrder::TpDpPp), [[0, 1], [2, 3], [4, 5], [6, 7]], "as ranks are numbered");
    assert_eq!(placed(PlacementOrder::PpTpDp), [[0, 4], [1, 5], [2, 6], [3, 7]]);
    assert_eq!(placed(PlacementOrder::PpDpTp), [[0, 4], [2, 6], [1, 5], [3, 7]]);
    assert_eq!(placed(PlacementOrder::DpTpPp), [[0, 2], [1, 3], [4, 6], [5, 7]]);
    assert_eq!(placed(PlacementOrder::DpPpTp), [[0, 2], [4, 6], [1, 3], [5, 7]]);
}

#[test]
fn a_tensor_group_larger_than_a_host_crosses() {
    let mesh = mesh(1, 4, 1);
    let placement = RankPlacement::new(&mesh, &hosts(&[2, 2]), PlacementOrder::default()).expect("placed");
    let crossing = placement.crossing(&mesh, Axis::Tp);
    assert_eq!(crossing.len(), 1);
    assert_eq!((crossing[0].members.len(), crossing[0].hosts.as_slice()), (4, [0, 1].as_slice()));
}

#[test]
fn hosts_may_have_different_numbers_of_processes() {
    let placement = RankPlacement::new(&mesh(8, 1, 1), &hosts(&[3, 1]), PlacementOrder::default()).expect("placed");
    assert_eq!(shown(&placement), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    assert_eq!([0, 1, 2, 3].map(|process| placement.host_of_process(process)), [0, 0, 0, 1]);
}

#[test]
fn processes_that_do_not_divide_the_ranks_are_refused() {
    let error =
        RankPlacement::new(&mesh(2, 2, 2), &hosts(&[2, 1]), PlacementOrder::default()).expect_err("3 of 8").to_string();
    let expected = "8 ranks must be divided equally among processes; got 3; start 1, 2, 4 or 8 processes, or change the \
                    degrees of [parallelism]";
    assert_eq!(error, expected);
    assert!(
        RankPlacement::new(&mesh(2, 1, 1), &hosts(&[4]), PlacementOrder::default()).is_err(),
        "a process without a rank"
    );
}

proptest! {
    #[test]
    fn every_rank_is_in_one_process(dp in 1usize..5, tp in 1usize..5, pp in 1usize..5, split in 1usize..5) {
        let mesh = mesh(dp, tp, pp);
        let processes = (1..=mesh.world_size()).rev().find(|count| mesh.world_size().is_multiple_of(*count) && *count <= 4 * split);
        let processes = processes.unwrap_or(1);
        let placement = RankPlacement::new(&mesh, &hosts(&[processes]), PlacementOrder::default()).expect("placed");
        let mut all: Vec<usize> = shown(&placement).concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..mesh.world_size()).collect::<Vec<_>>());
        for process in 0..placement.processes() {
            for rank in placement.ranks_of(process) {
                prop_assert_eq!(placement.process_of(*rank), process);
            }
        }
        // Where a process has whole tensor-parallel groups, none is split.
        if (mesh.world_size() / processes).is_multiple_of(tp) {
            for group in mesh.groups(Axis::Tp) {
                let of = |rank: &Rank| placement.process_of(*rank);
                prop_assert!(group.iter().all(|rank| of(rank) == of(&group[0])));
            }
        }
    }
}
