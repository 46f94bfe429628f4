//! Runs over MPI, started by the mpiexec of each library of `tools/install-mpi.sh`: the bits of threads, or a failure
//! that is named in time and leaves no process.

mod bits;
mod faults;
mod libraries;
mod native;
mod refusals;
mod restarts;
mod together;
