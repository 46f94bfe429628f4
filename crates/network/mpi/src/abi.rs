//! The three ABIs of MPI, and the numbers in which they differ.
//!
//! Sources: MPI 5.0, chapter 20 and its `mpi_abi.h`; `mpi.h` of MPICH 4 and 5, to which Intel MPI, Cray MPICH and
//! MVAPICH keep by the MPICH ABI Compatibility Initiative; `mpi.h` of Open MPI 4 and 5.

use std::ffi::{c_int, c_void};
use std::fmt;

/// How a library passes handles and constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// The ABI of the MPI 5 standard: handles as wide as addresses, with fixed values.
    Mpi5,
    /// The ABI of MPICH, Intel MPI, Cray MPICH and MVAPICH: handles are `int`.
    Mpich,
    /// The ABI of Open MPI 4 and 5: handles are addresses of symbols.
    OpenMpi,
}

impl Abi {
    /// All ABIs, in the order in which libraries are preferred.
    pub const ALL: [Abi; 3] = [Abi::Mpi5, Abi::Mpich, Abi::OpenMpi];

    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Abi::Mpi5 => "the ABI of MPI 5",
            Abi::Mpich => "the ABI of MPICH",
            Abi::OpenMpi => "the ABI of Open MPI",
        }
    }

    /// The file names of its libraries, preferred ones first.
    pub const fn file_names(self) -> &'static [&'static str] {
        match self {
            Abi::Mpi5 => &["libmpi_abi.so.1"],
            Abi::Mpich => &["libmpi.so.12", "libmpich.so.12"],
            Abi::OpenMpi => &["libmpi.so.40"],
        }
    }

    /// Bytes of an `MPI_Status`.
    pub(crate) const fn status_bytes(self) -> usize {
        match self {
            Abi::Mpi5 => 32,
            Abi::Mpich => 20,
            Abi::OpenMpi => 24,
        }
    }

    /// `MPI_IN_PLACE`.
    pub(crate) fn in_place(self) -> *mut c_void {
        let address = match self {
            Abi::Mpi5 | Abi::OpenMpi => 1,
            Abi::Mpich => usize::MAX,
        };
        std::ptr::without_provenance_mut(address)
    }

    /// `MPI_STATUS_IGNORE`.
    pub(crate) fn status_ignore(self) -> *mut c_void {
        match self {
            Abi::Mpi5 | Abi::OpenMpi => std::ptr::null_mut(),
            Abi::Mpich => std::ptr::without_provenance_mut(1),
        }
    }

    const fn level_number(self, level: ThreadLevel) -> c_int {
        let number = match level {
            ThreadLevel::Single => 0,
            ThreadLevel::Funneled => 1,
            ThreadLevel::Serialized => 2,
            ThreadLevel::Multiple => 3,
        };
        match (self, level) {
            (_, ThreadLevel::Single) => 0,
            (Abi::Mpi5, _) => 512 << number,
            (Abi::Mpich | Abi::OpenMpi, _) => number,
        }
    }
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which threads may call a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// The process has one thread.
    Single,
    /// One thread calls; the process has others.
    Funneled,
    /// Any thread, one at a time.
    Serialized,
    /// Any thread at any time.
    Multiple,
}

impl ThreadLevel {
    const ALL: [ThreadLevel; 4] =
        [ThreadLevel::Single, ThreadLevel::Funneled, ThreadLevel::Serialized, ThreadLevel::Multiple];

    /// Its name in messages: that of the constant without `MPI_THREAD_`, in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            ThreadLevel::Single => "single",
            ThreadLevel::Funneled => "funneled",
            ThreadLevel::Serialized => "serialized",
            ThreadLevel::Multiple => "multiple",
        }
    }

    pub(crate) const fn number(self, abi: Abi) -> c_int {
        abi.level_number(self)
    }

    /// The level that a library means by `number`; `None` for a number that the ABI does not have.
    pub(crate) fn from_number(abi: Abi, number: c_int) -> Option<ThreadLevel> {
        ThreadLevel::ALL.into_iter().find(|level| level.number(abi) == number)
    }
}

impl fmt::Display for ThreadLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_the_numbers_of_their_header() {
        let numbers = |abi| ThreadLevel::ALL.map(|level| level.number(abi));
        assert_eq!(numbers(Abi::Mpi5), [0, 1024, 2048, 4096]);
        assert_eq!(numbers(Abi::Mpich), [0, 1, 2, 3]);
        assert_eq!(numbers(Abi::OpenMpi), [0, 1, 2, 3]);
        for abi in Abi::ALL {
            for level in ThreadLevel::ALL {
                assert_eq!(ThreadLevel::from_number(abi, level.number(abi)), Some(level));
            }
            assert_eq!(ThreadLevel::from_number(abi, 7), None);
        }
    }
}
