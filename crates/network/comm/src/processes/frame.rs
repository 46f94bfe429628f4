//! The frames on a connection between two processes: a header of fixed size, and bytes after some of them, both sealed
//! ([`session::Sealer`]).
//!
//! All numbers are little-endian. A kind of frame uses some fields and has zero in the others; a header with another
//! value there is refused, so each frame has exactly one form in bytes. The fields of a header are
//!
//! | bytes | field |
//! |---|---|
//! | 0..4, 4..8 | kind, bytes that follow the header |
//! | 8..12, 12..16, 16..20 | source rank, destination rank, lane |
//! | 20..24, 24..28, 40..48 | operation; channel and number of the tag |
//! | 28..32, 32..36 | place and length of a piece |
//! | 48..56, 56..64 | number of the message, length of the message |
//! | 64..72 | offset of a piece, or an address in the memory of the sender |

use crate::tag::{ChannelId, Tag};
use crate::threads::remote::{Address, Ending};
use device::Operation;
use mesh::Rank;
use session::{SEAL_BYTES, SealError, Sealer};

/// Bytes of the fields of a header.
pub(super) const FIELDS_BYTES: usize = 72;
/// Bytes of a sealed header.
pub(super) const HEADER_BYTES: usize = FIELDS_BYTES + SEAL_BYTES;
/// Bytes of the largest piece of a message.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Bytes of the longest message that is sent without being asked for.
pub(super) const EAGER_LIMIT_BYTES: usize = crate::collectives::COPY_LIMIT_BYTES;
/// Bytes of the longest description of a failure.
pub(super) const TEXT_LIMIT_BYTES: usize = 4 << 10;
/// Bytes of the longest message. No memory is allocated by a length from a frame.
pub(super) const MESSAGE_LIMIT_BYTES: u64 = 1 << 40;

/// How the bytes of a piece travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// After the header.
    Inline,
    /// In memory that both processes have mapped.
    Shared,
}

/// A part of a message: which, and where the receiver wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The number of the message.
    pub(super) message: u64,
    /// Where the part begins in the message, in bytes.
    pub(super) offset: u64,
    /// Its length in bytes.
    pub(super) len: u32,
    /// The place in the receiver's memory for pieces.
    pub(super) slot: u32,
}

/// A place in the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryPlace {
    /// The number of the process, as it sees itself.
    pub(super) process: u32,
    /// The address.
    pub(super) at: u64,
    /// The number that begins there: another process has another one.
    pub(super) mark: u64,
}

/// A message that its sender keeps until it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// Its number.
    pub(super) message: u64,
    /// Its length in bytes.
    pub(super) len: u64,
    /// The address of its bytes in the memory of the sender, for processes of its machine; 0 for others.
    pub(super) at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A small message; its bytes follow.
    Eager(Address),
    /// The name of a message.
    Announce(Address, Announcement),
    /// The receiver asks for a part of an announced message.
    Grant(Part),
    /// A part that was asked for.
    Piece(Part, Route),
    /// The receiver needs the message no more.
    Finish(u64, Ending),
    /// The sender takes an announced message back.
    Withdraw(Address, u64),
    /// This number of bytes of the memory for small messages is free again.
    Credit(u32),
    /// A rank has left a lane.
    Leave(Rank, u32),
    /// The world has failed because of a rank; the description follows.
    Abort(Rank),
    /// All ranks of the process have left; it needs nothing more.
    Goodbye,
    /// The answer to it, after which nothing follows.
    GoodbyeSeen,
    /// Where the sender counts the messages that it takes back.
    Memory(MemoryPlace),
}

/// A header: a frame, and how many bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) frame: Frame,
    /// Bytes that follow.
    pub(super) payload_len: u32,
}

/// Why a frame is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadFrame {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("a frame whose {field} is {value}")]
    Field { field: &'static str, value: u64 },
}

/// The fields of a header, in the types of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fields {
    kind: u32,
    source: u32,
    destination: u32,
    lane: u32,
    operation: u32,
    channel: u32,
    payload_len: u32,
    number: u64,
    message: u64,
    message_len: u64,
    offset: u64,
    slot: u32,
    piece_len: u32,
}

impl Header {
    /// The header of a frame with `payload` after it.
    pub(super) fn new(frame: Frame, payload: &[u8]) -> Header {
        Header { frame, payload_len: u32::try_from(payload.len()).unwrap_or(u32::MAX) }
    }

    /// Appends the frame to `bytes`, sealed, with `payload` after it.
    pub(super) fn seal(&self, payload: &[u8], sealer: &mut Sealer, bytes: &mut Vec<u8>) {
        sealer.append(&self.encode(), payload, bytes);
    }

    /// The fields of the header.
    pub(super) fn encode(&self) -> [u8; FIELDS_BYTES] {
        self.fields().encode()
    }

    /// Reads the fields of a header; checks everything that needs no knowledge of the world.
    ///
    /// # Errors
    /// Bytes that [`Header::encode`] does not write.
    pub(super) fn decode(bytes: &[u8]) -> Result<Header, BadFrame> {
        let length = BadFrame::Field { field: "header length", value: bytes.len() as u64 };
        let fields = Fields::decode(bytes.try_into().map_err(|_| length)?)?;
        let header = Header { frame: fields.frame()?, payload_len: fields.payload_len };
        if !header.payload_limit().contains(&fields.payload_len) {
            return Err(BadFrame::Field { field: "payload length", value: fields.payload_len.into() });
        }
        if header.fields() != fields {
            return Err(BadFrame::Field { field: "unused field, which must be 0", value: fields.kind.into() });
        }
        Ok(header)
    }

    fn payload_limit(&self) -> std::ops::RangeInclusive<u32> {
        match self.frame {
            Frame::Eager(_) => 0..=EAGER_LIMIT_BYTES as u32,
            Frame::Piece(part, Route::Inline) => part.len..=part.len,
            Frame::Abort(_) => 0..=TEXT_LIMIT_BYTES as u32,
            Frame::Announce(..)
            | Frame::Grant(_)
            | Frame::Piece(_, Route::Shared)
            | Frame::Finish(..)
            | Frame::Withdraw(..)
            | Frame::Credit(_)
            | Frame::Leave(..)
            | Frame::Goodbye
            | Frame::GoodbyeSeen
            | Frame::Memory(..) => 0..=0,
        }
    }

    fn fields(&self) -> Fields {
        let Header { frame, payload_len } = *self;
        let base = Fields { payload_len, ..Fields::default() };
        match frame {
            Frame::Eager(address) => base.with_address(1, address),
            Frame::Announce(address, Announcement { message, len, at }) => {
                Fields { message, message_len: len, offset: at, ..base.with_address(2, address) }
            }
            Frame::Grant(part) => base.with_part(3, part),
            Frame::Piece(part, Route::Inline) => base.with_part(4, part),
            Frame::Piece(part, Route::Shared) => base.with_part(5, part),
            Frame::Finish(message, Ending::Read) => Fields { kind: 6, message, ..base },
            Frame::Finish(message, Ending::Lost) => Fields { kind: 7, message, ..base },
            Frame::Withdraw(address, message) => Fields { message, ..base.with_address(8, address) },
            Frame::Credit(bytes) => Fields { kind: 9, message_len: bytes.into(), ..base },
            Frame::Leave(rank, lane) => Fields { kind: 10, source: rank_number(rank), lane, ..base },
            Frame::Abort(rank) => Fields { kind: 11, source: rank_number(rank), ..base },
            Frame::Goodbye => Fields { kind: 12, ..base },
            Frame::GoodbyeSeen => Fields { kind: 13, ..base },
            Frame::Memory(MemoryPlace { process, at, mark }) => {
                Fields { kind: 14, slot: process, offset: at, message: mark, ..base }
            }
        }
    }
}

impl Fields {
    fn with_address(self, kind: u32, address: Address) -> Fields {
        let Address { source, destination, lane, tag, operation } = address;
        Fields {
            kind,
            source: rank_number(source),
            destination: rank_number(destination),
            lane: u32::try_from(lane).unwrap_or(u32::MAX),
            operation: operation.number(),
            channel: tag.channel.number(),
            number: tag.number,
            ..self
        }
    }

    fn with_part(self, kind: u32, part: Part) -> Fields {
        let Part { message, offset, len, slot } = part;
        Fields { kind, message, offset, piece_len: len, slot, ..self }
    }

    fn frame(&self) -> Result<Frame, BadFrame> {
        let frame = match self.kind {
            1 => Frame::Eager(self.address()?),
            2 if self.message_len > MESSAGE_LIMIT_BYTES => {
                return Err(BadFrame::Field { field: "message length", value: self.message_len });
            }
            2 => {
                let announcement = Announcement { message: self.message, len: self.message_len, at: self.offset };
                Frame::Announce(self.address()?, announcement)
            }
            3 => Frame::Grant(self.part()?),
            4 => Frame::Piece(self.part()?, Route::Inline),
            5 => Frame::Piece(self.part()?, Route::Shared),
            6 => Frame::Finish(self.message, Ending::Read),
            7 => Frame::Finish(self.message, Ending::Lost),
            8 => Frame::Withdraw(self.address()?, self.message),
            9 => Frame::Credit(u32::try_from(self.message_len).unwrap_or(u32::MAX)),
            10 => Frame::Leave(Rank(self.source as usize), self.lane),
            11 => Frame::Abort(Rank(self.source as usize)),
            12 => Frame::Goodbye,
            13 => Frame::GoodbyeSeen,
            14 => Frame::Memory(MemoryPlace { process: self.slot, at: self.offset, mark: self.message }),
            kind => return Err(BadFrame::Field { field: "kind", value: kind.into() }),
        };
        Ok(frame)
    }

    fn address(&self) -> Result<Address, BadFrame> {
        let operation = Operation::of_number(self.operation.into());
        Ok(Address {
            source: Rank(self.source as usize),
            destination: Rank(self.destination as usize),
            lane: self.lane as usize,
            tag: Tag { channel: ChannelId::from_number(self.channel), number: self.number },
            operation: operation.ok_or(BadFrame::Field { field: "operation", value: self.operation.into() })?,
        })
    }

    fn part(&self) -> Result<Part, BadFrame> {
        if self.piece_len == 0 || self.piece_len as usize > PIECE_BYTES {
            return Err(BadFrame::Field { field: "piece length", value: self.piece_len.into() });
        }
        if !self.offset.is_multiple_of(PIECE_BYTES as u64) || self.offset > MESSAGE_LIMIT_BYTES {
            return Err(BadFrame::Field { field: "offset", value: self.offset });
        }
        Ok(Part { message: self.message, offset: self.offset, len: self.piece_len, slot: self.slot })
    }

    fn encode(&self) -> [u8; FIELDS_BYTES] {
        let mut bytes = [0; FIELDS_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.kind.to_le_bytes());
        put(4, &self.payload_len.to_le_bytes());
        put(8, &self.source.to_le_bytes());
        put(12, &self.destination.to_le_bytes());
        put(16, &self.lane.to_le_bytes());
        put(20, &self.operation.to_le_bytes());
        put(24, &self.channel.to_le_bytes());
        put(28, &self.slot.to_le_bytes());
        put(32, &self.piece_len.to_le_bytes());
        put(40, &self.number.to_le_bytes());
        put(48, &self.message.to_le_bytes());
        put(56, &self.message_len.to_le_bytes());
        put(64, &self.offset.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; FIELDS_BYTES]) -> Result<Fields, BadFrame> {
        let unused = u32_at(bytes, 36);
        if unused != 0 {
            return Err(BadFrame::Field { field: "unused field, which must be 0", value: unused.into() });
        }
        Ok(Fields {
            kind: u32_at(bytes, 0),
            payload_len: u32_at(bytes, 4),
            source: u32_at(bytes, 8),
            destination: u32_at(bytes, 12),
            lane: u32_at(bytes, 16),
            operation: u32_at(bytes, 20),
            channel: u32_at(bytes, 24),
            slot: u32_at(bytes, 28),
            piece_len: u32_at(bytes, 32),
            number: u64_at(bytes, 40),
            message: u64_at(bytes, 48),
            message_len: u64_at(bytes, 56),
            offset: u64_at(bytes, 64),
        })
    }
}

/// Worlds with more ranks than fit are refused by the process map.
fn rank_number(rank: Rank) -> u32 {
    u32::try_from(rank.0).unwrap_or(u32::MAX)
}

fn u32_at(bytes: &[u8; FIELDS_BYTES], at: usize) -> u32 {
    u32::from_le(bytemuck::pod_read_unaligned(&bytes[at..at + 4]))
}

fn u64_at(bytes: &[u8; FIELDS_BYTES], at: usize) -> u64 {
    u64::from_le(bytemuck::pod_read_unaligned(&bytes[at..at + 8]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address() -> impl Strategy<Value = Address> {
        let ranks =
            (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>(), 0usize..Operation::ALL.len());
        ranks.prop_map(|(source, destination, lane, channel, number, operation)| Address {
            source: Rank(source as usize),
            destination: Rank(destination as usize),
            lane: lane as usize,
            tag: Tag { channel: ChannelId::from_number(channel), number },
            operation: Operation::ALL[operation],
        })
    }

    fn part() -> impl Strategy<Value = Part> {
        (any::<u64>(), 0u64..1 << 20, 1..=PIECE_BYTES as u32, any::<u32>()).prop_map(|(message, row, len, slot)| Part {
            message,
            offset: row * PIECE_BYTES as u64,
            len,
            slot,
        })
    }

    fn announcement() -> impl Strategy<Value = Announcement> {
        (any::<u64>(), 0..=MESSAGE_LIMIT_BYTES, any::<u64>()).prop_map(|(message, len, at)| Announcement {
            message,
            len,
            at,
        })
    }

    fn frame() -> impl Strategy<Value = Frame> {
        prop_oneof![
            address().prop_map(Frame::Eager),
            (address(), announcement()).prop_map(|(to, announcement)| Frame::Announce(to, announcement)),
            part().prop_map(Frame::Grant),
            part().prop_map(|part| Frame::Piece(part, Route::Inline)),
            part().prop_map(|part| Frame::Piece(part, Route::Shared)),
            any::<u64>().prop_map(|message| Frame::Finish(message, Ending::Read)),
            any::<u64>().prop_map(|message| Frame::Finish(message, Ending::Lost)),
            (address(), any::<u64>()).prop_map(|(to, message)| Frame::Withdraw(to, message)),
            any::<u32>().prop_map(Frame::Credit),
            (any::<u32>(), any::<u32>()).prop_map(|(rank, lane)| Frame::Leave(Rank(rank as usize), lane)),
            any::<u32>().prop_map(|rank| Frame::Abort(Rank(rank as usize))),
            Just(Frame::Goodbye),
            Just(Frame::GoodbyeSeen),
            (any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(process, at, mark)| Frame::Memory(MemoryPlace {
                process,
                at,
                mark
            })),
        ]
    }

    /// A header of `frame` with a payload of a length that it may have.
    fn header(frame: Frame) -> Header {
        let shape = Header::new(frame, &[]);
        let payload_len = (*shape.payload_limit().start()).max(33).min(*shape.payload_limit().end());
        Header { payload_len, ..shape }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn a_header_comes_back(frame in frame()) {
            let header = header(frame);
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn fields_at_random_are_read_as_written_or_refused(
            mut bytes in proptest::collection::vec(any::<u8>(), FIELDS_BYTES),
            kind in 0u8..16,
            zeroed in proptest::collection::vec(any::<bool>(), 11),
        ) {
            for (field, zero) in [4..8, 8..12, 12..16, 16..20, 20..24, 24..28, 28..36, 40..48, 48..56, 56..64, 64..72].into_iter().zip(zeroed) {
                if zero {
                    bytes[field].fill(0);
                }
            }
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            bytes[36..40].fill(0);
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(&header.encode()[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_named() {
        let tag = Tag { channel: ChannelId::from_number(0), number: 0 };
        let operation = Operation::Barrier;
        let to = Address { source: Rank(0), destination: Rank(1), lane: 0, tag, operation };
        let message = |frame| Header::decode(&Header::new(frame, &[]).encode()).unwrap_err().to_string();
        assert_eq!(
            message(Frame::Announce(to, Announcement { message: 0, len: MESSAGE_LIMIT_BYTES + 1, at: 0 })),
            "a frame whose message length is 1099511627777"
        );
        let long = Part { message: 0, offset: 0, len: PIECE_BYTES as u32 + 1, slot: 0 };
        assert_eq!(message(Frame::Grant(long)), "a frame whose piece length is 65537");
        let odd = Part { message: 0, offset: 64, len: 1, slot: 0 };
        assert_eq!(message(Frame::Grant(odd)), "a frame whose offset is 64");
        let eager = Header { payload_len: 16_385, ..Header::new(Frame::Eager(to), &[]) };
        assert_eq!(Header::decode(&eager.encode()).unwrap_err().to_string(), "a frame whose payload length is 16385");
        let mut unused = Header::new(Frame::Goodbye, &[]).encode();
        unused[37] = 1;
        let refused = Header::decode(&unused).unwrap_err().to_string();
        assert_eq!(refused, "a frame whose unused field, which must be 0 is 256");
        assert_eq!(Header::decode(&unused[1..]).unwrap_err().to_string(), "a frame whose header length is 71");
    }
}
