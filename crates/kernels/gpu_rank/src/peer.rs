//! Collectives of ranks of one process whose arenas are on one GPU.
//!
//! The members meet on the host: each records an event on its stream, tells the others the event and the address of its
//! tensor, and lets its stream wait for the events of the others. Kernels and copies then read the others' memory in
//! place. A second meeting orders what a member writes next after what the others have read. No kernel ever waits for
//! another rank.
//!
//! Meetings are small messages over the transport of the world, so deadlines, failures and programs that differ are
//! reported as everywhere. Sums are added in rank order or in that of a tree, element by element: the bits of
//! [`comm::HostCommunicator`].

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytemuck::{Pod, Zeroable};
use comm::{
    Channel, ChannelId, CommError, GroupChannels, GroupCommunicator, HostMap, StreamEnds, StreamTransports, Tag,
};
use device::{Call, Communicator, DeviceError, Operation, Reduction, Stream, StreamQueues, SumTree, Tensor};
use gpu::{DevicePointer, EventHandle, Gpu};
use mesh::{Group, Rank, even_split};
use sync::lock;

use crate::event_keeper::EventKeeper;
use crate::peer_kernels::PeerKernels;
use crate::rank_streams::{RankStreams, driver_error};

/// Events of a member in turn. One is recorded again three meetings later, when every other member waits for it
/// already.
const EVENTS: usize = 4;

/// A member at a meeting, or the sender of a message.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Announcement {
    /// The event after which its tensor may be read.
    event: u64,
    /// Where the tensor is.
    address: u64,
    /// Its size.
    bytes: u64,
    /// The number of its operation.
    operation: u64,
}

/// Everything that a group needs of its rank.
pub struct PeerLanes<'a> {
    /// The rank's ends of the transport, by stream.
    pub transports: &'a StreamTransports,
    /// Which messages are the group's.
    pub channels: GroupChannels,
    /// The threads of streams.
    pub queues: Arc<StreamQueues>,
    /// The device.
    pub streams: RankStreams,
    /// The kernels, loaded on its GPU.
    pub kernels: Arc<PeerKernels>,
    /// Creates its events.
    pub events: Arc<EventKeeper>,
}

/// The ranks of a group, all in this process and on this rank's GPU.
pub struct PeerCommunicator {
    group: Group,
    queues: Arc<StreamQueues>,
    ends: StreamEnds<PeerEnd>,
}

/// The calls of one thread of a rank.
struct PeerEnd {
    meetings: GroupCommunicator,
    messages: Channel,
    channels: GroupChannels,
    streams: RankStreams,
    kernels: Arc<PeerKernels>,
    keeper: Arc<EventKeeper>,
    events: Mutex<Events>,
}

#[derive(Default)]
struct Events {
    recorded: Vec<EventHandle>,
    meetings: usize,
}

impl PeerCommunicator {
    /// The communicator of `group`, seen from the rank of `lanes`.
    pub fn new(group: Group, lanes: PeerLanes<'_>) -> PeerCommunicator {
        let PeerLanes { transports, channels, queues, streams, kernels, events: keeper } = lanes;
        let hosts = HostMap::one_host();
        let ends = StreamEnds::open(transports, |_, transport| PeerEnd {
            meetings: GroupCommunicator::new(Arc::clone(transport), group.clone(), &hosts, channels.collectives),
            messages: Channel::new(Arc::clone(transport), group.clone(), channels.sends),
            channels,
            streams: streams.clone(),
            kernels: Arc::clone(&kernels),
            keeper: Arc::clone(&keeper),
            events: Mutex::default(),
        });
        PeerCommunicator { group, queues, ends }
    }
}

impl PeerEnd {
    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        match call {
            Call::AllReduce(x, reduction) => self.all_reduce(stream, x, reduction),
            Call::ReduceScatter(x, tree) => self.reduce_scatter(stream, x, tree),
            Call::AllGather(x) => self.all_gather(stream, x),
            Call::AllToAll { from, to } | Call::ExchangeRows { from, to, .. } => self.all_to_all(stream, from, to),
            Call::Shift { from, to } => self.shift(stream, from, to),
            Call::Send { to, tag, x } => self.send(stream, to, tag, x),
            Call::Receive { from, tag, x } => self.receive(stream, from, tag, x),
        }
    }

    fn gpu(&self) -> &dyn Gpu {
        &**self.streams.device.gpu()
    }

    fn address(&self, x: Tensor) -> DevicePointer {
        self.streams.device.arena().offset(x.offset_bytes)
    }

    fn members(&self) -> usize {
        self.meetings.size()
    }

    fn position(&self) -> usize {
        self.meetings.position()
    }

    /// The next event in turn, and the number of the meeting that it is for.
    fn next_event(&self) -> Result<(EventHandle, usize), DeviceError> {
        let mut events = lock(&self.events);
        let number = events.meetings;
        events.meetings += 1;
        if events.recorded.len() < EVENTS {
            let event = self.keeper.create().map_err(driver_error("create an event"))?;
            events.recorded.push(event);
        }
        Ok((events.recorded[number % EVENTS], number))
    }

    /// Lets `stream` continue when the streams of all members have come to this meeting; the addresses of their
    /// tensors, by position.
    fn meet(&self, stream: Stream, operation: Operation, x: Tensor) -> Result<Vec<DevicePointer>, DeviceError> {
        self.meet_waiting(stream, operation, x, &|_| true)
    }

    /// The same, where `stream` waits for some positions only.
    fn meet_waiting(
        &self,
        stream: Stream,
        operation: Operation,
        x: Tensor,
        is_waited_for: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<DevicePointer>, DeviceError> {
        let handle = self.streams.handle(stream)?;
        let (event, number) = self.next_event()?;
        self.gpu()
            .record(event, handle)
            .map_err(driver_error(format!("record an event before {operation} of {x:?}")))?;
        let mut all = vec![Announcement::zeroed(); self.members()];
        all[self.position()] = announcement(event, self.address(x), x, operation);
        self.meetings.all_gather(&mut all).map_err(failed)?;
        for (position, other) in all.iter().enumerate().filter(|(position, _)| *position != self.position()) {
            self.check(self.channels.collectives, number as u64, position, (operation, x), other)?;
            if !is_waited_for(position) {
                continue;
            }
            let waited = self.gpu().wait(handle, EventHandle(other.event));
            waited.map_err(driver_error(format!("wait for the others in {operation} of {x:?}")))?;
        }
        Ok(all.iter().map(|member| DevicePointer(member.address)).collect())
    }

    /// Whether another member does the same with as many bytes.
    fn check(
        &self,
        channel: ChannelId,
        number: u64,
        position: usize,
        (operation, x): (Operation, Tensor),
        other: &Announcement,
    ) -> Result<(), DeviceError> {
        let peer_operation = Operation::of_number(other.operation).unwrap_or(operation);
        if peer_operation == operation && other.bytes == x.size_bytes() as u64 {
            return Ok(());
        }
        let members = self.meetings.group().members();
        Err(failed(CommError::Mismatch {
            rank: self.meetings.group().rank(),
            peer: members.get(position).copied().unwrap_or(Rank(position)),
            operation,
            peer_operation,
            tag: Tag { channel, number },
            expected_bytes: x.size_bytes(),
            peer_bytes: other.bytes as usize,
        }))
    }

    /// The slices of `x`, by position.
    fn slices(&self, operation: Operation, x: Tensor) -> Result<Vec<Range<usize>>, DeviceError> {
        let (len, members) = (x.len(), self.members());
        let is_equal = len.is_multiple_of(members) || operation == Operation::AllReduce;
        if !x.is_dense() || !is_equal {
            let rank = self.meetings.group().rank();
            return Err(failed(CommError::UnequalSlices { rank, operation, len, members }));
        }
        Ok((0..members).map(|member| even_split(len, members, member)).collect())
    }

    /// Joins this member's slice of all members' `x` into its own.
    fn reduce(
        &self,
        stream: Stream,
        x: Tensor,
        reduction: Reduction,
        (own, members): (Range<usize>, &[DevicePointer]),
    ) -> Result<(), DeviceError> {
        let slice = x.elements(own.clone());
        let skipped_bytes = own.start * x.dtype.size_bytes();
        let places: Vec<DevicePointer> = members.iter().map(|start| start.offset(skipped_bytes)).collect();
        let launch = self.kernels.reduction(slice, reduction, &places, self.address(slice))?;
        if slice.is_empty() {
            return Ok(());
        }
        launch(self.gpu(), self.streams.handle(stream)?).map_err(driver_error(format!("join {slice:?} of all ranks")))
    }

    /// Copies the other members' slices of `x` into this member's.
    fn copy_slices(
        &self,
        stream: Stream,
        x: Tensor,
        (slices, members): (&[Range<usize>], &[DevicePointer]),
    ) -> Result<(), DeviceError> {
        for (position, (slice, start)) in slices.iter().zip(members).enumerate() {
            if position == self.position() || slice.is_empty() {
                continue;
            }
            let to = x.elements(slice.clone());
            let from = start.offset(slice.start * x.dtype.size_bytes());
            let copied = self.gpu().copy(self.streams.handle(stream)?, self.address(to), from, to.size_bytes());
            copied.map_err(driver_error(format!("copy {to:?} from another rank")))?;
        }
        Ok(())
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        let operation = Operation::AllReduce;
        let slices = self.slices(operation, x)?;
        let members = self.meet(stream, operation, x)?;
        self.reduce(stream, x, reduction, (slices[self.position()].clone(), &members))?;
        // Each member's slice is joined, and nobody reads the others' slices of this member any more.
        self.meet(stream, operation, x)?;
        self.copy_slices(stream, x, (&slices, &members))?;
        // Nobody reads this member's slice any more.
        self.meet(stream, operation, x).map(|_| ())
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        let operation = Operation::ReduceScatter;
        let slices = self.slices(operation, x)?;
        let members = self.meet(stream, operation, x)?;
        self.reduce(stream, x, Reduction::Sum(tree), (slices[self.position()].clone(), &members))?;
        self.meet(stream, operation, x).map(|_| ())
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        let operation = Operation::AllGather;
        let slices = self.slices(operation, x)?;
        let members = self.meet(stream, operation, x)?;
        self.copy_slices(stream, x, (&slices, &members))?;
        self.meet(stream, operation, x).map(|_| ())
    }

    /// Copies this member's slice of every member's `from`.
    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        let operation = Operation::AllToAll;
        from.exchanges_with(to)?;
        let slices = self.slices(operation, from)?;
        to.is_dense_of(from.dtype)?;
        let own = &slices[self.position()];
        let skipped_bytes = own.start * from.dtype.size_bytes();
        let members = self.meet(stream, operation, from)?;
        for (slice, start) in slices.iter().zip(&members).filter(|(slice, _)| !slice.is_empty()) {
            let to = to.elements(slice.clone());
            let from = start.offset(skipped_bytes);
            let copied = self.gpu().copy(self.streams.handle(stream)?, self.address(to), from, to.size_bytes());
            copied.map_err(driver_error(format!("copy {to:?} from another rank")))?;
        }
        // Nobody reads this member's slices any more.
        self.meet(stream, operation, from).map(|_| ())
    }

    /// Copies the previous member's `from`.
    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        let operation = Operation::Shift;
        from.exchanges_with(to)?;
        from.is_dense_of(to.dtype)?;
        to.is_dense_of(from.dtype)?;
        let (own, members) = (self.position(), self.members());
        let (previous, next) = ((own + members - 1) % members, (own + 1) % members);
        let places = self.meet_waiting(stream, operation, from, &|other| other == previous)?;
        let handle = self.streams.handle(stream)?;
        let copied = self.gpu().copy(handle, self.address(to), places[previous], to.size_bytes());
        copied.map_err(driver_error(format!("copy {to:?} from another rank")))?;
        // The next member does not read this member's tensor any more.
        self.meet_waiting(stream, operation, from, &|other| other == next).map(|_| ())
    }

    /// Tells the receiver where `x` is, and the event after which it is there. The receiver destroys the event.
    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        let handle = self.streams.handle(stream)?;
        let recorded = self.gpu().create_event().and_then(|event| self.gpu().record(event, handle).map(|()| event));
        let event = recorded.map_err(driver_error(format!("record an event before {x:?} is sent")))?;
        let message = announcement(event, self.address(x), x, Operation::PointToPoint);
        self.messages.post_send(to, tag, &[message]).map_err(failed)
    }

    /// Copies what the sender has lent. It is written again only after an event that is after this copy: the plan
    /// reuses its place after an instruction of the sender that waits, over other ranks, for this receive.
    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        let mut message = [Announcement::zeroed()];
        self.messages.receive(from, tag, &mut message).map_err(failed)?;
        let [message] = message;
        self.check(self.channels.sends, tag, from, (Operation::PointToPoint, x), &message)?;
        let (handle, event) = (self.streams.handle(stream)?, EventHandle(message.event));
        let copied =
            self.gpu().wait(handle, event).and_then(|()| self.gpu().destroy_event(event)).and_then(|()| {
                self.gpu().copy(handle, self.address(x), DevicePointer(message.address), x.size_bytes())
            });
        copied.map_err(driver_error(format!("receive {x:?}")))
    }
}

fn announcement(event: EventHandle, address: DevicePointer, x: Tensor, operation: Operation) -> Announcement {
    let (bytes, operation) = (x.size_bytes() as u64, operation.number().into());
    Announcement { event: event.0, address: address.0, bytes, operation }
}

fn failed(error: CommError) -> DeviceError {
    DeviceError::Communication(Box::new(error))
}

impl Communicator for PeerCommunicator {
    fn size(&self) -> usize {
        self.group.size()
    }

    fn position(&self) -> usize {
        self.group.position()
    }

    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        if self.size() == 1 && call.is_in_place() {
            return Ok(());
        }
        let end = Arc::clone(self.ends.of(stream));
        self.ends.of(stream).streams.on(&self.queues, stream, move || end.call(stream, call))
    }
}
