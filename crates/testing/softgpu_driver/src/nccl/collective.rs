//! One collective, or a message: its memory and its result.

use device::{Bf16, Element as _};
use gpu::DevicePointer;

/// The type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Bytes, which are moved and not added.
    Bytes,
    /// 64-bit integers, whose sums wrap around.
    I64,
    /// fp32.
    F32,
    Bf16,
}

impl Element {
    /// The type of a number of the header.
    pub fn of(number: u32) -> Option<Element> {
        match number {
            1 => Some(Element::Bytes),
            4 => Some(Element::I64),
            7 => Some(Element::F32),
            9 => Some(Element::Bf16),
            _ => None,
        }
    }

    /// Its number in the header.
    pub fn number(self) -> u32 {
        match self {
            Element::Bytes => 1,
            Element::I64 => 4,
            Element::F32 => 7,
            Element::Bf16 => 9,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Element::Bytes => 1,
            Element::I64 => 8,
            Element::F32 => 4,
            Element::Bf16 => 2,
        }
    }

    /// The sum of pieces that are equally long, in their order.
    fn sum(self, pieces: &[&[u8]]) -> Vec<u8> {
        match self {
            Element::I64 => {
                let each = |piece: &[u8]| numbers(piece, i64::from_le_bytes);
                added(pieces, each, i64::wrapping_add).into_iter().flat_map(i64::to_le_bytes).collect()
            }
            Element::F32 => {
                let each = |piece: &[u8]| numbers(piece, f32::from_le_bytes);
                added(pieces, each, |a, b| a + b).into_iter().flat_map(f32::to_le_bytes).collect()
            }
            Element::Bf16 => {
                let each = |piece: &[u8]| numbers(piece, |bytes| Bf16(u16::from_le_bytes(bytes)).widen());
                let sums = added(pieces, each, |a, b| a + b);
                sums.into_iter().flat_map(|sum| Bf16::narrow(sum).0.to_le_bytes()).collect()
            }
            // Refused before: bytes are not added.
            Element::Bytes => vec![],
        }
    }
}

fn numbers<T, const N: usize>(piece: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    piece.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
}

fn added<T: Copy>(pieces: &[&[u8]], each: impl Fn(&[u8]) -> Vec<T>, add: impl Fn(T, T) -> T) -> Vec<T> {
    let mut all = pieces.iter().map(|piece| each(piece));
    let mut sums = all.next().unwrap_or_default();
    for piece in all {
        for (sum, number) in sums.iter_mut().zip(piece) {
            *sum = add(*sum, number);
        }
    }
    sums
}

/// A collective, or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Everybody has the sum.
    AllReduce,
    /// Everybody has a piece of the sum.
    ReduceScatter,
    /// Everybody has the pieces of all.
    AllGather,
    /// A message to a rank.
    Send(usize),
    /// A message from a rank.
    Receive(usize),
}

impl Kind {
    /// The sender and the receiver, as `rank` sees them, of a message.
    pub fn ends(self, rank: usize) -> Option<[usize; 2]> {
        match self {
            Kind::Send(peer) => Some([rank, peer]),
            Kind::Receive(peer) => Some([peer, rank]),
            Kind::AllReduce | Kind::ReduceScatter | Kind::AllGather => None,
        }
    }
}

/// The part of a call that all ranks have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The collective, or the message.
    pub kind: Kind,
    /// The type of elements.
    pub element: Element,
    /// How many: of a piece, where there are pieces.
    pub count: usize,
}

/// The part of one rank in a call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub request: Request,
    /// Memory that is read.
    pub from: DevicePointer,
    /// Memory that is written.
    pub to: DevicePointer,
}

impl Request {
    /// Whether two ranks ask for the same.
    pub fn agrees(&self, other: &Request) -> bool {
        let of = |request: &Request| (request.element, request.count);
        let kinds_agree = match (self.kind, other.kind) {
            (Kind::Send(_), Kind::Receive(_)) | (Kind::Receive(_), Kind::Send(_)) => true,
            (one, another) => one == another,
        };
        kinds_agree && of(self) == of(other)
    }

    fn piece(&self) -> usize {
        self.count.saturating_mul(self.element.bytes())
    }

    /// Bytes that each of `ranks` reads, and bytes that it writes.
    pub fn bytes(&self, ranks: usize) -> [usize; 2] {
        let (piece, all) = (self.piece(), self.piece().saturating_mul(ranks));
        match self.kind {
            Kind::AllReduce => [piece, piece],
            Kind::ReduceScatter => [all, piece],
            Kind::AllGather => [piece, all],
            Kind::Send(_) => [piece, 0],
            Kind::Receive(_) => [0, piece],
        }
    }
}

/// The bytes that the ranks of a collective write, from those that they have read, in their order.
pub fn results(request: &Request, parts: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (ranks, piece) = (parts.len(), request.piece());
    let of = move |bytes: &[u8], index: usize| bytes[index * piece..(index + 1) * piece].to_vec();
    let all: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    match request.kind {
        Kind::AllReduce => vec![request.element.sum(&all); ranks],
        Kind::ReduceScatter => {
            let sum = request.element.sum(&all);
            (0..ranks).map(|rank| of(&sum, rank)).collect()
        }
        Kind::AllGather => vec![all.concat(); ranks],
        Kind::Send(_) | Kind::Receive(_) => vec![],
    }
}
