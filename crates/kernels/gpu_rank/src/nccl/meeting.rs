//! How the ranks of all groups meet, before the memory of a rank is allocated.
//!
//! NCCL takes memory of the GPU when a communicator meets and when it connects at its first call. Here both happen, so
//! that the arena comes after, and a GPU that is too small is found before the first step. Every rank opens its
//! communicators in one order, that of groups and then of senders and receivers, and no rank begins one before the last
//! one has met: a rank never waits for another one that waits for it elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use comm::{Channel, ChannelId, GroupChannels, Operation, Timeouts, Transport};
use device::DeviceError;
use gpu::{DevicePointer, Gpu, StreamHandle};
use mesh::{Group, Rank};
use nvidia::nccl::{CollectiveError, Communicator, Element, GroupId, Library, Progress};

use super::error::{failed, named};
use super::watch::{CallName, Watch};
use crate::rank_streams::driver_error;

/// Messages of a meeting, among those of calls, which are counted from 0.
const MEETING: u64 = 1 << 63;

/// Bytes of each member in the first calls of a communicator.
const FIRST_BYTES: usize = 8;

/// Whether members of a group send messages to their neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// Collectives alone.
    None,
    /// Messages, too: to the next and the previous member, counted round.
    Send,
}

/// A group of ranks with a GPU each.
#[derive(Clone, Debug)]
pub struct NcclGroup {
    pub group: Group,
    /// Which messages of the host's transport are the group's.
    pub channels: GroupChannels,
    pub neighbours: Neighbours,
}

/// A direction between two ranks.
pub(super) type Direction = (Rank, Rank);

/// The groups of a rank, which have met.
pub struct NcclGroups {
    /// Ends its communicators before the streams that they use.
    pub(super) watch: Watch,
    /// By members: groups of the same ranks share a communicator, since all of them make the same calls in the same
    /// order.
    pub(super) joined: BTreeMap<Vec<Rank>, Arc<Communicator>>,
    /// Communicators of two ranks, from the first to the second.
    pub(super) messages: BTreeMap<Direction, Arc<Communicator>>,
}

/// The means by which a rank meets others.
struct Meeting<'a> {
    library: &'a Arc<Library>,
    gpu: &'a Arc<dyn Gpu>,
    transport: &'a Arc<dyn Transport>,
    watch: &'a Watch,
    stream: StreamHandle,
    /// Of the first calls.
    memory: DevicePointer,
}

impl NcclGroups {
    /// Meets the other members of all groups, in their order, which is the same on all ranks, and makes the first call
    /// of each kind. `transport` is an end of the rank, which carries names, learns of failures and reports them.
    ///
    /// # Errors
    /// A rank that does not come before the deadline; a GPU that NCCL cannot use or that has no memory for it; a thread
    /// that the system does not start.
    pub fn meet(
        library: &Arc<Library>,
        gpu: &Arc<dyn Gpu>,
        (transport, timeouts): (Arc<dyn Transport>, Timeouts),
        groups: &[NcclGroup],
    ) -> Result<NcclGroups, DeviceError> {
        let watch = Watch::start(Arc::clone(library), Arc::clone(gpu), Arc::clone(&transport), timeouts)?;
        let most = groups.iter().map(|known| known.group.size()).max().unwrap_or(1);
        let memory = gpu.allocate(2 * most * FIRST_BYTES).map_err(driver_error("allocate memory to meet"))?;
        let stream = gpu.create_stream().map_err(driver_error("create a stream to meet"))?;
        let zeros = gpu.fill(stream, memory, 0, 2 * most * FIRST_BYTES);
        zeros.map_err(driver_error("fill the memory of the first calls over NCCL"))?;
        let mut own = NcclGroups { watch, joined: BTreeMap::new(), messages: BTreeMap::new() };
        let met =
            own.meet_all(&Meeting { library, gpu, transport: &transport, watch: &own.watch, stream, memory }, groups);
        let ended = gpu.synchronize(stream).and(gpu.destroy_stream(stream)).and(gpu.free(memory));
        (own.joined, own.messages) = met?;
        ended.map_err(driver_error("end the first calls over NCCL"))?;
        own.watch.check()?;
        Ok(own)
    }

    #[allow(clippy::type_complexity, reason = "both are fields")]
    fn meet_all(
        &self,
        meeting: &Meeting<'_>,
        groups: &[NcclGroup],
    ) -> Result<(BTreeMap<Vec<Rank>, Arc<Communicator>>, BTreeMap<Direction, Arc<Communicator>>), DeviceError> {
        let (mut joined, mut messages) = (BTreeMap::new(), BTreeMap::new());
        for NcclGroup { group, channels, neighbours } in groups.iter().filter(|known| known.group.size() > 1) {
            if let std::collections::btree_map::Entry::Vacant(place) = joined.entry(group.members().to_vec()) {
                place.insert(meeting.join(group, *channels)?);
            }
            let directions = match neighbours {
                Neighbours::None => vec![],
                Neighbours::Send => directions(group),
            };
            for (from, to) in directions {
                let position = |rank: Rank| group.members().iter().position(|other| *other == rank).unwrap_or(0);
                let met = meeting.pair(group, *channels, (position(from), position(to)))?;
                messages.insert((from, to), met);
            }
        }
        Ok((joined, messages))
    }
}

/// The directions in which the rank of `group` sends to its neighbours and receives from them, in the order of all
/// ranks.
fn directions(group: &Group) -> Vec<Direction> {
    let (members, own) = (group.members(), group.position());
    let size = members.len();
    let neighbours = [(own + 1) % size, (own + size - 1) % size].map(|position| members[position]);
    let mut all: Vec<Direction> =
        neighbours.into_iter().flat_map(|other| [(members[own], other), (other, members[own])]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl Meeting<'_> {
    fn channel(&self, group: &Group, channel: ChannelId) -> Channel {
        Channel::new(Arc::clone(self.transport), group.clone(), channel)
    }

    /// A name that this rank makes for all members in `receivers`, or that `maker` sends.
    fn id(
        &self,
        channel: &Channel,
        (maker, receivers): (usize, impl Iterator<Item = usize>),
        name: &CallName,
    ) -> Result<GroupId, DeviceError> {
        let mut id = [0u8; 128];
        if channel.group().position() == maker {
            let made = self.library.group_id().map_err(|cause| self.watch.failed(name, cause))?;
            id = made.bytes();
            for receiver in receivers {
                channel.post_send(receiver, MEETING, &id).map_err(failed)?;
            }
        } else {
            channel.receive(maker, MEETING, &mut id).map_err(failed)?;
        }
        Ok(GroupId::of_bytes(id))
    }

    /// Meets the other ranks that have `id`.
    fn meet(
        &self,
        id: GroupId,
        (ranks, rank): (usize, usize),
        name: &CallName,
    ) -> Result<Arc<Communicator>, DeviceError> {
        let begun = Communicator::begin(Arc::clone(self.library), &**self.gpu, id, ranks, rank);
        let communicator = Arc::new(begun.map_err(|cause| self.watch.failed(name, cause))?);
        self.watch.keep(&communicator);
        self.watch.settle(&communicator, name)?;
        Ok(communicator)
    }

    /// All members of a group, which have made each of its calls once.
    fn join(&self, group: &Group, channels: GroupChannels) -> Result<Arc<Communicator>, DeviceError> {
        let (size, own) = (group.size(), group.position());
        let name = CallName { operation: Operation::Barrier, peers: named(group) };
        let id = self.id(&self.channel(group, channels.collectives), (0, 1..size), &name)?;
        let met = self.meet(id, (size, own), &name)?;
        let (bytes, integer) = ((FIRST_BYTES, Element::Bytes), (1, Element::I64));
        let at = |index: usize| self.memory.offset(index * FIRST_BYTES);
        let calls: [&dyn Fn() -> _; 4] = [
            &|| {
                met.together(|messages| {
                    (0..size).filter(|other| *other != own).try_for_each(|other| {
                        messages.send(at(other), bytes, other, self.stream)?;
                        messages.receive(at(size + other), bytes, other, self.stream)
                    })
                })
            },
            &|| met.all_gather((at(own), at(0)), bytes, self.stream),
            &|| met.all_reduce((at(0), at(0)), integer, self.stream),
            &|| met.reduce_scatter((at(0), at(own)), integer, self.stream),
        ];
        self.first(&met, name, &calls)?;
        Ok(met)
    }

    /// The communicator from one member to another one, of which this rank is one.
    fn pair(
        &self,
        group: &Group,
        channels: GroupChannels,
        (from, to): (usize, usize),
    ) -> Result<Arc<Communicator>, DeviceError> {
        let peer = |position| group.member(position).unwrap_or(Rank(position)).0;
        let peers = format!("ranks {} and {}", peer(from), peer(to));
        let name = CallName { operation: Operation::PointToPoint, peers };
        let id = self.id(&self.channel(group, channels.sends), (from, std::iter::once(to)), &name)?;
        let is_sender = group.position() == from;
        let met = self.meet(id, (2, usize::from(!is_sender)), &name)?;
        let amount = (FIRST_BYTES, Element::Bytes);
        let message = || {
            met.together(|messages| match is_sender {
                true => messages.send(self.memory, amount, 1, self.stream),
                false => messages.receive(self.memory, amount, 0, self.stream),
            })
        };
        self.first(&met, name, &[&message])?;
        Ok(met)
    }

    /// Makes the first calls of a communicator, for which NCCL connects its members and takes memory.
    fn first(
        &self,
        met: &Communicator,
        name: CallName,
        calls: &[&dyn Fn() -> Result<Progress, CollectiveError>],
    ) -> Result<(), DeviceError> {
        let watched = || driver_error("record an event for the first calls over NCCL");
        let begun = self.watch.begin(self.stream).map_err(watched())?;
        for call in calls {
            self.watch.launched(met, &name, call())?;
        }
        self.watch.end(self.stream, begun, name).map_err(watched())
    }
}
