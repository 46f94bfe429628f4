//! Ranks in several processes, on one machine or on many.
//!
//! Each process has some ranks, which are threads of it and read each other's memory in place. [`open`] connects the
//! processes of a [`ProcessMap`] and returns the ends of the ranks of one of them. There is one connection between two
//! processes and one thread per process that waits for all of them, unless a rank of it waits and polls them meanwhile;
//! ranks write to sockets themselves.
//!
//! - **Messages** of at most 16 KiB that are copied go at once, as long as the receiver has room for them. Of all
//!   others only the name goes: the receiver asks for pieces when it wants that message, and the sender sends them from
//!   the memory of the message. So no message blocks another, and a process receives into memory of fixed size
//!   ([`receive_memory_bytes`]).
//! - **Processes of one machine** read messages in the memory of the sender, where Linux permits it: a receiver copies
//!   a piece and folds it while it is in the cache, and nobody is asked. Elsewhere they map each other's memory for
//!   pieces: a sender copies a piece there, and a frame without payload says that it is written. Either is one copy
//!   more than between threads. A fold of the peer's arena in place would save it, but then every buffer of a
//!   collective must be in a shared mapping, which has no huge pages by default. The memory and the sockets have no
//!   names in the file system: a crash leaves no file.
//! - **Over MPI** ([`Listeners::mpi`]) the receiver posts the place of a piece and the sender sends from the memory of
//!   the message; frames go over sockets all the same. One thread makes all calls of the library.
//! - **Every frame** is sealed, its header and its payload, under its number and a key of its direction
//!   ([`session::Sealer`]). A frame that cannot be right, and a connection that closes without a goodbye, is the
//!   failure of the world, with the process, its ranks and its host. So a relay in the middle that changes, drops,
//!   repeats, reorders or reflects frames ends the world by name.
//! - **Bytes without frames** are kept by others. Pieces in the memory of a process of this machine: by the kernel,
//!   which lets only processes of the same user read it, at places that sealed frames name. Pieces in a mapped file: by
//!   the file, which has no name, and is sent to proven processes only ([`gate`]). Pieces over MPI: by the library, as
//!   memory between threads is; they have neither a seal nor a checksum.
//! - **A connection begins** with the proofs of a [`session`], of fixed size. Nothing else is looked at before the
//!   proof is right; wrong and late connections are dropped and counted ([`Refusals`]), and no more than a fixed number
//!   of them waits.

mod arrival;
mod connection;
mod frame;
#[cfg(test)]
mod fuzz;
mod gate;
mod input;
mod mpi_groups;
mod mpi_route;
mod network;
mod open;
mod outbox;
mod peer_memory;
mod pieces;
mod preamble;
mod process_map;
mod role;
mod sockets;
#[cfg(test)]
mod violations;

pub use gate::Refusals;
pub use mpi::Endpoint as MpiEndpoint;
pub use mpi_groups::MpiGroups;
pub use open::{LocalRanks, OpenError, WorldMember, open, open_unless, receive_memory_bytes};
pub use process_map::{Listeners, LocalAddress, Process, ProcessMap, ProcessMapError, WorldToken, this_machine};
