//! Runs over MPI, started by the mpiexec of each library that is installed: the bits of threads, or a failure that is
//! named in time and leaves no process.
//!
//! `tools/install-mpi.sh` installs the libraries. Tests print the names of those that are missing; where `PLEACH_MPI`
//! is set, as by `.ci/run`, they fail instead.

mod bits;
mod faults;
mod libraries;
mod native;
mod refusals;
mod restarts;
mod together;
