//! Messages are read as they were written; `fuzz.rs` tries any bytes.

use std::collections::BTreeMap;

use rendezvous::{
    Directory, FailureReport, FrameError, Identity, Introduction, MAX_BYTES, Message, Printer, ProcessEntry,
    ProcessFailure, StopSignal, TextHash, decode, encode,
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
        printer: Printer::Reporter,
    };
    vec![
        Message::Introduction(Introduction { entry: entry(1), processes: 2, identity }),
        Message::Directory(Directory { processes: vec![entry(0), entry(1)], run: "ab".into() }),
        Message::Refusal(vec!["one".into(), "two".into()]),
        Message::Heartbeat,
        Message::Failure(ProcessFailure { process: 1, host: "b".into(), report }),
        Message::Stop(StopSignal { process: 1, host: "b".into(), signal: 15 }),
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
fn long_messages_and_unknown_kinds_are_refused() {
    let bytes = encode(&Message::Parcel { topic: "t".into(), bytes: vec![0; 100] });
    // By the header, before the content has come.
    assert_eq!(decode(&bytes[..6], 50), Err(FrameError::TooLong { bytes: 102, limit: 50 }));
    let mut unknown = encode(&Message::Heartbeat);
    unknown[0] = 77;
    assert_eq!(decode(&unknown, MAX_BYTES), Err(FrameError::Kind(77)));
}
