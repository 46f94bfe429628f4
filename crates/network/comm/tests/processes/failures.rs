//! The failure of a world as code outside of its ranks sees and causes it.

use crate::processes::{PATIENT, receive};
use crate::worlds::wire::{Wire, members, open};
use comm::{AbortCause, CommError, Transport};
use mesh::Rank;
use std::sync::mpsc;

#[test]
fn a_failure_reported_in_one_process_reaches_ranks_and_listeners_of_all() {
    for wire in [Wire::Tcp, Wire::SharedMemory] {
        let opened = open(members(wire, &[vec![0, 2], vec![1], vec![3]], 2, PATIENT));
        let (heard, hears) = mpsc::channel();
        for (process, local) in opened.iter().enumerate() {
            let heard = heard.clone();
            local.failure.on_failure(move |cause| heard.send((process, cause.clone())).unwrap());
        }
        let failure = opened[1].failure.clone();
        assert_eq!(failure.cause(), None);
        std::thread::scope(|scope| {
            let lanes = opened.into_iter().flat_map(|local| local.ends);
            for end in lanes.flatten() {
                scope.spawn(move || {
                    let error = receive(&end, (end.rank().0 + 1) % 4, 0, &[0]).unwrap_err();
                    assert_eq!(
                        error,
                        CommError::Aborted { rank: end.rank(), by: Rank(3), why: "its launcher is gone".into() }
                    );
                });
            }
            let cause = AbortCause { rank: Rank(3), description: "its launcher is gone".into() };
            failure.abort(cause.clone());
            failure.abort(AbortCause { rank: Rank(0), description: "later".into() });
            let mut all: Vec<_> = (0..3).map(|_| hears.recv().unwrap()).collect();
            all.sort_by_key(|(process, _)| *process);
            assert_eq!(all, [(0, cause.clone()), (1, cause.clone()), (2, cause)]);
        });
        // Who asks later hears of it at once.
        failure.on_failure(move |cause| heard.send((9, cause.clone())).unwrap());
        assert_eq!(hears.recv().unwrap().0, 9);
    }
}

#[test]
fn a_world_that_ends_well_has_no_failure() {
    for wire in [Wire::Tcp, Wire::SharedMemory] {
        let opened = open(members(wire, &[vec![0, 2], vec![1], vec![3]], 2, PATIENT));
        let failures: Vec<_> = opened.iter().map(|local| local.failure.clone()).collect();
        std::thread::scope(|scope| {
            for local in opened {
                scope.spawn(move || drop(local.ends));
            }
        });
        assert!(failures.iter().all(|failure| failure.cause().is_none()));
    }
}

#[test]
fn a_rank_that_left_is_missed_while_its_process_lives() {
    for wire in [Wire::Tcp, Wire::SharedMemory] {
        let opened = open(members(wire, &[vec![0, 1], vec![2]], 1, PATIENT));
        let mut ends = opened.into_iter().flat_map(|local| local.ends).flatten();
        let (first, left, second) = (ends.next().unwrap(), ends.next().unwrap(), ends.next().unwrap());
        drop(left);
        let error = receive(&second, 1, 0, &[0]).unwrap_err();
        assert!(matches!(error, CommError::PeerLeft { rank: Rank(2), peer: Rank(1), .. }), "{error}");
        assert!(second.failure().is_none());
        std::thread::scope(|scope| {
            scope.spawn(move || drop(first));
            scope.spawn(move || drop(second));
        });
    }
}
