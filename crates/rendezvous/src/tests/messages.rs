//! Messages are read as they were written, and changed ones are refused; `fuzz.rs` tries any bytes.

use std::collections::BTreeMap;

use rendezvous::{
    Directory, FailureReport, FrameError, Identity, Introduction, MAX_BYTES, Message, ProcessEntry, ProcessFailure,
    Speaker, StopWish, TextHash, decode, encode,
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
    let report = FailureReport {
        rank: Some(3),
        step: None,
        instruction: Some("F0".into()),
        cause: "x".into(),
        speaker: Speaker::Reporter,
    };
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
            assert!(found.is_err(), "bit {bit}: {found:?}");
        }
    }
}

#[test]
fn long_and_foreign_messages_are_refused_by_their_header() {
    let bytes = encode(&Message::Parcel { topic: "t".into(), bytes: vec![0; 100] });
    assert_eq!(decode(&bytes[..24], 50), Err(FrameError::TooLong { bytes: 102, limit: 50 }));
    let mut newer = bytes.clone();
    newer[4] = 9;
    assert_eq!(decode(&newer, MAX_BYTES), Err(FrameError::Version(9)));
    assert_eq!(decode(b"GET / HTTP/1.1", MAX_BYTES), Err(FrameError::Magic));
}

#[test]
fn a_changed_length_is_found_before_its_bytes_come() {
    let mut bytes = encode(&Message::Heartbeat);
    bytes[9] ^= 1;
    assert_eq!(decode(&bytes, MAX_BYTES), Err(FrameError::Checksum));
}
