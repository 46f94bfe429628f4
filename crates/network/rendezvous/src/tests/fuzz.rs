//! Bytes that arrive from elsewhere: whatever they are, they are a message, too few, or an error, and take little
//! memory.
//!
//! As plain tests they try some hundred inputs, other ones each time; what fails prints the seed that repeats it. For
//! longer, or under a fuzzer that looks at what is reached (`cargo bolero`, which brings libFuzzer):
//!
//! ```text
//! BOLERO_RANDOM_ITERATIONS=10000000 BOLERO_RANDOM_TEST_TIME_MS=600000 cargo test -p rendezvous --lib tests::fuzz::
//! cargo bolero test --package rendezvous --lib tests::fuzz::any_payload_is_read_or_refused
//! ```

use bolero::TypeGenerator;
use rendezvous::{
    Directory, FailureReport, Identity, Introduction, MAX_BYTES, Message, ProcessEntry, ProcessFailure, StopSignal,
    TextHash, decode, encode,
};

/// Bytes before the content of a message.
const HEADER: usize = 6;
/// Limit of the payloads in these tests.
const LIMIT: usize = 1 << 16;
/// Bytes of a value for each byte of its text, at most: the shortest number in a list is `0,`, and takes the 8 bytes of
/// a `usize`; the shortest text is `"",`, and takes the 24 bytes of a `String`. Lists grow by doubling.
const GROWTH: usize = 2 * 24 / 3;

/// A number as it may be in a message.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Number {
    Small(u8),
    Any(u64),
}

impl Number {
    fn get(self) -> u64 {
        match self {
            Number::Small(number) => number.into(),
            Number::Any(number) => number,
        }
    }

    fn size(self) -> usize {
        usize::try_from(self.get()).expect("64 bits")
    }
}

/// The content of an entry.
#[derive(Clone, Debug, TypeGenerator)]
struct Entry {
    process: Number,
    host: String,
    ranks: Vec<Number>,
}

/// Any message.
#[derive(Clone, Debug, TypeGenerator)]
enum Content {
    Introduction {
        entry: Entry,
        processes: Number,
        version: String,
        hashes: [u64; 3],
        text: Option<u64>,
        inputs: Vec<(String, u64)>,
    },
    Directory(Vec<Entry>, String),
    Refusal(Vec<String>),
    Heartbeat,
    Failure {
        process: Number,
        host: String,
        rank: Option<Number>,
        step: Option<u32>,
        instruction: Option<String>,
        cause: String,
    },
    Stop {
        process: Number,
        host: String,
        signal: i32,
    },
    Goodbye,
    Parcel {
        topic: String,
        bytes: Vec<u8>,
    },
}

impl Entry {
    fn entry(self) -> ProcessEntry {
        let Entry { process, host, ranks } = self;
        let ranks = ranks.into_iter().map(Number::size).collect();
        ProcessEntry { process: process.size(), host, ranks }
    }
}

impl Content {
    fn message(self) -> Message {
        match self {
            Content::Introduction { entry, processes, version, hashes: [binary, run_file, program], text, inputs } => {
                let text = text.map_or(TextHash::FromProcess0, TextHash::Read);
                let inputs = inputs.into_iter().collect();
                let identity = Identity { version, binary, run_file, program, text, inputs };
                Message::Introduction(Introduction { entry: entry.entry(), processes: processes.size(), identity })
            }
            Content::Directory(entries, run) => {
                let processes = entries.into_iter().map(Entry::entry).collect();
                Message::Directory(Directory { processes, run })
            }
            Content::Refusal(reasons) => Message::Refusal(reasons),
            Content::Heartbeat => Message::Heartbeat,
            Content::Failure { process, host, rank, step, instruction, cause } => {
                let report = FailureReport {
                    rank: rank.map(Number::size),
                    step,
                    instruction,
                    cause,
                    ..FailureReport::default()
                };
                Message::Failure(ProcessFailure { process: process.size(), host, report })
            }
            Content::Stop { process, host, signal } => {
                Message::Stop(StopSignal { process: process.size(), host, signal })
            }
            Content::Goodbye => Message::Goodbye,
            // A topic has at most 64 bytes; that is checked before it is sent.
            Content::Parcel { topic, bytes } => Message::Parcel { topic: topic.chars().take(16).collect(), bytes },
        }
    }
}

/// Bytes that a message holds in addition to its own.
fn held_bytes(message: &Message) -> usize {
    let of_texts = |texts: &[String]| texts.iter().map(String::len).sum::<usize>() + size_of_val(texts);
    let of_entry =
        |entry: &ProcessEntry| entry.host.len() + size_of_val(entry.ranks.as_slice()) + size_of::<ProcessEntry>();
    match message {
        Message::Introduction(Introduction { entry, identity, .. }) => {
            let inputs = identity.inputs.keys().map(|name| name.len() + size_of::<(String, u64)>());
            of_entry(entry) + identity.version.len() + inputs.sum::<usize>()
        }
        Message::Directory(directory) => directory.processes.iter().map(of_entry).sum::<usize>() + directory.run.len(),
        Message::Refusal(reasons) => of_texts(reasons),
        Message::Failure(ProcessFailure { host, report, .. }) => {
            host.len() + report.cause.len() + report.instruction.as_ref().map_or(0, String::len)
        }
        Message::Stop(stop_signal) => stop_signal.host.len(),
        Message::Parcel { topic, bytes } => topic.len() + bytes.len(),
        Message::Heartbeat | Message::Goodbye => 0,
    }
}

/// Reads any bytes; what is a message is bounded by its bytes and reads again as it is written.
fn read(bytes: &[u8], limit: usize) {
    let Ok(Some((message, length))) = decode(bytes, limit) else { return };
    assert!((HEADER..=HEADER + limit).contains(&length) && length <= bytes.len(), "{length} of {}", bytes.len());
    let bound = size_of::<ProcessEntry>() + GROWTH * (length - HEADER);
    assert!(held_bytes(&message) <= bound, "{} of {bound} bytes: {message:?}", held_bytes(&message));
    let written = encode(&message);
    assert_eq!(decode(&written, MAX_BYTES), Ok(Some((message, written.len()))));
}

/// `payload` in a sound frame.
fn framed(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short");
    [&kind.to_le_bytes()[..], &length.to_le_bytes(), payload].concat()
}

#[test]
fn any_bytes_are_read_or_refused() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| read(bytes, LIMIT));
}

#[test]
fn any_payload_is_read_or_refused() {
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(kind, payload)| {
        read(&framed(u16::from(*kind % 10), payload), LIMIT);
    });
}

#[test]
fn any_message_is_read_as_it_was_written() {
    bolero::check!().with_type::<Content>().cloned().for_each(|content| {
        let message = content.message();
        let bytes = encode(&message);
        assert_eq!(decode(&bytes, MAX_BYTES), Ok(Some((message, bytes.len()))));
        read(&bytes, MAX_BYTES);
    });
}

/// A change of a sound message.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Edit {
    Put { at: u16, byte: u8 },
    Insert { at: u16, byte: u8, times: u8 },
    Remove { at: u16, count: u8 },
}

#[test]
fn a_changed_payload_in_a_sound_frame_is_read_or_refused() {
    bolero::check!().with_type::<(Content, Vec<Edit>)>().cloned().for_each(|(content, edits)| {
        let bytes = encode(&content.message());
        let mut payload = bytes[HEADER..].to_vec();
        for edit in edits {
            let place = |at: u16| usize::from(at) % (payload.len() + 1);
            match edit {
                Edit::Put { at, byte } => {
                    let at = place(at);
                    payload.iter_mut().skip(at).take(1).for_each(|old| *old = byte);
                }
                Edit::Insert { at, byte, times } => {
                    let at = place(at);
                    payload.splice(at..at, std::iter::repeat_n(byte, times.into()));
                }
                Edit::Remove { at, count } => {
                    let start = place(at);
                    payload.drain(start..(start + usize::from(count)).min(payload.len()));
                }
            }
        }
        read(&framed(u16::from_le_bytes([bytes[0], bytes[1]]), &payload), LIMIT);
    });
}
