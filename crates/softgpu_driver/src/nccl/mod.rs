//! Collectives with the C interface of NCCL, among threads of one process whose memory is on one GPU. The last rank that
//! calls computes for all, in the order of its stream; the streams of the others wait for it. Sums are in rank order, in
//! fp32, and rounded once.

mod calls;
mod collective;
mod group;

pub use calls::Groups;
