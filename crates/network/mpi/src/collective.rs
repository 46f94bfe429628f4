//! Collectives of a library, as values, and the functions that begin them: one call of all processes of a communicator.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libloading::os::unix::Library as Loaded;

use crate::functions::{Constants, Handle, symbol};

/// The numbers of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// `f32`, in an order that the library chooses.
    Single,
    /// 64-bit integers, modulo 2^64.
    Integer,
}

impl Number {
    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            Number::Single => 4,
            Number::Integer => 8,
        }
    }
}

/// A buffer cut into one part per process of a communicator, in the order of its processes, without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    lens: Arc<[c_int]>,
    starts: Arc<[c_int]>,
}

impl Parts {
    /// Parts of these lengths; `None` where together they are longer than MPI counts.
    pub fn new(lens: impl IntoIterator<Item = usize>) -> Option<Parts> {
        let (mut all, mut starts, mut end) = (vec![], vec![], 0usize);
        for len in lens {
            starts.push(c_int::try_from(end).ok()?);
            all.push(c_int::try_from(len).ok()?);
            end = end.checked_add(len)?;
        }
        c_int::try_from(end).ok()?;
        Some(Parts { lens: all.into(), starts: starts.into() })
    }

    /// The length of part `process`.
    pub fn len_of(&self, process: usize) -> usize {
        self.lens.get(process).map_or(0, |len| usize::try_from(*len).unwrap_or(0))
    }

    /// The place where part `process` begins.
    pub fn start_of(&self, process: usize) -> usize {
        self.starts.get(process).map_or(0, |start| usize::try_from(*start).unwrap_or(0))
    }

    /// The length of all parts.
    pub fn total(&self) -> usize {
        (0..self.lens.len()).map(|process| self.len_of(process)).sum()
    }
}

/// One collective over a buffer, which is as long as `len`, in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collective {
    /// `MPI_Iallreduce` with `MPI_SUM` of `len` numbers.
    AllReduce {
        /// Their type.
        number: Number,
        /// How many.
        len: usize,
    },
    /// `MPI_Ireduce_scatter` with `MPI_SUM`: the part of this process is at the beginning of the buffer afterwards, and
    /// the rest of the buffer is unspecified.
    ReduceScatter {
        /// The type of the numbers.
        number: Number,
        /// Parts in numbers.
        parts: Parts,
    },
    /// `MPI_Iallgatherv`: each process has its part in place before, and all parts afterwards.
    AllGather {
        /// Parts in bytes.
        parts: Parts,
    },
    /// `MPI_Ialltoallv`: part `p` of the first half of the buffer goes to process `p`, and part `p` of the second half
    /// is what process `p` has sent. The part that a process has for another is as long as the one that it gets from
    /// there.
    AllToAll {
        /// Parts of either half, in bytes.
        parts: Parts,
    },
    /// `MPI_Ibarrier`.
    Barrier,
}

impl Collective {
    /// Bytes of the buffer that it reads and writes.
    pub fn size_bytes(&self) -> usize {
        match self {
            Collective::AllReduce { number, len } => number.size_bytes() * len,
            Collective::ReduceScatter { number, parts } => number.size_bytes() * parts.total(),
            Collective::AllGather { parts } => parts.total(),
            Collective::AllToAll { parts } => 2 * parts.total(),
            Collective::Barrier => 0,
        }
    }

    /// The function of the library, for messages.
    pub const fn function(&self) -> &'static str {
        match self {
            Collective::AllReduce { .. } => "MPI_Iallreduce",
            Collective::ReduceScatter { .. } => "MPI_Ireduce_scatter",
            Collective::AllGather { .. } => "MPI_Iallgatherv",
            Collective::AllToAll { .. } => "MPI_Ialltoallv",
            Collective::Barrier => "MPI_Ibarrier",
        }
    }
}

type BeginSum<H> = unsafe extern "C" fn(*const c_void, *mut c_void, c_int, H, H, H, *mut H) -> c_int;
type BeginSumToParts<H> = unsafe extern "C" fn(*const c_void, *mut c_void, *const c_int, H, H, H, *mut H) -> c_int;
type BeginGather<H> =
    unsafe extern "C" fn(*const c_void, c_int, H, *mut c_void, *const c_int, *const c_int, H, H, *mut H) -> c_int;
type BeginExchange<H> = unsafe extern "C" fn(
    *const c_void,
    *const c_int,
    *const c_int,
    H,
    *mut c_void,
    *const c_int,
    *const c_int,
    H,
    H,
    *mut H,
) -> c_int;

/// The functions of a library that begin collectives.
pub(crate) struct Collectives<H> {
    sum: BeginSum<H>,
    sum_to_parts: BeginSumToParts<H>,
    gather: BeginGather<H>,
    exchange: BeginExchange<H>,
    barrier: unsafe extern "C" fn(H, *mut H) -> c_int,
}

impl<H: Handle> Collectives<H> {
    /// The functions, or the name of one that is missing.
    pub(crate) fn bind(library: &Loaded) -> Result<Collectives<H>, &'static str> {
        Ok(Collectives {
            sum: symbol(library, "MPI_Iallreduce")?,
            sum_to_parts: symbol(library, "MPI_Ireduce_scatter")?,
            gather: symbol(library, "MPI_Iallgatherv")?,
            exchange: symbol(library, "MPI_Ialltoallv")?,
            barrier: symbol(library, "MPI_Ibarrier")?,
        })
    }

    /// Begins a collective over memory, in place; returns the library's code.
    ///
    /// # Safety
    /// `communicator` is open. The memory has [`Collective::size_bytes`] and must stay where it is, for nobody else's
    /// use, and the collective must keep its parts, until the request has ended or no further call is made.
    pub(crate) unsafe fn begin(
        &self,
        constants: &Constants<H>,
        in_place: *const c_void,
        communicator: H,
        (collective, memory): (&Collective, *mut [u8]),
        request: &mut H,
    ) -> c_int {
        let Constants { byte, float, integer, sum, .. } = *constants;
        let place: *mut c_void = memory.cast();
        let of = |number: &Number| match number {
            Number::Single => float,
            Number::Integer => integer,
        };
        // SAFETY: the caller keeps the memory, which is as long as the collective says, and the parts, which have an
        // entry for each process of the communicator; the request is a place of the ABI's size.
        unsafe {
            match collective {
                Collective::AllReduce { number, len } => {
                    let len = c_int::try_from(*len).unwrap_or(c_int::MAX);
                    (self.sum)(in_place, place, len, of(number), sum, communicator, request)
                }
                Collective::ReduceScatter { number, parts } => {
                    let lens = parts.lens.as_ptr();
                    (self.sum_to_parts)(in_place, place, lens, of(number), sum, communicator, request)
                }
                Collective::AllGather { parts } => {
                    let (lens, starts) = (parts.lens.as_ptr(), parts.starts.as_ptr());
                    (self.gather)(in_place, 0, byte, place, lens, starts, byte, communicator, request)
                }
                Collective::AllToAll { parts } => {
                    let (lens, starts) = (parts.lens.as_ptr(), parts.starts.as_ptr());
                    let received = place.byte_add(parts.total());
                    (self.exchange)(place, lens, starts, byte, received, lens, starts, byte, communicator, request)
                }
                Collective::Barrier => (self.barrier)(communicator, request),
            }
        }
    }
}

/// A communicator that an endpoint has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommunicatorNumber(pub(crate) usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_have_a_limit() {
        let parts = Parts::new([3, 0, 5]).unwrap();
        assert_eq!(
            (0..3).map(|part| (parts.start_of(part), parts.len_of(part))).collect::<Vec<_>>(),
            [(0, 3), (3, 0), (3, 5)]
        );
        assert_eq!(parts.total(), 8);
        assert_eq!((parts.len_of(3), Parts::new([usize::MAX, 1])), (0, None));
        assert_eq!(Parts::new([1 << 30, 1 << 30]), None);
        let exchange = Collective::AllToAll { parts: parts.clone() };
        assert_eq!((exchange.size_bytes(), exchange.function()), (16, "MPI_Ialltoallv"));
        let scatter = Collective::ReduceScatter { number: Number::Integer, parts };
        assert_eq!((scatter.size_bytes(), scatter.function()), (64, "MPI_Ireduce_scatter"));
    }
}
