//! A wire that changes, loses, doubles and cuts frames: a failure with a name, or nothing at all.

use crate::processes::relay::{Fate, HEADER_BYTES, Relay, Way};
use crate::processes::{PATIENT, receive, tag};
use crate::worlds::wire::{Wire, members, open};
use comm::processes::ProcessMap;
use comm::{AbortCause, CommError, Message, Operation, ThreadTransport, Transport};
use mesh::Rank;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const SMALL: [u8; 40] = [17; 40];
const OPERATION: Operation = Operation::PointToPoint;
/// A rank may have ended its script when the other one leaves.
const LEAVE: u32 = 10;
/// Goodbyes pass when all ranks have left: their loss is nobody's failure.
const GOODBYES: [u32; 2] = [12, 13];

/// The part of one rank: it makes every kind of frame.
fn script(end: &ThreadTransport) -> Result<(), CommError> {
    let (own, peer) = (end.rank().0, 1 - end.rank().0);
    let to = [Rank(peer)];
    let loan: Vec<u8> = (0..70_000u32).map(|at| (at % 251) as u8 ^ own as u8).collect();
    let expected: Vec<u8> = loan.iter().map(|byte| byte ^ 1).collect();
    end.post_copy(Message { to: &to, tag: tag(0), operation: OPERATION, bytes: &SMALL })?;
    let send = end.post_loan(to[0], tag(1), OPERATION, Arc::new(loan))?;
    // A message that is taken back.
    let early = Err(CommError::NoSuchPosition { rank: Rank(own), position: 0, members: 0 });
    let mut lent = std::iter::once(Message { to: &to, tag: tag(9), operation: OPERATION, bytes: &SMALL });
    let ended = end.lend(&mut lent, &mut || early.clone());
    assert!(ended.is_err());
    receive(end, peer, 0, &SMALL)?;
    receive(end, peer, 1, &expected)?;
    end.wait_send(send)?;
    // Enough small messages that their room is reported.
    for number in 2..5 {
        end.post_copy(Message { to: &to, tag: tag(number), operation: OPERATION, bytes: &[own as u8; 16_000] })?;
    }
    for number in 2..5 {
        receive(end, peer, number, &[peer as u8; 16_000])?;
    }
    // A frame after all others, so that the loss of any shows.
    end.post_copy(Message { to: &to, tag: tag(5), operation: OPERATION, bytes: &SMALL })?;
    receive(end, peer, 5, &SMALL)
}

/// Runs the script on two processes with a relay between them; what each rank reports.
fn run(fate: impl Fn(Way, u32, &[u8]) -> Fate + Send + Sync + 'static) -> [Result<(), CommError>; 2] {
    let mut members = members(Wire::Tcp, &[vec![0], vec![1]], 1, PATIENT);
    let mut processes = members[1].process_map.processes().to_vec();
    let relay = Relay::new(processes[0].tcp.unwrap(), fate);
    processes[0].tcp = Some(relay.address);
    members[1].process_map = ProcessMap::new(processes).unwrap();
    let threads = open(members).into_iter().map(|local| {
        std::thread::spawn(move || {
            let end = local.ends.into_iter().flatten().next().unwrap();
            script(&end)
        })
    });
    let results: Vec<_> = threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect();
    relay.end();
    results.try_into().unwrap()
}

/// Whether a rank has reported a fault of the wire by name, and nobody anything else.
fn is_named(results: &[Result<(), CommError>; 2], case: &str) -> bool {
    for result in results {
        match result {
            Ok(()) => {}
            Err(CommError::Aborted { why, .. }) => {
                let is_fault =
                    ["sent ", "closed the connection", "is not reachable"].iter().any(|what| why.contains(what));
                assert!(is_fault && why.starts_with("process ") && why.contains(" on host host"), "{case}: {why}");
            }
            // A peer that fails at once may be known to have left before it is known to have failed.
            Err(error) => panic!("{case}: {error}"),
        }
    }
    results.iter().any(Result::is_err)
}

/// The kinds of frames that pass in a whole run, with the length of the first of each.
fn kinds() -> BTreeMap<(bool, u32), usize> {
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let shared = Arc::clone(&seen);
    let results = run(move |way, kind, frame| {
        shared.lock().unwrap().entry((way == Way::There, kind)).or_insert(frame.len());
        Fate::Passes
    });
    assert_eq!(results, [Ok(()), Ok(())]);
    Arc::try_unwrap(seen).unwrap().into_inner().unwrap()
}

/// A fate for the first frame of a kind on one way.
fn of_first(there: bool, kind: u32, fate: Fate) -> impl Fn(Way, u32, &[u8]) -> Fate + Send + Sync {
    let is_over = AtomicBool::new(false);
    move |way, of, _| {
        let strikes = (way == Way::There, of) == (there, kind) && !is_over.swap(true, Ordering::Relaxed);
        if strikes { fate } else { Fate::Passes }
    }
}

#[test]
fn each_kind_of_frame_passes_in_the_script() {
    let kinds = kinds();
    for kind in [1, 2, 3, 4, 6, 8, 9] {
        for there in [false, true] {
            assert!(kinds.contains_key(&(there, kind)), "kind {kind}: {kinds:?}");
        }
    }
    // Who hears a goodbye first says none itself.
    for kind in [LEAVE, 12, 13] {
        assert!([false, true].iter().any(|there| kinds.contains_key(&(*there, kind))), "kind {kind}: {kinds:?}");
    }
}

#[test]
fn each_changed_byte_of_each_kind_of_frame_is_found() {
    for ((there, kind), len) in kinds() {
        // All bytes of the header, and the ends and the middle of what follows.
        let payload = (HEADER_BYTES < len).then_some([HEADER_BYTES, len / 2, len - 1]);
        for at in (0..HEADER_BYTES).chain(payload.into_iter().flatten()) {
            let case = format!("kind {kind}, byte {at}");
            let is_found = is_named(&run(of_first(there, kind, Fate::Changed(at))), &case);
            assert!(is_found || GOODBYES.contains(&kind) || kind == LEAVE, "{case} is not found");
        }
    }
}

#[test]
fn each_frame_that_is_lost_doubled_or_cut_is_found() {
    for ((there, kind), len) in kinds() {
        let fates =
            [Fate::Dropped, Fate::Doubled, Fate::Cut(0), Fate::Cut(1), Fate::Cut(HEADER_BYTES - 1), Fate::Cut(len - 1)];
        for fate in fates {
            let case = format!("kind {kind}, {fate:?}");
            let is_found = is_named(&run(of_first(there, kind, fate)), &case);
            assert!(is_found || GOODBYES.contains(&kind) || kind == LEAVE, "{case} is not found");
        }
    }
}

#[test]
fn a_failure_that_crosses_a_changing_wire_is_still_a_failure() {
    for at in 0..HEADER_BYTES + 8 {
        let mut members = members(Wire::Tcp, &[vec![0], vec![1]], 1, PATIENT);
        let mut processes = members[1].process_map.processes().to_vec();
        let relay = Relay::new(processes[0].tcp.unwrap(), of_first(true, 11, Fate::Changed(at)));
        processes[0].tcp = Some(relay.address);
        members[1].process_map = ProcessMap::new(processes).unwrap();
        let mut ends = open(members).into_iter().map(|local| local.ends.into_iter().flatten().next().unwrap());
        let (first, second) = (ends.next().unwrap(), ends.next().unwrap());
        second.abort(AbortCause { rank: Rank(1), description: "12345678".into() });
        let error = receive(&first, 1, 0, &[0]).unwrap_err().to_string();
        assert!(
            error.starts_with("rank 0 stopped because rank 1 failed: process 1 (rank 1) on host host1 sent frame "),
            "{error}"
        );
        drop((first, second));
        relay.end();
    }
}
