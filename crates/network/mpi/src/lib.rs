//! A library of MPI, opened at run time: no header, no compiler, nothing linked.
//!
//! - [`Abi`] has the constants in which libraries differ: the ABI of MPI 5, that of MPICH and its relatives, and that
//!   of Open MPI.
//! - [`find`] decides which library fits the launcher of this process.
//! - [`Endpoint`] opens it and moves messages. One thread makes all calls, so every library with `MPI_THREAD_FUNNELED`
//!   fits. It polls while messages are under way and sleeps otherwise.
//!
//! Errors of the library come back as values with its own text: `MPI_ERRORS_RETURN` is set first.

mod abi;
mod collective;
mod endpoint;
mod find;
mod functions;
mod library;
pub mod loader;
mod mover;

pub use abi::{Abi, ThreadLevel};
pub use collective::{Collective, CommunicatorNumber, Number, Parts};
pub use endpoint::{Endpoint, EndpointError};
pub use find::{FindError, Found, Surroundings, find, launching_process, mpiexec_of};
pub use library::{Library, LibraryError};
pub use mover::{Failure, IDLE_TAG, Source, Target};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as mpi;
#[cfg(test)]
mod tests;
