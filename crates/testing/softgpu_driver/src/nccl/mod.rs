//! Collectives with the C interface of NCCL, among threads and processes of one machine, each rank with the memory of
//! the GPU of its copy of the library. Ranks meet at a hub, a thread of the process that has made the name of the
//! group. It computes for all, when the streams of all ranks have come to a call. Sums are in rank order, in fp32, and
//! rounded once.

mod calls;
mod collective;
mod hub;
mod launches;
mod member;
mod wire;
