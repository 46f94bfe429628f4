//! Messages between ranks and the hub at which they meet, over a connection of TCP on this machine.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Read, Result, Write};

use super::collective::{Element, Kind, Request};
use super::launches::Counts;

/// How far the work of GPUs is known: by GPU, the number of its last read that others have the bytes of.
pub type Known = BTreeMap<u64, u64>;

/// From a rank to the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromRank {
    /// The first one: who comes to which group.
    Hello {
        key: u64,
        ranks: usize,
        rank: usize,
    },
    /// A call that the rank's stream has come to, with the bytes that it reads. Of collectives `number` counts those of
    /// the group, of messages those between two ranks in one direction. `launched` counts the collectives that the GPU
    /// has launched before a collective, by communicator.
    Call {
        ticket: u64,
        number: u64,
        request: Request,
        known: Known,
        launched: Counts,
        bytes: Vec<u8>,
    },
    /// It makes no more calls.
    Finish,
    Leave,
    /// It makes calls that it must not make.
    Misuse,
}

/// From the hub to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToRank {
    /// All have come.
    Met,
    /// All have finished.
    Over,
    /// Another rank has left.
    PeerHasLeft,
    /// The calls of two ranks do not fit together.
    Misused,
    /// The bytes that a call writes.
    Written { ticket: u64, known: Known, bytes: Vec<u8> },
}

/// Words of a message before its bytes; the last one is their number.
const WORDS: usize = 8;

/// More than any message of a test has.
const MOST_BYTES: u64 = 1 << 32;

/// The known reads, before bytes.
fn with_known(known: &Known, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(8 + 16 * known.len() + bytes.len());
    all.extend((known.len() as u64).to_le_bytes());
    known.iter().for_each(|(gpu, read)| [gpu, read].iter().for_each(|word| all.extend(word.to_le_bytes())));
    all.extend(bytes);
    all
}

/// The parts of [`with_known`].
fn without_known(all: &[u8]) -> Option<(Known, Vec<u8>)> {
    let (count, rest) = all.split_first_chunk::<8>()?;
    let (pairs, bytes) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*count)).ok()?.checked_mul(16)?)?;
    let words: Vec<u64> = pairs.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    Some((words.as_chunks::<2>().0.iter().map(|[gpu, read]| (*gpu, *read)).collect(), bytes.to_vec()))
}

fn damaged() -> Error {
    Error::new(ErrorKind::InvalidData, "a message of no known form")
}

fn write(to: &mut impl Write, words: [u64; WORDS - 1], bytes: &[u8]) -> Result<()> {
    let mut message = Vec::with_capacity(8 * WORDS + bytes.len());
    for word in words.into_iter().chain([bytes.len() as u64]) {
        message.extend(word.to_le_bytes());
    }
    message.extend(bytes);
    to.write_all(&message)
}

fn read(from: &mut impl Read) -> Result<([u64; WORDS], Vec<u8>)> {
    let mut header = [0; 8 * WORDS];
    from.read_exact(&mut header)?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(header.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    if words[WORDS - 1] > MOST_BYTES {
        return Err(damaged());
    }
    let mut bytes = vec![0; words[WORDS - 1] as usize];
    from.read_exact(&mut bytes)?;
    Ok((words, bytes))
}

fn words_of(request: &Request) -> [u64; 4] {
    let (kind, rank) = match request.kind {
        Kind::AllReduce => (0, 0),
        Kind::ReduceScatter => (1, 0),
        Kind::AllGather => (2, 0),
        Kind::Send(peer) => (3, peer),
        Kind::Receive(peer) => (4, peer),
    };
    [kind, rank as u64, u64::from(request.element.number()), request.count as u64]
}

fn request_of([kind, rank, element, count]: [u64; 4]) -> Option<Request> {
    let rank = usize::try_from(rank).ok()?;
    let kind = match kind {
        0 => Kind::AllReduce,
        1 => Kind::ReduceScatter,
        2 => Kind::AllGather,
        3 => Kind::Send(rank),
        4 => Kind::Receive(rank),
        _ => return None,
    };
    let element = Element::of(u32::try_from(element).ok()?)?;
    Some(Request { kind, element, count: usize::try_from(count).ok()? })
}

impl FromRank {
    /// Writes the message.
    pub fn write(&self, to: &mut impl Write) -> Result<()> {
        match self {
            FromRank::Hello { key, ranks, rank } => write(to, [0, *key, *ranks as u64, *rank as u64, 0, 0, 0], &[]),
            FromRank::Call { ticket, number, request, known, launched, bytes } => {
                let [kind, rank, element, count] = words_of(request);
                let bytes = with_known(known, &with_known(launched, bytes));
                write(to, [1, *ticket, *number, kind, rank, element, count], &bytes)
            }
            FromRank::Finish => write(to, [2, 0, 0, 0, 0, 0, 0], &[]),
            FromRank::Leave => write(to, [3, 0, 0, 0, 0, 0, 0], &[]),
            FromRank::Misuse => write(to, [4, 0, 0, 0, 0, 0, 0], &[]),
        }
    }

    /// Reads a message.
    pub fn read(from: &mut impl Read) -> Result<FromRank> {
        let (words, bytes) = read(from)?;
        let size = |word: u64| usize::try_from(word).map_err(|_| damaged());
        match words {
            [0, key, ranks, rank, ..] => Ok(FromRank::Hello { key, ranks: size(ranks)?, rank: size(rank)? }),
            [1, ticket, number, kind, rank, element, count, _] => {
                let request = request_of([kind, rank, element, count]).ok_or_else(damaged)?;
                let (known, bytes) = without_known(&bytes).ok_or_else(damaged)?;
                let (launched, bytes) = without_known(&bytes).ok_or_else(damaged)?;
                Ok(FromRank::Call { ticket, number, request, known, launched, bytes })
            }
            [2, ..] => Ok(FromRank::Finish),
            [3, ..] => Ok(FromRank::Leave),
            [4, ..] => Ok(FromRank::Misuse),
            _ => Err(damaged()),
        }
    }
}

impl ToRank {
    /// Writes the message.
    pub fn write(&self, to: &mut impl Write) -> Result<()> {
        let state = |number: u64| [number, 0, 0, 0, 0, 0, 0];
        match self {
            ToRank::Met => write(to, state(0), &[]),
            ToRank::Over => write(to, state(1), &[]),
            ToRank::PeerHasLeft => write(to, state(2), &[]),
            ToRank::Misused => write(to, state(3), &[]),
            ToRank::Written { ticket, known, bytes } => {
                write(to, [4, *ticket, 0, 0, 0, 0, 0], &with_known(known, bytes))
            }
        }
    }

    /// Reads a message.
    pub fn read(from: &mut impl Read) -> Result<ToRank> {
        let (words, bytes) = read(from)?;
        match words {
            [0, ..] => Ok(ToRank::Met),
            [1, ..] => Ok(ToRank::Over),
            [2, ..] => Ok(ToRank::PeerHasLeft),
            [3, ..] => Ok(ToRank::Misused),
            [4, ticket, ..] => {
                let (known, bytes) = without_known(&bytes).ok_or_else(damaged)?;
                Ok(ToRank::Written { ticket, known, bytes })
            }
            _ => Err(damaged()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written_and_others_are_refused() {
        let request = Request { kind: Kind::Send(3), element: Element::Bf16, count: 7 };
        let sent = [
            FromRank::Hello { key: 9, ranks: 4, rank: 2 },
            FromRank::Call {
                ticket: 5,
                number: 6,
                request,
                known: [(7, 8)].into(),
                launched: [(9, 10), (11, 12)].into(),
                bytes: vec![1, 2, 3],
            },
            FromRank::Finish,
            FromRank::Leave,
            FromRank::Misuse,
        ];
        let mut bytes = vec![];
        sent.iter().for_each(|message| message.write(&mut bytes).expect("written"));
        let mut rest = &bytes[..];
        let read: Vec<FromRank> = sent.iter().map(|_| FromRank::read(&mut rest).expect("read")).collect();
        assert_eq!((read.as_slice(), rest), (&sent[..], &[][..]));
        assert!(FromRank::read(&mut &[0xff; 64][..]).is_err());
        let answers = [ToRank::Met, ToRank::Over, ToRank::PeerHasLeft, ToRank::Misused];
        let written = ToRank::Written { ticket: 8, known: [(1, 2), (3, 4)].into(), bytes: vec![4; 9] };
        for answer in answers.into_iter().chain([written]) {
            let mut bytes = vec![];
            answer.write(&mut bytes).expect("written");
            assert_eq!(ToRank::read(&mut &bytes[..]).expect("read"), answer);
        }
        assert!(ToRank::read(&mut &[9; 64][..]).is_err());
    }
}
