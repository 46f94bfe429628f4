//! Messages between ranks, and the collectives built on them.
//!
//! Three layers, each usable without the one above:
//!
//! - [`Transport`] moves bytes between the ranks of one world. [`ThreadTransport`] does so between
//!   threads without copying: a sender lends its memory, a receiver reads it in place. The module `processes` connects
//!   ranks of several processes.
//! - [`collectives`] are written once over any transport. Every sum is taken in rank order,
//!   `((x0 + x1) + x2) + ...`, or in that of a [`device::SumTree`], so its bits depend neither on timing, nor on hosts,
//!   nor on how a buffer was cut.
//! - [`HostCommunicator`] is what layers and the executor see: the collectives of one group over tensors in host memory
//!   (a [`device::Communicator`]); [`GroupCommunicator`] is the same over slices.
//!   [`Channel`] carries the point-to-point messages of pipelines.
//!
//! Every wait parks the thread and has a deadline. A rank that fails calls [`Transport::abort`]
//! (dropping a transport during a panic does it), and every other rank that waits, or comes to wait,
//! learns who failed and why. Faults and counters are wrappers of a transport ([`faults`],
//! [`Counting`]), never switches inside one.
//!
//! ```
//! use comm::{ChannelId, GroupCommunicator, HostMap, ThreadTransport, Timeouts, Transport};
//! use mesh::{Axis, AxisSet, AxisSizes, Mesh};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! let mesh = Mesh::new(AxisSizes::dp_tp_pp(2, 2, 1))?;
//! let timeouts = Timeouts::new(Duration::from_secs(10));
//! let sum = move |transport: ThreadTransport| {
//!     let group = mesh.group(transport.rank(), Axis::Tp);
//!     let mut data = [transport.rank().0 as f32];
//!     let channel = ChannelId::new(AxisSet::of(Axis::Tp), 0);
//!     let communicator = GroupCommunicator::new(Arc::new(transport), group, &HostMap::one_host(), channel);
//!     communicator.all_reduce_sum(&mut data).map(|()| data[0])
//! };
//! let ranks = ThreadTransport::world(mesh.world_size(), timeouts);
//! let threads = ranks.into_iter().map(|rank| std::thread::spawn(move || sum(rank)));
//! let sums: Vec<_> = threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect();
//! assert_eq!(sums, [Ok(1.0), Ok(1.0), Ok(5.0), Ok(5.0)]);
//! # Ok::<(), mesh::MeshError>(())
//! ```

mod channel;
pub mod collectives;
mod communicator;
mod ends;
mod error;
mod host;
mod host_map;
mod library;
mod meta;
#[cfg(target_os = "linux")]
pub mod processes;
mod tag;
// Without processes of Linux nothing reaches ranks of other processes.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
mod threads;
mod transport;
mod wrappers;

pub use channel::Channel;
pub use communicator::GroupCommunicator;
pub use device::Operation;
pub use ends::{StreamEnds, StreamTransports};
pub use error::{AbortCause, CommError};
pub use host::{GroupChannels, HostCommunicator};
pub use host_map::{GroupHosts, HostMap};
pub use library::{Library, LibraryCommunicator, LibraryGroup, LibrarySums};
pub use meta::{CollectiveCall, MetaCommunicator};
pub use mpi::{Collective as LibraryCall, Number as LibraryNumber, Parts as LibraryParts};
pub use tag::{ChannelId, Tag};
pub use threads::{ThreadTransport, WorldFailure};
pub use transport::{Chunks, Loan, Message, SendHandle, Timeouts, Transport};
pub use wrappers::counting::{Counting, Counts};
pub use wrappers::{faults, paced};
