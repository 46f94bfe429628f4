//! Messages between two members, over a communicator of the two for each direction.
//!
//! A send must not wait for its receiver, and NCCL has no tags. The sender announces each message on the host, in
//! order, and launches it at once on a stream of its own; the receiver takes them in the same order. One whose turn is
//! not yet is kept in memory of the GPU.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use bytemuck::{Pod, Zeroable};
use comm::{Channel, ChannelId, CommError, Operation, Tag};
use device::DeviceError;
use gpu::{DevicePointer, StreamHandle};
use mesh::Rank;
use nvidia::nccl::{Communicator, Element};
use sync::lock;

use super::error::failed;
use super::rank::NcclRank;
use super::watch::CallName;
use crate::rank_streams::driver_error;

/// Says that a message follows.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Notice {
    tag: u64,
    bytes: u64,
}

/// Messages to a member.
struct Outgoing {
    outbox: StreamHandle,
    sent: u64,
}

/// Messages of a member.
#[derive(Default)]
struct Incoming {
    received: u64,
    /// Messages before their turn, by tag: their places and bytes.
    early: HashMap<u64, VecDeque<(DevicePointer, usize)>>,
    /// Memory of earlier ones, with its size.
    free: Vec<(DevicePointer, usize)>,
}

/// See the top of the file.
pub(super) struct Messages {
    notices: Channel,
    channel: ChannelId,
    outgoing: Mutex<HashMap<usize, Outgoing>>,
    incoming: Mutex<HashMap<usize, Incoming>>,
}

impl Messages {
    pub(super) fn new(notices: Channel, channel: ChannelId) -> Messages {
        Messages { notices, channel, outgoing: Mutex::default(), incoming: Mutex::default() }
    }

    fn peer(&self, position: usize) -> Rank {
        self.notices.group().member(position).unwrap_or(Rank(position))
    }

    fn name(&self, peer: usize) -> CallName {
        let own = self.notices.group().rank();
        let peers = format!("ranks {} and {}", own.0, self.peer(peer).0);
        CallName { operation: Operation::PointToPoint, peers }
    }

    /// Sends memory to a member once `stream` has come to this point.
    pub(super) fn send(
        &self,
        rank: &NcclRank,
        stream: StreamHandle,
        (to, tag): (usize, u64),
        (place, bytes): (DevicePointer, usize),
    ) -> Result<(), DeviceError> {
        let (own, name) = (self.notices.group().rank(), self.name(to));
        let communicator = rank.messages(own, (own, self.peer(to)))?;
        let what = |error| driver_error(format!("order a message of {bytes} bytes to {}", self.peer(to)))(error);
        let mut all = lock(&self.outgoing);
        let outgoing = match all.entry(to) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(Outgoing { outbox: rank.watch().outbox().map_err(what)?, sent: 0 })
            }
        };
        let notice = Notice { tag, bytes: bytes as u64 };
        self.notices.post_send(to, outgoing.sent, &[notice]).map_err(failed)?;
        outgoing.sent += 1;
        let (watch, outbox) = (rank.watch(), outgoing.outbox);
        watch.order(outbox, stream).map_err(what)?;
        let sent = communicator.together(|messages| messages.send(place, (bytes, Element::Bytes), 1, outbox));
        watch.launched(communicator, &name, sent)
    }

    /// Fills memory with the message of a member under a tag, as work of `stream`.
    pub(super) fn receive(
        &self,
        rank: &NcclRank,
        stream: StreamHandle,
        (from, tag): (usize, u64),
        (place, bytes): (DevicePointer, usize),
    ) -> Result<(), DeviceError> {
        let own = self.notices.group().rank();
        let communicator = rank.messages(own, (self.peer(from), own))?;
        let mut all = lock(&self.incoming);
        let incoming = all.entry(from).or_default();
        if let Some((early, sent)) = incoming.early.get_mut(&tag).and_then(VecDeque::pop_front) {
            self.check((from, tag), bytes, sent)?;
            let copied = rank.gpu().copy(stream, place, early, bytes);
            incoming.free.push((early, sent));
            return copied.map_err(driver_error(format!("copy {bytes} bytes of {}", self.peer(from))));
        }
        loop {
            let mut notice = [Notice::zeroed()];
            self.notices.receive(from, incoming.received, &mut notice).map_err(failed)?;
            incoming.received += 1;
            let [Notice { tag: sent_tag, bytes: sent }] = notice;
            let (sent, name) = (sent as usize, self.name(from));
            if sent_tag == tag {
                self.check((from, tag), bytes, sent)?;
                return take(rank, communicator, stream, (place, bytes), name);
            }
            let early = early_place(rank, incoming, sent)?;
            take(rank, communicator, stream, (early, sent), name)?;
            incoming.early.entry(sent_tag).or_default().push_back((early, sent));
        }
    }

    fn check(&self, (from, number): (usize, u64), bytes: usize, sent: usize) -> Result<(), DeviceError> {
        if bytes == sent {
            return Ok(());
        }
        Err(failed(CommError::Mismatch {
            rank: self.notices.group().rank(),
            peer: self.peer(from),
            operation: Operation::PointToPoint,
            peer_operation: Operation::PointToPoint,
            tag: Tag { channel: self.channel, number },
            expected_bytes: bytes,
            peer_bytes: sent,
        }))
    }
}

/// Memory for a message before its turn. Its earlier use is work of the same stream.
fn early_place(rank: &NcclRank, incoming: &mut Incoming, bytes: usize) -> Result<DevicePointer, DeviceError> {
    match incoming.free.iter().position(|(_, free)| *free == bytes) {
        Some(index) => Ok(incoming.free.swap_remove(index).0),
        None => rank.early_memory(bytes).map_err(driver_error(format!("allocate {bytes} bytes for a message"))),
    }
}

/// Receives the next message of a communicator's sender.
fn take(
    rank: &NcclRank,
    communicator: &Communicator,
    stream: StreamHandle,
    (place, bytes): (DevicePointer, usize),
    name: CallName,
) -> Result<(), DeviceError> {
    let watched = |error| driver_error(format!("record an event for a message of {bytes} bytes"))(error);
    let begun = rank.watch().begin(stream).map_err(watched)?;
    let received = communicator.together(|messages| messages.receive(place, (bytes, Element::Bytes), 0, stream));
    rank.watch().launched(communicator, &name, received)?;
    rank.watch().end(stream, begun, name).map_err(watched)
}
