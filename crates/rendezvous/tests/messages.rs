//! Bytes that arrive from elsewhere: whatever they are, they are a message, too few, or an error.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rendezvous::{
    Directory, FailureReport, FrameError, Identity, Introduction, MAX_BYTES, Message, ProcessEntry, ProcessFailure,
    StopWish, TextHash, decode, encode,
};

fn entry(process: usize) -> ProcessEntry {
    ProcessEntry { process, host: "ä".into(), ranks: vec![0, 7] }
}

fn messages() -> Vec<Message> {
    let identity = Identity {
        version: "0.1.0".into(),
        binary: u64::MAX,
        run_file: 1,
        program: 2,
        text: TextHash::Read(3),
        inputs: BTreeMap::from([("weights".into(), 4)]),
    };
    let report = FailureReport { rank: Some(3), step: None, instruction: Some("F0".into()), cause: "x".into() };
    vec![
        Message::Introduction(Introduction { entry: entry(1), processes: 2, identity }),
        Message::Directory(Directory { processes: vec![entry(0), entry(1)] }),
        Message::Refusal(vec!["one".into(), "two".into()]),
        Message::Heartbeat,
        Message::Failure(ProcessFailure { process: 1, host: "b".into(), report }),
        Message::Stop(StopWish { process: 1, host: "b".into(), signal: 15 }),
        Message::Goodbye,
        Message::Parcel { topic: "text".into(), bytes: vec![0, 255, 1] },
        Message::Parcel { topic: String::new(), bytes: vec![] },
    ]
}

#[test]
fn messages_read_as_they_were_written() {
    for message in messages() {
        let mut bytes = encode(&message);
        let length = bytes.len();
        assert_eq!(decode(&bytes, MAX_BYTES), Ok(Some((message.clone(), length))));
        bytes.extend([1, 2, 3]);
        assert_eq!(decode(&bytes, MAX_BYTES), Ok(Some((message, length))));
        for end in 0..length {
            assert_eq!(decode(&bytes[..end], MAX_BYTES), Ok(None), "{end} of {length}");
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    for message in messages() {
        let bytes = encode(&message);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = decode(&flipped, MAX_BYTES);
            // A longer length waits for bytes that do not come; everything else is an error.
            let is_longer = (64..96).contains(&bit) && found == Ok(None);
            assert!(found.is_err() || is_longer, "bit {bit}: {found:?}");
        }
    }
}

#[test]
fn long_and_foreign_messages_are_refused_by_their_header() {
    let bytes = encode(&Message::Parcel { topic: "t".into(), bytes: vec![0; 100] });
    assert_eq!(decode(&bytes[..20], 50), Err(FrameError::TooLong { bytes: 102, limit: 50 }));
    let mut newer = bytes.clone();
    newer[4] = 9;
    assert_eq!(decode(&newer, MAX_BYTES), Err(FrameError::Version(9)));
    assert_eq!(decode(b"GET / HTTP/1.1", MAX_BYTES), Err(FrameError::Magic));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes, 100);
    }

    /// Any content under a header whose length and checksum are right.
    #[test]
    fn no_payload_panics(which in 0usize..9, at in 0usize..400, byte in any::<u8>()) {
        let mut messages = messages();
        let message = messages.swap_remove(which);
        let mut bytes = encode(&message);
        let at = at % bytes.len();
        bytes[at] = byte;
        repair(&mut bytes);
        let _ = decode(&bytes, MAX_BYTES);
    }
}

/// Writes the checksum that the bytes have.
fn repair(bytes: &mut [u8]) {
    let mut hashed = bytes[..12].to_vec();
    hashed.extend(&bytes[20..]);
    bytes[12..20].copy_from_slice(&rendezvous::hash_bytes(&hashed).to_le_bytes());
}

#[test]
fn fuzzed_bytes_do_not_panic() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let _ = decode(bytes, 1 << 16);
        // The same bytes as a payload of each kind.
        for kind in 0..10u16 {
            let mut framed = b"plch\x01\x00".to_vec();
            framed.extend(kind.to_le_bytes());
            framed.extend(u32::try_from(bytes.len()).expect("short").to_le_bytes());
            framed.extend([0; 8]);
            framed.extend(bytes);
            repair(&mut framed);
            let _ = decode(&framed, 1 << 16);
        }
    });
}
