//! Room for messages: no message blocks another one, and memory is that of the formula.

use crate::processes::{PATIENT, communicator, receive, tag};
use crate::worlds::wire::{Wire, members, open};
use comm::processes::{LocalRanks, receive_memory_bytes};
use comm::{Message, Operation, ThreadTransport, Transport};
use mesh::Rank;
use std::sync::Arc;

const WIRES: [Wire; 2] = [Wire::Tcp, Wire::SharedMemory];

/// The ends of the first lane of a world with a process per rank.
fn two(wire: Wire) -> [ThreadTransport; 2] {
    let opened = open(members(wire, &[vec![0], vec![1]], 1, PATIENT));
    let ends: Vec<_> = opened.into_iter().flat_map(|local| local.ends).flatten().collect();
    ends.try_into().unwrap_or_else(|_| panic!("two ends"))
}

fn both<T: Send>(ends: [ThreadTransport; 2], body: impl Fn(&ThreadTransport) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads = ends.map(|end| scope.spawn(move || body(&end)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn message(len: usize, number: u64) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 31 + number) as u8).collect()
}

#[test]
fn a_large_message_in_front_blocks_no_other() {
    for wire in WIRES {
        both(two(wire), |end| {
            let peer = 1 - end.rank().0;
            // Far more than sockets and pieces hold.
            let lens = [20_000_000, 5_000_000, 1, 0, 65_536, 65_537, 16_384, 16_385];
            let sends: Vec<_> = (0..)
                .zip(lens)
                .map(|(number, len)| {
                    let loan = Arc::new(message(len, number));
                    end.post_loan(Rank(peer), tag(number), Operation::PointToPoint, loan).unwrap()
                })
                .collect();
            for (number, len) in lens.into_iter().enumerate().rev() {
                let number = number as u64;
                receive(end, peer, number, &message(len, number)).unwrap();
            }
            sends.into_iter().for_each(|send| end.wait_send(send).unwrap());
        });
    }
}

#[test]
fn small_messages_beyond_the_room_for_them_wait_at_their_sender() {
    for wire in WIRES {
        both(two(wire), |end| {
            let peer = 1 - end.rank().0;
            for number in 0..2_000 {
                let bytes = message(16_384 - number as usize % 50, number);
                let operation = Operation::PointToPoint;
                end.post_copy(Message { to: &[Rank(peer)], tag: tag(number), operation, bytes: &bytes }).unwrap();
            }
            for number in (0..2_000).rev() {
                receive(end, peer, number, &message(16_384 - number as usize % 50, number)).unwrap();
            }
        });
    }
}

#[test]
fn all_lanes_and_ranks_of_a_process_receive_at_once() {
    for wire in WIRES {
        // 8 ranks on 3 lanes: receives together want far more pieces than there are.
        let ranks = [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]];
        let opened = open(members(wire, &ranks, 3, PATIENT));
        std::thread::scope(|scope| {
            let lanes = opened.into_iter().flat_map(|local| local.ends);
            for end in lanes.flatten() {
                scope.spawn(move || {
                    let own = end.rank().0;
                    let communicator = communicator(end, 0);
                    for round in 0..4 {
                        let mut data = vec![(own + round) as f32; 300_000];
                        communicator.all_reduce_sum(&mut data).unwrap();
                        assert!(data.iter().all(|&x| x == (28 + 8 * round) as f32));
                    }
                });
            }
        });
    }
}

#[test]
fn sixteen_processes_sum_in_rank_order() {
    for wire in WIRES {
        let ranks: Vec<Vec<usize>> = (0..16).map(|rank| vec![rank]).collect();
        let opened = open(members(wire, &ranks, 1, PATIENT));
        let value = |rank: usize, at: usize| 1.0 / (1.0 + (rank * 100 + at) as f32);
        std::thread::scope(|scope| {
            for end in opened.into_iter().flat_map(|local| local.ends).flatten() {
                scope.spawn(move || {
                    let own = end.rank().0;
                    let communicator = communicator(end, 0);
                    for len in [7, 4_096, 70_000, 1_500_003] {
                        let mut data: Vec<f32> = (0..len).map(|at| value(own, at)).collect();
                        communicator.all_reduce_sum(&mut data).unwrap();
                        let sum = |at: usize| (1..16).fold(value(0, at), |sum, rank| sum + value(rank, at));
                        let expected = (0..len).map(sum);
                        assert!(data.iter().map(|x| x.to_bits()).eq(expected.map(f32::to_bits)), "{len} elements");
                    }
                });
            }
        });
    }
}

#[test]
fn a_sender_that_leaves_at_once_has_its_messages_read() {
    for wire in WIRES {
        both(two(wire), |end| {
            if end.rank() == Rank(0) {
                for number in 0..30 {
                    let operation = Operation::PointToPoint;
                    let bytes = message(50_000, number);
                    end.post_copy(Message { to: &[Rank(1)], tag: tag(number), operation, bytes: &bytes }).unwrap();
                }
            } else {
                for number in (0..30).rev() {
                    receive(end, 0, number, &message(50_000, number)).unwrap();
                }
            }
        });
    }
}

#[test]
fn receive_memory_is_pieces_and_room_per_peer() {
    let process_map = members(Wire::Tcp, &[vec![0, 1], vec![2], vec![3]], 1, PATIENT).swap_remove(0).process_map;
    // 64 pieces of 64 KiB; two peers with a buffer of 32 KiB and room for 128 KiB.
    assert_eq!(receive_memory_bytes(&process_map, 0), 64 * 65_536 + 2 * (32 + 128) * 1024);
    let ranks: Vec<Vec<usize>> = (0..50).map(|rank| vec![rank]).collect();
    let process_map = members(Wire::SharedMemory, &ranks, 1, PATIENT).swap_remove(0).process_map;
    // Two for each rank of another process.
    assert_eq!(receive_memory_bytes(&process_map, 7), 98 * 65_536 + 49 * (32 + 128) * 1024);
    let alone = members(Wire::Tcp, &[vec![0, 1]], 1, PATIENT).swap_remove(0).process_map;
    assert_eq!(receive_memory_bytes(&alone, 0), 0);
}

#[test]
fn a_world_of_one_process_needs_no_listener() {
    let LocalRanks { ends, .. } = open(members(Wire::Tcp, &[vec![0, 1]], 2, PATIENT)).swap_remove(0);
    assert_eq!(ends.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    let ends: [ThreadTransport; 2] = ends.into_iter().next().unwrap().try_into().unwrap_or_else(|_| panic!("two"));
    both(ends, |end| {
        let operation = Operation::PointToPoint;
        let (own, peer) = (end.rank().0, 1 - end.rank().0);
        end.post_copy(Message { to: &[Rank(peer)], tag: tag(0), operation, bytes: &[own as u8] }).unwrap();
        receive(end, peer, 0, &[peer as u8]).unwrap();
    });
}
