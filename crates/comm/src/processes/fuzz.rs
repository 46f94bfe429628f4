//! Tests: any bytes on a connection are frames, too few, or a failure with a name; they never panic and take memory of
//! fixed size.
//!
//! As plain tests they try some hundred inputs, other ones each time; what fails prints the seed that repeats it. For
//! longer, or under a fuzzer that looks at what is reached (`cargo bolero`, which brings libFuzzer):
//!
//! ```text
//! BOLERO_RANDOM_ITERATIONS=10000000 BOLERO_RANDOM_TEST_TIME_MS=600000 cargo test -p comm --lib fuzz -- --nocapture
//! cargo bolero test --package comm processes::fuzz::any_stream_ends_or_is_refused
//! ```

use super::connection::{Connection, Fault, Way};
use super::frame::{
    Announcement, EAGER_LIMIT_BYTES, Frame, HEADER_BYTES, Header, MemoryPlace, PIECE_BYTES, Part, Route,
    TEXT_LIMIT_BYTES,
};
use super::input::{BUFFER_BYTES, Input, Read};
use super::preamble::{PREAMBLE_BYTES, Preamble};
use super::violations::{TOKEN, address, world};
use crate::threads::remote::Ending;
use bolero::TypeGenerator;
use mesh::Rank;
use std::io::Write;
use std::os::unix::net::UnixStream;
use xxhash_rust::xxh3::xxh3_64;

/// Worlds are opened for each input, so they are fewer.
const WORLDS: usize = 60;

/// Bytes of a header with the magic and the version, a kind of a frame, and a checksum that fits.
fn sealed(bytes: &[u8], kind: u8) -> [u8; HEADER_BYTES] {
    let sound = Header::new(Frame::Goodbye, 0, &[]).encode();
    let mut header = [0; HEADER_BYTES];
    header.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    header[..6].copy_from_slice(&sound[..6]);
    header[6..8].copy_from_slice(&u16::from(kind % 16).to_le_bytes());
    let hash = xxh3_64(&header[..HEADER_BYTES - 8]);
    header[HEADER_BYTES - 8..].copy_from_slice(&hash.to_le_bytes());
    header
}

#[test]
fn any_header_is_read_as_written_or_refused() {
    bolero::check!().with_type::<(Vec<u8>, u8)>().for_each(|(bytes, kind)| {
        let bytes = sealed(bytes, *kind);
        if let Ok(header) = Header::decode(&bytes) {
            assert_eq!(header.encode(), bytes);
            assert!(header.payload_len as usize <= EAGER_LIMIT_BYTES.max(TEXT_LIMIT_BYTES).max(PIECE_BYTES));
        }
    });
}

#[test]
fn any_preamble_is_read_as_written_or_refused() {
    bolero::check!().with_type::<([u8; PREAMBLE_BYTES], bool, u8)>().cloned().for_each(
        |(mut bytes, has_token, fit)| {
            if has_token {
                bytes[..32].copy_from_slice(TOKEN.bytes());
            }
            // Some inputs have a sound magic and version, and zeros where they must be.
            if fit % 4 > 0 {
                let sound = Preamble { verdict: super::preamble::Verdict::Welcome, from: 0, to: 0, fingerprint: 0 };
                let sound = sound.encode(&TOKEN);
                bytes[32..42].copy_from_slice(&sound[32..42]);
                bytes[43] = 0;
                bytes[52..56].fill(0);
            }
            if let Ok(preamble) = Preamble::decode(&bytes, &TOKEN) {
                assert!(has_token);
                assert_eq!(preamble.encode(&TOKEN), bytes);
            }
        },
    );
}

/// The bytes that one connection brings.
#[derive(Clone, Debug, TypeGenerator)]
enum Bytes {
    /// Anything.
    Any(Vec<u8>),
    /// A frame with sound checksums.
    Sound { bytes: Vec<u8>, kind: u8, payload: Vec<u8> },
}

#[test]
fn any_stream_ends_or_is_refused() {
    bolero::check!().with_type::<Vec<Bytes>>().for_each(|parts| {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let stream: Vec<u8> = parts.iter().zip(0u64..).flat_map(|(part, number)| bytes_of(part, number)).collect();
        let stream = &stream[..stream.len().min(BUFFER_BYTES)];
        far.write_all(stream).unwrap();
        drop(far);
        let connection = Connection::new(1, near.into(), Way::Socket);
        let mut handled = 0;
        let read = Input::new().read(&connection, &mut |frame, payload| {
            assert!(!matches!(frame, Frame::Piece(..)), "pieces go to their places");
            assert!(payload.len() <= EAGER_LIMIT_BYTES, "{frame:?} with {} bytes", payload.len());
            handled += HEADER_BYTES + payload.len();
            Ok(())
        });
        assert!(handled <= stream.len());
        assert!(
            matches!(read, Ok(Read::End) | Err(Fault::Frame(_) | Fault::Sequence { .. } | Fault::Unexpected(_))),
            "{read:?}"
        );
    });
}

fn bytes_of(bytes: &Bytes, number: u64) -> Vec<u8> {
    match bytes {
        Bytes::Any(bytes) => bytes.clone(),
        Bytes::Sound { bytes, kind, payload } => {
            let mut fields = bytes.clone();
            fields.resize(HEADER_BYTES, 0);
            let payload_len = u32::try_from(payload.len()).unwrap();
            fields[8..16].copy_from_slice(&number.to_le_bytes());
            fields[36..40].copy_from_slice(&payload_len.to_le_bytes());
            fields[80..88].copy_from_slice(&xxh3_64(payload).to_le_bytes());
            [&sealed(&fields, *kind)[..], payload].concat()
        }
    }
}

/// A frame with small numbers, which name what is there more often than any number does.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Sent {
    Eager { from: u8, to: u8, lane: u8, len: u16 },
    Announce { from: u8, to: u8, lane: u8, message: u8, len: u32, at: u64 },
    Grant { message: u8, row: u8, len: u16, slot: u8 },
    Piece { message: u8, row: u8, len: u16, slot: u8, is_inline: bool },
    Finish { message: u8, is_read: bool },
    Withdraw { from: u8, to: u8, lane: u8, message: u8 },
    Credit { bytes: u32 },
    Leave { rank: u8, lane: u8 },
    Abort { rank: u8, len: u8 },
    Goodbye,
    GoodbyeSeen,
    Memory { process: u32, at: u64, mark: u64 },
}

impl Sent {
    /// The frame, and the bytes after it.
    fn frame(self) -> (Frame, Vec<u8>) {
        let to = |from: u8, to: u8, lane: u8| address((from % 4).into(), (to % 4).into(), (lane % 3).into());
        let part = |message: u8, row: u8, len: u16, slot: u8| Part {
            message: (message % 4).into(),
            offset: u64::from(row % 4) * PIECE_BYTES as u64,
            len: u32::from(len).max(1),
            slot: slot.into(),
        };
        match self {
            Sent::Eager { from, to: rank, lane, len } => {
                (Frame::Eager(to(from, rank, lane)), vec![7; usize::from(len) % EAGER_LIMIT_BYTES])
            }
            Sent::Announce { from, to: rank, lane, message, len, at } => {
                let announcement = Announcement { message: message.into(), len: len.into(), at };
                (Frame::Announce(to(from, rank, lane), announcement), vec![])
            }
            Sent::Grant { message, row, len, slot } => (Frame::Grant(part(message, row, len, slot)), vec![]),
            Sent::Piece { message, row, len, slot, is_inline } => {
                let part = part(message, row, len, slot);
                match is_inline {
                    true => (Frame::Piece(part, Route::Inline), vec![9; part.len as usize]),
                    false => (Frame::Piece(part, Route::Shared), vec![]),
                }
            }
            Sent::Finish { message, is_read } => {
                (Frame::Finish((message % 4).into(), if is_read { Ending::Read } else { Ending::Lost }), vec![])
            }
            Sent::Withdraw { from, to: rank, lane, message } => {
                (Frame::Withdraw(to(from, rank, lane), message.into()), vec![])
            }
            Sent::Credit { bytes } => (Frame::Credit(bytes), vec![]),
            Sent::Leave { rank, lane } => (Frame::Leave(Rank((rank % 4).into()), (lane % 3).into()), vec![]),
            Sent::Abort { rank, len } => (Frame::Abort(Rank((rank % 4).into())), vec![b'x'; len.into()]),
            Sent::Goodbye => (Frame::Goodbye, vec![]),
            Sent::GoodbyeSeen => (Frame::GoodbyeSeen, vec![]),
            Sent::Memory { process, at, mark } => (Frame::Memory(MemoryPlace { process, at, mark }), vec![]),
        }
    }
}

#[test]
fn any_sound_frames_leave_a_world_that_fails_by_name_or_continues() {
    bolero::check!().with_iterations(WORLDS).with_type::<Vec<Sent>>().for_each(|sent| {
        let (ranks, mut socket) = world();
        let numbered = sent.iter().zip(0u64..);
        let frames = numbered.map(|(sent, number)| (sent.frame(), number));
        let stream: Vec<u8> =
            frames.flat_map(|((frame, bytes), number)| super::violations::encoded(frame, number, &bytes)).collect();
        // The world closes the connection at the first frame that is not allowed.
        let _ = socket.write_all(&stream);
        drop(socket);
        let failure = ranks.failure.clone();
        drop(ranks);
        let cause = failure.cause().map(|cause| cause.description);
        assert!(!cause.iter().any(|cause| cause.contains("panicked")), "{cause:?}");
    });
}
