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

use super::connection::{Connection, Fault, PiecePath};
use super::frame::{
    Announcement, EAGER_LIMIT_BYTES, FIELDS_BYTES, Frame, HEADER_BYTES, Header, MemoryPlace, PIECE_BYTES, Part, Route,
    TEXT_LIMIT_BYTES,
};
use super::input::{BUFFER_BYTES, Input, Read};
use super::preamble::Preamble;
use super::violations::{address, sessions, world};
use crate::threads::remote::Ending;
use bolero::TypeGenerator;
use mesh::Rank;
use session::{BACK_BYTES, FRONT_BYTES, Sealer};
use std::io::Write;
use std::os::unix::net::UnixStream;

/// Worlds are opened for each input, so they are fewer.
const WORLDS: usize = 60;

/// The fields of a header, of a kind of a frame or of none.
fn fields(bytes: &[u8], kind: u8) -> [u8; FIELDS_BYTES] {
    let mut fields = [0; FIELDS_BYTES];
    fields.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    fields[..4].copy_from_slice(&u32::from(kind % 16).to_le_bytes());
    fields
}

#[test]
fn any_header_is_read_as_written_or_refused() {
    bolero::check!().with_type::<(Vec<u8>, u8)>().for_each(|(bytes, kind)| {
        let bytes = fields(bytes, *kind);
        if let Ok(header) = Header::decode(&bytes) {
            assert_eq!(header.encode(), bytes);
            assert!(header.payload_len as usize <= EAGER_LIMIT_BYTES.max(TEXT_LIMIT_BYTES).max(PIECE_BYTES));
        }
    });
}

#[test]
fn any_preamble_is_read_as_written_or_refused() {
    bolero::check!().with_type::<(Vec<u8>, u8)>().cloned().for_each(|(mut bytes, fit)| {
        // Some inputs have a sound length and verdict, and zeros where they must be.
        if fit % 4 > 0 {
            bytes.resize(32, fit);
            bytes[..8].copy_from_slice(&[fit % 3, 0, 0, 0, 0, 0, 0, 0]);
        }
        if let Some(preamble) = Preamble::decode(&bytes) {
            assert_eq!(preamble.encode()[..], bytes);
        }
    });
}

/// The bytes that one connection brings.
#[derive(Clone, Debug, TypeGenerator)]
enum Bytes {
    /// Anything.
    Any(Vec<u8>),
    /// A frame with a sound seal.
    Sound { bytes: Vec<u8>, kind: u8, payload: Vec<u8> },
}

#[test]
fn any_stream_ends_or_is_refused() {
    bolero::check!().with_type::<Vec<Bytes>>().for_each(|parts| {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let (mut session, own) = sessions();
        let stream: Vec<u8> = parts.iter().flat_map(|part| bytes_of(part, &mut session.sealer)).collect();
        let stream = &stream[..stream.len().min(BUFFER_BYTES)];
        far.write_all(stream).unwrap();
        drop(far);
        let connection = Connection::new(1, near.into(), PiecePath::Socket, own.sealer);
        let mut handled = 0;
        let read = Input::new(own.opener).read(&connection, &mut |frame, payload| {
            assert!(!matches!(frame, Frame::Piece(..)), "pieces go to their places");
            assert!(payload.len() <= EAGER_LIMIT_BYTES, "{frame:?} with {} bytes", payload.len());
            handled += HEADER_BYTES + payload.len();
            Ok(())
        });
        assert!(handled <= stream.len());
        assert!(matches!(read, Ok(Read::End) | Err(Fault::Frame(_) | Fault::Unexpected(_))), "{read:?}");
    });
}

fn bytes_of(bytes: &Bytes, sealer: &mut Sealer) -> Vec<u8> {
    match bytes {
        Bytes::Any(bytes) => bytes.clone(),
        Bytes::Sound { bytes, kind, payload } => {
            let mut fields = fields(bytes, *kind);
            let payload_len = u32::try_from(payload.len()).unwrap();
            fields[4..8].copy_from_slice(&payload_len.to_le_bytes());
            let mut head = [&[0; FRONT_BYTES][..], &fields, &[0; BACK_BYTES]].concat();
            let mut payload = payload.clone();
            sealer.seal(&mut head, &mut payload);
            [head, payload].concat()
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
        let (ranks, mut peer) = world();
        for sent in sent {
            let (frame, bytes) = sent.frame();
            // The world closes the connection at the first frame that is not allowed.
            let _ = peer.send(frame, &bytes);
        }
        drop(peer);
        let failure = ranks.failure.clone();
        drop(ranks);
        let cause = failure.cause().map(|cause| cause.description);
        assert!(!cause.iter().any(|cause| cause.contains("panicked")), "{cause:?}");
    });
}
