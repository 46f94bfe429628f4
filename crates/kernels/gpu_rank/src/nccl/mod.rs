//! Collectives between GPUs by NCCL, one rank to a GPU.
//!
//! NCCL moves bytes, and sums integers. Real numbers are added by the kernels of `collectives.cu`, in rank order or in
//! that of a tree, once an all-to-all has brought all terms to one GPU: NCCL's own sums have an order that depends on
//! its algorithm, the size and the topology.
//!
//! - [`NcclRank`]: the parts that all groups of a rank share.
//! - [`NcclCommunicator`]: a group.
//! - `watch`: a thread that supervises work under way and submits messages.
//!
//! Members compare each call with the previous member's, on the host, before NCCL has it. No call of NCCL waits for
//! another rank; the thread of [`watch`] waits, under the deadline, and cancels all communicators of the rank where one
//! fails.

mod communicator;
mod end;
mod error;
mod messages;
mod rank;
mod watch;

pub use communicator::{NcclCommunicator, NcclLanes};
pub use error::NcclError;
pub use rank::{NCCL_RANK_BYTES, NcclRank};
