//! Groups on several hosts, and sums in runs: bits against a fold in the defined order, bytes against the formulas.

use crate::worlds::{Wire, bits, communicator_on, input, patient, run, run_within};
use comm::collectives::{CollectiveShape, HostTraffic, traffic};
use comm::{Counting, GroupCommunicator, GroupHosts, HostMap, Operation, Transport};
use device::{Bf16, Element, F16, SumTree};
use mesh::{Rank, even_split};
use proptest::prelude::*;
use std::num::NonZeroUsize;
use std::sync::Arc;

over_every_wire!(
    any_hosts_lengths_and_runs_have_the_bits_of_the_oracle,
    sums_in_runs_have_the_defined_order_on_every_shape_of_hosts,
    one_run_and_runs_of_one_are_rank_order,
    every_rank_and_every_host_link_sends_what_the_formulas_say,
);

/// A length whose slices are lent, for up to nine members (three in Miri), and cut unevenly by most numbers of them.
const LONG: usize = if cfg!(miri) { 3 } else { 9 } * 4097 + 5;

fn tree(run: usize) -> SumTree {
    SumTree::of_runs(NonZeroUsize::new(run).unwrap())
}

/// The sum of all ranks' inputs in the defined order: the members of each run one after the other, then the runs.
fn oracle(ranks: usize, len: usize, run: usize) -> Vec<f32> {
    let members: Vec<usize> = (0..ranks).collect();
    let add = |mut sum: Vec<f32>, x: Vec<f32>| {
        sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
        sum
    };
    let of_run = |run: &[usize]| run.iter().map(|&rank| input(rank, len)).reduce(add).unwrap();
    match run {
        // Runs of one member are the members in rank order.
        1 => of_run(&members),
        run => members.chunks(run).map(of_run).reduce(add).unwrap(),
    }
}

fn integer(rank: usize, index: usize) -> i64 {
    i64::MAX / 2 - (rank * 31 + index) as i64
}

fn integers(rank: usize, len: usize) -> Vec<i64> {
    (0..len).map(|index| integer(rank, index)).collect()
}

fn integer_sums(ranks: usize, len: usize) -> Vec<i64> {
    (0..len).map(|index| (0..ranks).fold(0i64, |sum, rank| sum.wrapping_add(integer(rank, index)))).collect()
}

/// The bytes of every collective on one member: what a map of hosts and a tree may change, and may not.
struct Results {
    reduced: Vec<u32>,
    integers: Vec<i64>,
    own_slice: Vec<u32>,
    own_integers: Vec<i64>,
    gathered: Vec<u8>,
}

/// Every collective of `len` elements, or as many more as there are equal slices for.
fn all_collectives<E: Element>(communicator: &GroupCommunicator, len: usize, tree: SumTree) -> Results {
    let (position, members) = (communicator.position(), communicator.size());
    let own = |len| even_split(len, members, position);
    let mut reduced = input(position, len);
    communicator.all_reduce_in_runs(&mut reduced, tree).unwrap();
    let mut sums = integers(position, len);
    communicator.all_reduce_integers_in_runs(&mut sums, tree).unwrap();
    let padded = len.next_multiple_of(members);
    let mut scattered = input(position, padded);
    communicator.reduce_scatter_in_runs(&mut scattered, tree).unwrap();
    let mut own_integers = integers(position, padded);
    communicator.reduce_scatter_integers_in_runs(&mut own_integers, tree).unwrap();
    let mut gathered: Vec<E> = input(position, padded).into_iter().map(E::narrow).collect();
    communicator.all_gather(&mut gathered).unwrap();
    Results {
        reduced: bits(&reduced),
        integers: sums,
        own_slice: bits(&scattered[own(padded)]),
        own_integers: own_integers[own(padded)].to_vec(),
        gathered: bytemuck::cast_slice(&gathered).to_vec(),
    }
}

/// Runs every collective on ranks with these hosts and compares with the oracles.
fn check<E: Element>(wire: Wire, host_of: &[usize], len: usize, run: usize) {
    let (ranks, hosts) = (host_of.len(), HostMap::by_name(host_of));
    let results = run_within(wire, patient(), ranks, |transport| {
        all_collectives::<E>(&communicator_on(&transport, &hosts), len, tree(run))
    });
    let (padded, case) = (len.next_multiple_of(ranks), format!("hosts {host_of:?}, {len} elements, runs of {run}"));
    let (sum, padded_sum) = (bits(&oracle(ranks, len, run)), bits(&oracle(ranks, padded, run)));
    let slice = |rank: usize| input(rank, padded)[even_split(padded, ranks, rank)].to_vec();
    let whole: Vec<E> = (0..ranks).flat_map(slice).map(E::narrow).collect();
    for (rank, got) in results.into_iter().enumerate() {
        let own = even_split(padded, ranks, rank);
        assert!(got.reduced == sum, "all-reduce on {case}");
        assert!(got.integers == integer_sums(ranks, len), "all-reduce of integers on {case}");
        assert!(got.own_slice == padded_sum[own.clone()], "reduce-scatter on {case}");
        assert!(got.own_integers == integer_sums(ranks, padded)[own], "reduce-scatter of integers on {case}");
        assert!(got.gathered == bytemuck::cast_slice::<E, u8>(&whole), "all-gather on {case}");
    }
}

fn sums_in_runs_have_the_defined_order_on_every_shape_of_hosts(wire: Wire) {
    for host_of in [vec![0, 0, 1, 1], vec![0, 0, 0, 0, 1, 1, 1, 1], vec![0, 0, 1, 1, 2, 2, 3, 3], vec![0, 0, 0, 1]] {
        for run in [1, 2, 3, 4, host_of.len()] {
            for len in [3, 4096, LONG] {
                check::<f32>(wire, &host_of, len, run);
            }
        }
    }
}

fn one_run_and_runs_of_one_are_rank_order(wire: Wire) {
    // Miri takes four minutes for four ranks: three lend slices of the least length that is lent.
    let worlds: &[usize] = if cfg!(miri) { &[1, 3] } else { &[1, 3, 4] };
    for &ranks in worlds {
        let results = run(wire, ranks, |transport| {
            let communicator = communicator_on(&transport, &HostMap::one_host());
            let own = input(communicator.position(), LONG);
            let sum = |run: usize| {
                let mut sum = own.clone();
                communicator.all_reduce_in_runs(&mut sum, tree(run)).unwrap();
                bits(&sum)
            };
            let mut plain = own.clone();
            communicator.all_reduce_sum(&mut plain).unwrap();
            ([1, ranks, ranks + 1].map(sum), bits(&plain))
        });
        for (in_runs, plain) in results {
            assert!(in_runs.iter().all(|sum| *sum == plain), "{ranks} ranks");
        }
    }
    // Of the first 1,000 elements of the inputs above, 8 have other sums.
    assert_ne!(bits(&oracle(4, 1_000, 1)), bits(&oracle(4, 1_000, 2)), "the inputs show another order");
}

fn any_hosts_lengths_and_runs_have_the_bits_of_the_oracle(wire: Wire) {
    let config = ProptestConfig { cases: 24, ..ProptestConfig::default() };
    proptest!(config, |(host_of in proptest::collection::vec(0usize..4, 1..10), len in prop_oneof![0usize..5000, 30_000usize..60_000], run in 1usize..11, dtype in 0usize..3)| {    match dtype {
        0 => check::<f32>(wire, &host_of, len, run),
        1 => check::<Bf16>(wire, &host_of, len, run),
        _ => check::<F16>(wire, &host_of, len, run),
    }
    });
}

/// Traffic of each rank in one call, by its counters and by the formula.
fn counted_and_derived(
    wire: Wire,
    members_of_hosts: &[usize],
    operation: Operation,
    len: usize,
    tree: SumTree,
) -> Vec<[HostTraffic; 2]> {
    let hosts = GroupHosts::filled(members_of_hosts);
    let host_of: Vec<usize> =
        members_of_hosts.iter().enumerate().flat_map(|(host, members)| std::iter::repeat_n(host, *members)).collect();
    run(wire, host_of.len(), |transport| {
        let (counting, counts) = Counting::new(transport);
        let counting: Arc<dyn Transport> = Arc::new(counting);
        let communicator = communicator_on(&counting, &HostMap::by_name(&host_of));
        let position = communicator.position();
        let mut data = input(position, len);
        match operation {
            Operation::AllReduce => communicator.all_reduce_in_runs(&mut data, tree).unwrap(),
            Operation::ReduceScatter => communicator.reduce_scatter_in_runs(&mut data, tree).unwrap(),
            Operation::AllGather => communicator.all_gather(&mut data).unwrap(),
            Operation::Shift => communicator.shift(&input(position, len), &mut data).unwrap(),
            Operation::AllToAll => communicator.all_to_all(&input(position, len), &mut data).unwrap(),
            Operation::Barrier | Operation::PointToPoint => unreachable!("no traffic of a buffer"),
        }
        let to = |peer: usize| match host_of[peer] == host_of[position] {
            true => HostTraffic { inside: counts.to(Rank(peer)), ..HostTraffic::default() },
            false => HostTraffic { between: counts.to(Rank(peer)), ..HostTraffic::default() },
        };
        let shape = CollectiveShape { operation, len, width_bytes: 4, hosts: &hosts, tree };
        [(0..host_of.len()).map(to).sum(), traffic(&shape, position)]
    })
}

const OPERATIONS: [Operation; 5] =
    [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather, Operation::AllToAll, Operation::Shift];

fn every_rank_and_every_host_link_sends_what_the_formulas_say(wire: Wire) {
    for hosts in [&[2, 2][..], &[4, 4], &[2, 2, 2, 2], &[3, 1], &[4], &[1, 1, 1]] {
        let members: usize = hosts.iter().sum();
        for (operation, len) in OPERATIONS.into_iter().flat_map(|o| [3 * members, 5003 * members].map(|len| (o, len))) {
            for run in [1, 2, 3, 4] {
                let ranks = counted_and_derived(wire, hosts, operation, len, tree(run));
                let case = format!("{operation} of {len} elements on hosts of {hosts:?}, runs of {run}");
                for (rank, [counted, derived]) in ranks.iter().enumerate() {
                    assert_eq!(counted, derived, "rank {rank} in {case}");
                }
                let mut first = 0;
                for (host, members) in hosts.iter().enumerate() {
                    let link = |which: usize| -> u64 {
                        ranks[first..first + members].iter().map(|both| both[which].between.bytes).sum()
                    };
                    assert_eq!(link(0), link(1), "the link of host {host} in {case}");
                    first += members;
                }
            }
        }
    }
}

/// The table of docs/clusters.md: n members, p on each of h hosts, slices of S bytes. Bytes that leave a rank inside
/// its host and between hosts.
#[test]
fn the_formulas_of_equal_hosts_are_those_of_the_table() {
    for (h, p) in [(2, 2), (2, 4), (4, 2)] {
        let (n, slice) = (h * p, 5003 * 4);
        let hosts = GroupHosts::filled(&vec![p; h]);
        let of = |operation, run| {
            let shape = CollectiveShape { operation, len: 5003 * n, width_bytes: 4, hosts: &hosts, tree: tree(run) };
            let sent = traffic(&shape, n - 1);
            [sent.inside.bytes, sent.between.bytes].map(|bytes| bytes as usize)
        };
        let times = |factors: [usize; 2]| factors.map(|factor| factor * slice);
        assert_eq!(of(Operation::AllGather, 1), times([h * (p - 1), h - 1]));
        assert_eq!(of(Operation::ReduceScatter, 1), times([p - 1, n - p]));
        assert_eq!(of(Operation::AllToAll, 1), times([p - 1, n - p]));
        let gathered = [h * (p - 1), h - 1];
        let all_reduced = |scattered: [usize; 2]| [0, 1].map(|which| scattered[which] + gathered[which]);
        assert_eq!(of(Operation::AllReduce, 1), times(all_reduced([p - 1, n - p])));
        // Runs that are hosts, and runs that divide them.
        for k in [p, 2] {
            let scattered = [n - n / k + p / k - 1, (n - p) / k];
            assert_eq!(of(Operation::ReduceScatter, k), times(scattered), "{h} x {p}, runs of {k}");
            assert_eq!(of(Operation::AllReduce, k), times(all_reduced(scattered)), "{h} x {p}, runs of {k}");
        }
        // With runs that are hosts a host's link carries one slice of each owner elsewhere.
        assert_eq!(p * of(Operation::ReduceScatter, p)[1], (n - p) * slice);
        assert_eq!(p * of(Operation::ReduceScatter, 1)[1], p * (n - p) * slice);
    }
}
