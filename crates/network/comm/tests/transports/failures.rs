//! The errors of a rank when another is late, gone, failed or does something else.
//!
//! The error shows whether a failure was reported by the rank that failed (`Aborted`) or found at the deadline
//! (`Deadline`).

use crate::worlds::wire::processes;
use crate::worlds::{
    Wire, bits, communicator, everybody, impatient, input, patient, run, run_within, run_world, serial,
};
use comm::faults::{Fault, Faulty};
use comm::{AbortCause, Channel, ChannelId, CommError, Message, Operation, Tag, Timeouts, Transport};
use mesh::{AxisSet, Rank};
use std::sync::Arc;
use std::time::Duration;

over_every_wire!(
    a_deadline_names_the_rank_the_peer_and_the_operation,
    a_deadline_in_a_large_group_names_the_rank_that_is_late,
    waits_are_longer_until_all_ranks_of_a_process_have_ended_the_first_step,
    a_send_that_nobody_reads_ends_at_the_deadline_and_is_taken_back,
    a_large_all_reduce_without_a_peer_returns_its_buffer_after_the_deadline,
    an_abort_wakes_every_waiting_rank_with_its_cause,
    a_panic_of_one_rank_ends_the_waits_of_all_others,
    a_transport_dropped_by_a_panic_aborts_without_help,
    a_rank_that_leaves_early_is_missed_at_once,
    a_member_that_leaves_before_an_all_to_all_is_missed_at_once,
    a_loan_to_a_rank_that_leaves_unread_is_an_error,
    different_programs_are_distinguished,
    jitter_does_not_change_the_bits,
    a_dropped_message_is_missed_by_its_receiver_by_name,
    a_flipped_bit_reaches_the_sum_of_its_receiver_only,
    a_panic_inside_a_lending_scope_takes_the_messages_back,
    a_member_that_gives_another_number_of_bytes_is_named,
);

/// Members derive the numbers of bytes from the same values; one that derived another is found by its receiver.
fn a_member_that_gives_another_number_of_bytes_is_named(wire: Wire) {
    for (room, wrong) in [(64, 24), (64, 0), (40_000, 32_000)] {
        let results = run_within(wire, impatient(), 2, |transport| {
            let communicator = communicator(&transport);
            let given = if transport.rank() == Rank(1) { [wrong, room] } else { [room; 2] };
            let (from, mut to) = (vec![1; 2 * room], vec![0; 2 * room]);
            let result = communicator.exchange_parts((&from, &given), (&mut to, &[room; 2]));
            // The end of one rank must not be what the other reports.
            match transport.rank() {
                Rank(1) => stay(&transport),
                _ => finish(&transport),
            }
            result.err()
        });
        let text = results[0].as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(text.contains("rank 1") && text.contains("all-to-all"), "{room} bytes, {wrong} given: {text:?}");
    }
}

fn channel(transport: &Arc<dyn Transport>) -> Channel {
    let id = ChannelId::new(AxisSet::ALL, 9);
    Channel::new(Arc::clone(transport), everybody(transport), id)
}

/// Keeps a rank in the world until the other ranks have reported.
fn stay(transport: &Arc<dyn Transport>) {
    while transport.failure().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn finish(transport: &Arc<dyn Transport>) {
    transport.abort(AbortCause { rank: transport.rank(), description: "the test ends".into() });
}

fn a_deadline_names_the_rank_the_peer_and_the_operation(wire: Wire) {
    let results = run_within(wire, impatient(), 3, |transport| {
        if transport.rank() == Rank(2) {
            stay(&transport);
            return None;
        }
        let error = communicator(&transport).all_reduce_sum(&mut [1.0]).unwrap_err();
        // The other member is there, so both must name the one that is not.
        std::thread::sleep(impatient().wait * 3);
        finish(&transport);
        Some(error)
    });
    for (rank, error) in results.into_iter().flatten().enumerate() {
        let CommError::Deadline { rank: by, peer, operation, waited_ms, .. } = error.clone() else {
            panic!("{error}");
        };
        assert_eq!((by, peer), (Rank(rank), Rank(2)));
        assert_eq!(operation, Operation::AllReduce);
        assert!(waited_ms >= 100);
        let text = error.to_string();
        assert!(text.contains("for rank 2 in all-reduce (channel tp.0, message 0)"), "{text}");
        assert!(text.ends_with("see what it does, or raise run.timeout_seconds = 0.1"), "{text}");
    }
}

fn waits_are_longer_until_all_ranks_of_a_process_have_ended_the_first_step(wire: Wire) {
    let timeouts = impatient().with_first_step(impatient().wait * 3);
    let results = run_within(wire, timeouts, 2, |transport| {
        if transport.rank() == Rank(1) {
            transport.end_first_step();
            stay(&transport);
            return vec![];
        }
        let refused = || communicator(&transport).all_reduce_sum(&mut [1.0]).unwrap_err().to_string();
        let in_first_step = refused();
        transport.end_first_step();
        let later = refused();
        finish(&transport);
        vec![in_first_step, later]
    });
    let settings = results[0].iter().map(|text| text.rsplit("= ").next().unwrap());
    assert_eq!(settings.collect::<Vec<_>>(), ["0.3", "0.1"], "{:?}", results[0]);
}

/// In a large group only the first member sees who is late, and the others, which wait for the first, must not name it.
fn a_deadline_in_a_large_group_names_the_rank_that_is_late(wire: Wire) {
    let late = Rank(35);
    // Long enough that all threads have started.
    let timeouts = Timeouts::new(Duration::from_secs(2));
    let causes = run_within(wire, timeouts, 40, |transport| {
        if transport.rank() == late {
            stay(&transport);
        } else {
            // The others wait for longer than the first member does.
            std::thread::sleep(if transport.rank() == Rank(0) { timeouts.wait / 2 } else { Duration::ZERO });
            let error = communicator(&transport).all_reduce_sum(&mut [1.0]).unwrap_err();
            transport.abort(AbortCause { rank: transport.rank(), description: error.to_string() });
        }
        transport.failure()
    });
    for cause in causes {
        let AbortCause { rank, description } = cause.unwrap();
        assert!(rank == Rank(0) && description.contains("for rank 35 in all-reduce"), "{rank}: {description}");
    }
}

fn a_send_that_nobody_reads_ends_at_the_deadline_and_is_taken_back(wire: Wire) {
    let results = run_within(wire, impatient(), 2, |transport| {
        let channel = channel(&transport);
        if transport.rank() == Rank(1) {
            stay(&transport);
            return None;
        }
        let loan = Arc::new(vec![7u8; 64]);
        let send = channel.post_loan(1, 0, loan.clone()).unwrap();
        assert!(!channel.is_complete(send));
        let error = channel.wait(send).unwrap_err();
        assert_eq!(Arc::strong_count(&loan), 1, "nobody holds the loan any more");
        finish(&transport);
        Some(error)
    });
    let error = results[0].as_ref().unwrap();
    assert!(matches!(error, CommError::Deadline { peer: Rank(1), .. }), "{error}");
}

fn a_large_all_reduce_without_a_peer_returns_its_buffer_after_the_deadline(wire: Wire) {
    run_within(wire, impatient(), 2, |transport| {
        if transport.rank() == Rank(1) {
            return stay(&transport);
        }
        let mut data = input(0, 100_000);
        let error = communicator(&transport).all_reduce_sum(&mut data).unwrap_err();
        assert!(matches!(error, CommError::Deadline { peer: Rank(1), .. }), "{error}");
        data.fill(0.0);
        finish(&transport);
    });
}

fn an_abort_wakes_every_waiting_rank_with_its_cause(wire: Wire) {
    let results = run(wire, 6, |transport| {
        let rank = transport.rank();
        if rank == Rank(3) {
            std::thread::sleep(Duration::from_millis(50));
            let description = "gradient norm is not a number".to_owned();
            transport.abort(AbortCause { rank, description });
        }
        // Three kinds of waiting: for messages, for readers of a loan, for readers of a scope.
        match rank.0 {
            0 => {
                let channel = channel(&transport);
                let send = channel.post_loan(5, 1, Arc::new(vec![0u8; 8]));
                send.and_then(|send| channel.wait(send)).unwrap_err()
            }
            1 => {
                let tag = Tag { channel: ChannelId::new(AxisSet::ALL, 0), number: 0 };
                let message = Message { to: &[Rank(2)], tag, operation: Operation::PointToPoint, bytes: &[0; 40_000] };
                transport.lend(&mut std::iter::once(message), &mut || Ok(())).unwrap_err()
            }
            _ => communicator(&transport).barrier().unwrap_err(),
        }
    });
    for (rank, error) in results.into_iter().enumerate() {
        assert_eq!(
            error.to_string(),
            format!("rank {rank} stopped because rank 3 failed: gradient norm is not a number")
        );
    }
}

fn a_panic_of_one_rank_ends_the_waits_of_all_others(wire: Wire) {
    let results = run_world(wire, 8, patient(), |transport| {
        let communicator = communicator(&transport);
        let mut data = vec![0.0; if cfg!(miri) { 500 } else { 50_000 }];
        // Rank 5 may panic before the slowest ranks have all of the first sum.
        let first = communicator.all_reduce_sum(&mut data);
        assert!(transport.rank() != Rank(5), "a bad step");
        first.and_then(|()| communicator.all_reduce_sum(&mut data)).unwrap_err()
    });
    for (rank, result) in results.into_iter().enumerate() {
        match result {
            Ok(error) => assert_eq!(
                error.to_string(),
                format!("rank {rank} stopped because rank 5 failed: panicked: a bad step")
            ),
            Err(panic) => assert_eq!(panic.to_string(), "rank 5 panicked: a bad step"),
        }
    }
}

fn a_transport_dropped_by_a_panic_aborts_without_help(wire: Wire) {
    let mut ends: Vec<_> = processes(wire, 2, patient()).into_iter().flatten().collect();
    let second = ends.pop().unwrap();
    let thread = std::thread::spawn(move || {
        let _held = second;
        panic!("gone");
    });
    let first = ends.pop().unwrap();
    let error = communicator(&first).barrier().unwrap_err();
    assert!(error.to_string().contains("rank 1 failed: its thread panicked"), "{error}");
    assert!(thread.join().is_err());
}

fn a_rank_that_leaves_early_is_missed_at_once(wire: Wire) {
    let results = run(wire, 3, |transport| {
        if transport.rank() == Rank(1) {
            return None;
        }
        communicator(&transport).all_reduce_sum(&mut vec![0.0; 100_000]).err()
    });
    for error in [&results[0], &results[2]] {
        let error = error.as_ref().unwrap();
        let CommError::PeerLeft { peer, .. } = error else { panic!("{error}") };
        // A member that saw it first may have left as well by then.
        assert!([Rank(0), Rank(1), Rank(2)].contains(peer));
    }
    assert!(results[1].is_none());
}

/// Rows of experts, of which every member gives and gets 40,000 bytes.
fn exchanged(transport: &Arc<dyn Transport>) -> Result<(), CommError> {
    let (parts, from) = ([40_000; 3], vec![1u8; 3 * 40_000]);
    communicator(transport).exchange_parts((&from, &parts), (&mut vec![0u8; 3 * 40_000], &parts))
}

fn a_member_that_leaves_before_an_all_to_all_is_missed_at_once(wire: Wire) {
    let results = run(wire, 3, |transport| (transport.rank() != Rank(1)).then(|| exchanged(&transport).err())?);
    let errors: Vec<&CommError> = results.iter().flatten().collect();
    // The second may miss the first, which takes its rows back and leaves.
    let missed = |peers: &[Rank]| {
        errors.iter().filter(|error| matches!(error, CommError::PeerLeft { peer, .. } if peers.contains(peer))).count()
    };
    assert!(missed(&[Rank(1)]) >= 1 && missed(&[Rank(0), Rank(1), Rank(2)]) == 2, "{errors:?}");
}

fn a_loan_to_a_rank_that_leaves_unread_is_an_error(wire: Wire) {
    let results = run(wire, 2, |transport| {
        let channel = channel(&transport);
        if transport.rank() == Rank(1) {
            let mut go = [0.0_f32];
            channel.receive(0, 1, &mut go).unwrap();
            return None;
        }
        let send = channel.post_loan(1, 0, Arc::new(vec![0u8; 8])).unwrap();
        channel.post_send(1, 1, &[1.0_f32]).unwrap();
        Some(channel.wait(send).unwrap_err())
    });
    let error = results[0].as_ref().unwrap();
    assert!(matches!(error, CommError::PeerLeft { peer: Rank(1), .. }), "{error}");
}

fn different_programs_are_distinguished(wire: Wire) {
    let results = run(wire, 2, |transport| {
        let communicator = communicator(&transport);
        match communicator.position() {
            0 => communicator.all_reduce_sum(&mut [0.0; 4]).unwrap_err(),
            _ => communicator.all_reduce_sum(&mut [0.0; 6]).unwrap_err(),
        }
    });
    assert_eq!(
        results[0].to_string(),
        "rank 0 is in all-reduce of 16 bytes (channel tp.0, message 0), but rank 1 is in all-reduce \
         of 24 bytes: their programs differ"
    );
    assert!(matches!(results[1], CommError::Mismatch { peer: Rank(0), .. }));
}

fn jitter_does_not_change_the_bits(wire: Wire) {
    for (seed, ranks) in [(1, 3), (2, 5), (3, 8)] {
        let results = run(wire, ranks, |transport| {
            let below = Duration::from_micros(500);
            let late: Arc<dyn Transport> = Arc::new(Faulty::new(transport, Fault::Jitter { seed, below }));
            let communicator = communicator(&late);
            [100, 9_000, 31_001].map(|len| {
                let mut data = input(communicator.position(), len);
                communicator.all_reduce_sum(&mut data).unwrap();
                bits(&data)
            })
        });
        let expected = [100, 9_000, 31_001].map(|len| bits(&serial(ranks, len, |a, b| a + b)));
        assert!(results.iter().all(|got| *got == expected), "seed {seed}");
    }
}

fn a_dropped_message_is_missed_by_its_receiver_by_name(wire: Wire) {
    let waits = Timeouts::new(Duration::from_millis(200));
    let results = run_within(wire, waits, 3, |transport| {
        let fault = Fault::Drop { to: Rank(0), nth: 2 };
        let faulty: Arc<dyn Transport> = match transport.rank() {
            Rank(2) => Arc::new(Faulty::new(transport, fault)),
            _ => transport,
        };
        let communicator = communicator(&faulty);
        let result = (0..3).try_for_each(|_| communicator.all_reduce_sum(&mut [1.0; 3]));
        std::thread::sleep(waits.wait * 2);
        result
    });
    let error = results[0].as_ref().unwrap_err();
    assert!(matches!(error, CommError::Deadline { peer: Rank(2), .. }), "{error}");
    assert!(results[1].is_ok() && results[2].is_ok());
}

fn a_flipped_bit_reaches_the_sum_of_its_receiver_only(wire: Wire) {
    for len in [64, 20_000] {
        let results = run(wire, 2, |transport| {
            let fault = Fault::FlipBit { to: Rank(0), nth: 0, byte: 3 };
            let faulty: Arc<dyn Transport> = match transport.rank() {
                Rank(1) => Arc::new(Faulty::new(transport, fault)),
                _ => transport,
            };
            let mut data = vec![1.0; len];
            communicator(&faulty).reduce_scatter(&mut data).unwrap();
            data[even_slice(len, faulty.rank())].to_vec()
        });
        // The lowest bit of the last byte of 1.0 is the second highest bit of its exponent.
        assert_ne!(results[0][0], 2.0, "{len}");
        assert!(results[0][1..].iter().chain(&results[1]).all(|&x| x == 2.0), "{len}");
    }
}

fn even_slice(len: usize, rank: Rank) -> std::ops::Range<usize> {
    mesh::even_split(len, 2, rank.0)
}

fn a_panic_inside_a_lending_scope_takes_the_messages_back(wire: Wire) {
    let tag = comm::Tag { channel: ChannelId::new(AxisSet::ALL, 1), number: 0 };
    let results = run_world(wire, 2, patient(), |transport| {
        if transport.rank() == Rank(0) {
            let bytes = vec![1u8; 100_000];
            let mut messages = std::iter::once(comm::Message {
                to: &[Rank(1)],
                tag,
                operation: Operation::PointToPoint,
                bytes: &bytes,
            });
            let result = transport.lend(&mut messages, &mut || panic!("in the middle"));
            return result.unwrap_err();
        }
        stay(&transport);
        let operation = Operation::PointToPoint;
        let received = transport.receive(&[Rank(0)], tag, operation, 100_000, &mut |_, _| panic!("the memory is gone"));
        received.unwrap_err()
    });
    assert_eq!(results[0].as_ref().unwrap_err().message, "in the middle");
    let error = results[1].as_ref().unwrap();
    assert!(matches!(error, CommError::Aborted { by: Rank(0), .. }), "{error}");
}
