//! One collective, or a message: its memory and its result.

use device::{Bf16, Element as _};
use gpu::DevicePointer;
use softgpu::HostWork;

/// The type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Bytes, which are moved and not added.
    Bytes,
    /// 64-bit integers, whose sums wrap around.
    I64,
    /// fp32.
    F32,
    /// bf16.
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

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everybody has the sum.
    AllReduce,
    /// Everybody has a piece of the sum.
    ReduceScatter,
    /// Everybody has the pieces of all.
    AllGather,
    /// Everybody has a piece of each.
    AllToAll,
    /// Everybody has what a rank has.
    Broadcast(usize),
    /// A message to a rank.
    Send(usize),
    /// A message from a rank.
    Receive(usize),
}

/// The part of one rank in a call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The request.
    pub kind: Kind,
    /// The type of elements.
    pub element: Element,
    /// How many: of a piece, where there are pieces.
    pub count: usize,
    /// Memory that is read.
    pub from: DevicePointer,
    /// Memory that is written.
    pub to: DevicePointer,
}

impl Call {
    /// Whether two ranks ask for the same.
    pub fn agrees(&self, other: &Call) -> bool {
        let of = |call: &Call| (call.element, call.count);
        let kinds_agree = match (self.kind, other.kind) {
            (Kind::Send(_), Kind::Receive(_)) | (Kind::Receive(_), Kind::Send(_)) => true,
            (one, another) => one == another,
        };
        kinds_agree && of(self) == of(other)
    }

    fn piece(&self) -> usize {
        self.count * self.element.bytes()
    }
}

/// The work of a collective for the calls of all ranks, in their order.
pub fn collective(name: &'static str, calls: &[Call]) -> Option<HostWork> {
    let (first, ranks) = (*calls.first()?, calls.len());
    let piece = first.piece();
    let (read, written) = match first.kind {
        Kind::AllReduce | Kind::Broadcast(_) => (piece, piece),
        Kind::ReduceScatter => (ranks * piece, piece),
        Kind::AllGather => (piece, ranks * piece),
        Kind::AllToAll => (ranks * piece, ranks * piece),
        Kind::Send(_) | Kind::Receive(_) => return None,
    };
    // Of a broadcast only the root's memory is read.
    let is_read = |rank: usize| match first.kind {
        Kind::Broadcast(root) => rank == root,
        Kind::AllReduce | Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll => true,
        Kind::Send(_) | Kind::Receive(_) => false,
    };
    let reads = calls.iter().enumerate().filter(|(rank, _)| is_read(*rank)).map(|(_, call)| (call.from, read));
    let of = move |bytes: &[u8], index: usize| bytes[index * piece..(index + 1) * piece].to_vec();
    let compute = move |read: &[Vec<u8>]| -> Vec<Vec<u8>> {
        let all: Vec<&[u8]> = read.iter().map(Vec::as_slice).collect();
        match first.kind {
            Kind::AllReduce => vec![first.element.sum(&all); ranks],
            Kind::ReduceScatter => {
                let sum = first.element.sum(&all);
                (0..ranks).map(|rank| of(&sum, rank)).collect()
            }
            Kind::AllGather => vec![all.concat(); ranks],
            Kind::AllToAll => (0..ranks).map(|rank| all.iter().flat_map(|from| of(from, rank)).collect()).collect(),
            Kind::Broadcast(_) => vec![all.concat(); ranks],
            Kind::Send(_) | Kind::Receive(_) => vec![],
        }
    };
    let writes = calls.iter().map(|call| (call.to, written)).collect();
    Some(HostWork { call: name, reads: reads.collect(), writes, compute: Box::new(compute) })
}

/// The work of a message.
pub fn message(send: &Call, receive: &Call) -> HostWork {
    HostWork {
        call: "ncclRecv",
        reads: vec![(send.from, send.piece())],
        writes: vec![(receive.to, receive.piece())],
        compute: Box::new(<[Vec<u8>]>::to_vec),
    }
}
