//! Point-to-point messages, tag spaces, and the count of what is sent.

use crate::worlds::{Wire, communicator, everybody, input, run};
use comm::collectives::{CollectiveShape, Traffic, traffic};
use comm::{Channel, ChannelId, CommError, Counting, GroupCommunicator, GroupHosts, HostMap, Operation, Transport};
use device::SumTree;
use mesh::{Axis, AxisSet, AxisSizes, Mesh, Rank};
use std::sync::Arc;

over_every_wire!(
    a_position_outside_the_group_is_refused,
    sends_do_not_block_and_numbers_are_received_in_any_order,
    messages_of_one_number_arrive_in_order,
    a_loan_is_read_in_place_and_is_free_after_the_wait,
    groups_that_share_ranks_do_not_mix,
    what_is_counted_is_what_the_formula_says,
    sixteen_ranks_do_thousands_of_small_all_reduces,
);

fn channel(transport: &Arc<dyn Transport>) -> Channel {
    let id = ChannelId::new(AxisSet::of(Axis::Pp), 0);
    Channel::new(Arc::clone(transport), everybody(transport), id)
}

fn a_position_outside_the_group_is_refused(wire: Wire) {
    let error = run(wire, 2, |t| channel(&t).post_send(2, 1, &[0u8]).unwrap_err());
    assert!(matches!(error[0], CommError::NoSuchPosition { position: 2, .. }));
}

fn sends_do_not_block_and_numbers_are_received_in_any_order(wire: Wire) {
    run(wire, 2, |transport| {
        let channel = channel(&transport);
        let peer = 1 - everybody(&transport).position();
        for number in 0..20 {
            channel.post_send(peer, number, &input(number as usize, 5_000)).unwrap();
        }
        for number in (0..20).rev() {
            let mut data = vec![0.0; 5_000];
            channel.receive(peer, number, &mut data).unwrap();
            assert_eq!(data, input(number as usize, 5_000));
        }
    });
}

fn messages_of_one_number_arrive_in_order(wire: Wire) {
    run(wire, 2, |transport| {
        let channel = channel(&transport);
        if transport.rank() == Rank(0) {
            for value in 0..1_000 {
                channel.post_send(1, 7, &[value as f32]).unwrap();
            }
        } else {
            for value in 0..1_000 {
                let mut got = [0.0];
                channel.receive(0, 7, &mut got).unwrap();
                assert_eq!(got, [value as f32]);
            }
        }
    });
}

fn a_loan_is_read_in_place_and_is_free_after_the_wait(wire: Wire) {
    run(wire, 2, |transport| {
        let channel = channel(&transport);
        if transport.rank() == Rank(0) {
            let loan = Arc::new(vec![1u8; 40_000]);
            let send = channel.post_loan(1, 0, loan.clone()).unwrap();
            channel.wait(send).unwrap();
            assert!(channel.is_complete(send));
            assert_eq!(Arc::strong_count(&loan), 1);
        } else {
            let mut data = vec![0.0f32; 10_000];
            channel.receive(0, 0, &mut data).unwrap();
            assert!(data.iter().all(|x| x.to_bits() == 0x0101_0101));
        }
    });
}

fn groups_that_share_ranks_do_not_mix(wire: Wire) {
    let mesh = Mesh::new(AxisSizes::dp_tp_pp(2, 2, 2)).unwrap();
    let sets = [AxisSet::of(Axis::Tp), AxisSet::DATA, AxisSet::of(Axis::Pp), AxisSet::ALL];
    run(wire, 8, |transport| {
        let rank = transport.rank();
        let communicators = sets.map(|axes| {
            let group = mesh.group(rank, axes);
            GroupCommunicator::new(Arc::clone(&transport), group, &HostMap::one_host(), ChannelId::new(axes, 0))
        });
        let steps = if cfg!(miri) { 3 } else { 200 };
        for step in 0..steps {
            for communicator in &communicators {
                let mut data = [rank.0 as f32 + step as f32];
                communicator.all_reduce_sum(&mut data).unwrap();
                let members = communicator.group().members();
                let expected: usize = members.iter().map(|r| r.0 + step).sum();
                assert_eq!(data, [expected as f32]);
            }
        }
    });
}

fn what_is_counted_is_what_the_formula_says(wire: Wire) {
    for ranks in (1..=6).chain([33, 40]) {
        for len in [ranks, 12 * ranks, 4096, 30_030 * ranks] {
            run(wire, ranks, |transport| count_all_collectives(transport, len));
        }
    }
}

fn count_all_collectives(transport: Arc<dyn Transport>, len: usize) {
    let (counting, counts) = Counting::new(transport);
    let counting: Arc<dyn Transport> = Arc::new(counting);
    let communicator = communicator(&counting);
    let (members, position) = (communicator.size(), communicator.position());
    let (mut data, hosts) = (input(position, len), GroupHosts::one_host(members));
    let mut before = Traffic::default();
    let mut check = |operation| {
        let after = counts.total();
        let sent = Traffic { messages: after.messages - before.messages, bytes: after.bytes - before.bytes };
        before = after;
        let shape = CollectiveShape { operation, len, width_bytes: 4, hosts: &hosts, tree: SumTree::RANK_ORDER };
        assert_eq!(sent, traffic(&shape, position).total(), "{operation} of {len} on {members} ranks");
    };
    communicator.all_reduce_sum(&mut data).unwrap();
    check(Operation::AllReduce);
    communicator.barrier().unwrap();
    check(Operation::Barrier);
    if len.is_multiple_of(members) {
        communicator.reduce_scatter(&mut data).unwrap();
        check(Operation::ReduceScatter);
        communicator.all_gather(&mut data).unwrap();
        check(Operation::AllGather);
        communicator.all_to_all(&input(position, len), &mut data).unwrap();
        check(Operation::AllToAll);
        communicator.shift(&input(position, len), &mut data).unwrap();
        check(Operation::Shift);
    }
}

fn sixteen_ranks_do_thousands_of_small_all_reduces(wire: Wire) {
    let results = run(wire, 16, |transport| {
        let communicator = communicator(&transport);
        let mut data = [communicator.position() as f32; 64];
        for _ in 0..2_000 {
            communicator.all_reduce_sum(&mut data).unwrap();
            data.iter_mut().for_each(|x| *x /= 16.0);
        }
        data
    });
    assert!(results.iter().all(|data| data.iter().all(|&x| x == 7.5)));
}
