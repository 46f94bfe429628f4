//! Collectives between GPUs by NCCL, one rank to a GPU.
//!
//! NCCL moves bytes, and sums integers. Real numbers are added by the kernels of `collectives.cu`, in rank order or in
//! that of a tree, once an all-to-all has brought all terms to one GPU: NCCL's own sums have an order that depends on
//! its algorithm, the size and the topology.
//!
//! - [`NcclGroups`]: how ranks meet, before the memory of a rank is allocated.
//! - [`NcclRank`]: the parts that all groups of a rank share.
//! - [`NcclCommunicator`]: a group.
//! - `watch`: a thread that supervises work under way.
//!
//! Members compare each call with the previous member's, on the host, before NCCL has it. No call of NCCL waits for
//! another rank; the thread of [`watch`] waits, under the deadline, and cancels all communicators of the rank together
//! where one fails. It launches nothing: all calls of a GPU come from the thread of its rank.

mod communicator;
mod error;
mod meeting;
mod messages;
mod rank;
mod watch;

pub use communicator::NcclCommunicator;
pub use error::NcclError;
pub use meeting::{NcclGroup, NcclGroups, Neighbours};
pub use rank::{NCCL_RANK_BYTES, NcclRank};
