//! Tests of the public interface of `mpi`.

mod communicators;
