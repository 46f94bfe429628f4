//! A group of ranks, each on a GPU of its own, as layers and the executor see it: its collectives.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};
use comm::{Channel, CommError, GroupChannels, Tag, Transport};
use device::{Call, Communicator as _, DeviceError, Dtype, Operation, Reduction, Stream, SumTree, Tensor};
use gpu::{DevicePointer, StreamHandle};
use mesh::{Group, Rank};
use nvidia::nccl::{CollectiveError, Communicator, Element, Progress};

use super::error::{failed, named};
use super::messages::Messages;
use super::rank::{NcclRank, SCRATCH_BYTES};
use super::watch::CallName;
use crate::peer_kernels::MAX_MEMBERS;
use crate::rank_streams::driver_error;

/// Terms of a sum that are gathered whole on every rank: one call in place of two.
const ONE_SHOT_BYTES: usize = 256 << 10;

/// A call, as the next member compares it with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Announcement {
    /// Its number.
    operation: u64,
    bytes: u64,
}

/// The ranks of a group, of any processes and hosts, each on a GPU of its own.
///
/// A call waits until the previous member has come to the same call, and not for GPUs. All calls of a rank come from
/// one thread, whatever their stream.
pub struct NcclCommunicator {
    rank: Arc<NcclRank>,
    channels: GroupChannels,
    calls: Channel,
    /// Collectives so far.
    number: AtomicU64,
    messages: Messages,
}

/// A call on its way: what [`NcclCommunicator::submit`] gives to those who submit.
struct SubmittedCall<'a> {
    communicator: &'a Communicator,
    stream: StreamHandle,
    name: &'a CallName,
}

impl device::Communicator for NcclCommunicator {
    fn size(&self) -> usize {
        self.calls.group().size()
    }

    fn position(&self) -> usize {
        self.calls.group().position()
    }

    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        self.rank.streams.named(match call {
            Call::AllReduce(x, reduction) => self.reduce_everywhere(stream, x, reduction),
            Call::ReduceScatter(x, tree) => self.reduce_slices(stream, x, tree),
            Call::AllGather(x) => self.gather_slices(stream, x),
            Call::AllToAll { from, to } | Call::ExchangeRows { from, to, .. } => self.exchange_parts(stream, from, to),
            Call::Shift { from, to } => self.pass_on(stream, from, to),
            Call::Send { to, tag, x } => self.send_message(stream, to, tag, x),
            Call::Receive { from, tag, x } => self.receive_message(stream, from, tag, x),
        })
    }
}

impl NcclCommunicator {
    /// The communicator of `group`, which `rank` has met. `transport` is an end of the rank, `channels` say which
    /// messages are the group's.
    pub fn new(
        group: Group,
        (transport, channels): (&Arc<dyn Transport>, GroupChannels),
        rank: Arc<NcclRank>,
    ) -> NcclCommunicator {
        let channel = |channel| Channel::new(Arc::clone(transport), group.clone(), channel);
        let [calls, messages] = [channel(channels.collectives), channel(channels.sends)];
        let messages = Messages::new(messages, channels.sends);
        NcclCommunicator { rank, channels, calls, number: AtomicU64::new(0), messages }
    }

    fn address(&self, x: Tensor) -> DevicePointer {
        self.rank.streams.device.arena().offset(x.offset_bytes)
    }

    /// Compares the call with that of the previous member.
    fn compare(&self, operation: Operation, bytes: usize) -> Result<(), DeviceError> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (members, own) = (self.size(), self.position());
        let (previous, next) = ((own + members - 1) % members, (own + 1) % members);
        let said = Announcement { operation: operation.number().into(), bytes: bytes as u64 };
        self.calls.post_send(next, number, &[said]).map_err(failed)?;
        let mut announced = [Announcement::zeroed()];
        let received = self.calls.receive(previous, number, &mut announced);
        received.map_err(|error| failed(in_operation(error, operation)))?;
        let [announced] = announced;
        if announced == said {
            return Ok(());
        }
        let group = self.calls.group();
        Err(failed(CommError::Mismatch {
            rank: group.rank(),
            peer: group.member(previous).unwrap_or(Rank(previous)),
            operation,
            peer_operation: Operation::of_number(announced.operation).unwrap_or(operation),
            tag: Tag { channel: self.channels.collectives, number },
            expected_bytes: bytes,
            peer_bytes: announced.bytes as usize,
        }))
    }

    /// Submits a collective of all members on `x`.
    fn submit(
        &self,
        stream: Stream,
        operation: Operation,
        x: Tensor,
        submit: impl FnOnce(&SubmittedCall<'_>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.rank.check()?;
        self.compare(operation, x.size_bytes())?;
        if x.is_empty() {
            return Ok(());
        }
        let group = self.calls.group();
        let name = CallName { operation, peers: named(group) };
        let communicator = self.rank.joined(group)?;
        let handle = self.rank.streams.handle(stream)?;
        let watched = driver_error(format!("record an event for {operation} of {x:?}"));
        let begun = self.rank.watch().begin(handle).map_err(watched)?;
        submit(&SubmittedCall { communicator, stream: handle, name: &name })?;
        let watched = driver_error(format!("record an event for {operation} of {x:?}"));
        self.rank.watch().end(handle, begun, name).map_err(watched)
    }

    /// Waits until a call of NCCL is launched.
    fn done(
        &self,
        submitted_call: &SubmittedCall<'_>,
        submitted: Result<Progress, CollectiveError>,
    ) -> Result<(), DeviceError> {
        self.rank.watch().launched(submitted_call.communicator, submitted_call.name, submitted)
    }

    /// Sends the bytes at `from` to each other member, and receives what it sends at `to`.
    fn exchange(
        &self,
        submitted_call: &SubmittedCall<'_>,
        from: impl Fn(usize) -> DevicePointer,
        to: impl Fn(usize) -> DevicePointer,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let (amount, stream) = ((bytes, Element::Bytes), submitted_call.stream);
        let others = (0..self.size()).filter(|member| *member != self.position());
        let moved = submitted_call.communicator.together(|messages| {
            others.into_iter().try_for_each(|member| {
                messages.send(from(member), amount, member, stream)?;
                messages.receive(to(member), amount, member, stream)
            })
        });
        self.done(submitted_call, moved)
    }

    /// Refuses tensors that are not dense, and those without a slice for each member.
    fn check(&self, operation: Operation, x: Tensor) -> Result<(), DeviceError> {
        let (len, members) = (x.len(), self.size());
        if x.is_dense() && (len.is_multiple_of(members) || operation == Operation::AllReduce) {
            return Ok(());
        }
        Err(failed(CommError::UnequalSlices { rank: self.calls.group().rank(), operation, len, members }))
    }

    /// Adds the same elements of all members, whose terms are at `places`, into `out`, which has the elements `x`.
    fn add(
        &self,
        submitted_call: &SubmittedCall<'_>,
        (x, reduction): (Tensor, Reduction),
        places: &[DevicePointer],
        out: DevicePointer,
    ) -> Result<(), DeviceError> {
        let launch = self.rank.kernels.reduction(x, reduction, places, out)?;
        launch(self.rank.gpu(), submitted_call.stream).map_err(driver_error(format!("join {x:?} of all ranks")))
    }

    /// Refuses what the kernels do not add.
    fn check_sum(&self, operation: Operation, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.check(operation, x)?;
        if self.size() > MAX_MEMBERS {
            let what = format!("{} ranks in a group over NCCL; use at most {MAX_MEMBERS}", self.size());
            return Err(DeviceError::Shape { op: "reduce", what });
        }
        let terms = vec![self.address(x); self.size()];
        self.rank.kernels.reduction(x, reduction, &terms, self.address(x)).map(|_| ())
    }

    fn reduce_everywhere(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.check_sum(Operation::AllReduce, x, reduction)?;
        self.submit(stream, Operation::AllReduce, x, |submitted_call| match (x.dtype, reduction) {
            (Dtype::I64, Reduction::Sum(_)) => {
                let place = self.address(x);
                let sum = submitted_call.communicator.all_reduce(
                    (place, place),
                    (x.len(), Element::I64),
                    submitted_call.stream,
                );
                self.done(submitted_call, sum)
            }
            (Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::I32 | Dtype::I64, _) => {
                self.join_everywhere(submitted_call, x, reduction)
            }
        })
    }

    /// Joins `x` on every member: blocks of equal slices by an all-to-all, sums and a gather, the rest by a gather and
    /// the same sums everywhere.
    fn join_everywhere(
        &self,
        submitted_call: &SubmittedCall<'_>,
        x: Tensor,
        reduction: Reduction,
    ) -> Result<(), DeviceError> {
        let (members, width) = (self.size(), x.dtype.size_bytes());
        let whole = x.len() * members * width <= ONE_SHOT_BYTES;
        let most = SCRATCH_BYTES / (members * width);
        let mut start = 0;
        while start < x.len() {
            let left = x.len() - start;
            if whole || left < members {
                self.join_whole(submitted_call, x.elements(start..x.len()), reduction)?;
                break;
            }
            let slice = (left / members).min(most);
            let block = x.elements(start..start + slice * members);
            let (from, scratch) = (self.address(block), self.scratch(submitted_call)?);
            let own = block.elements(slice * self.position()..slice * (self.position() + 1));
            let mut terms = places(scratch, slice * width, members);
            self.exchange(
                submitted_call,
                |member| from.offset(member * slice * width),
                |member| terms[member],
                slice * width,
            )?;
            terms[self.position()] = self.address(own);
            self.add(submitted_call, (own, reduction), &terms, self.address(own))?;
            let pieces = (self.address(own), from);
            let gathered =
                submitted_call.communicator.all_gather(pieces, (slice * width, Element::Bytes), submitted_call.stream);
            self.done(submitted_call, gathered)?;
            start += slice * members;
        }
        Ok(())
    }

    fn join_whole(
        &self,
        submitted_call: &SubmittedCall<'_>,
        x: Tensor,
        reduction: Reduction,
    ) -> Result<(), DeviceError> {
        let (place, scratch, bytes) = (self.address(x), self.scratch(submitted_call)?, x.size_bytes());
        let gathered =
            submitted_call.communicator.all_gather((place, scratch), (bytes, Element::Bytes), submitted_call.stream);
        self.done(submitted_call, gathered)?;
        self.add(submitted_call, (x, reduction), &places(scratch, bytes, self.size()), place)
    }

    fn scratch(&self, submitted_call: &SubmittedCall<'_>) -> Result<DevicePointer, DeviceError> {
        self.rank
            .scratch(submitted_call.stream)
            .map_err(driver_error("allocate memory for the terms of sums over NCCL"))
    }

    fn reduce_slices(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        let (operation, reduction) = (Operation::ReduceScatter, Reduction::Sum(tree));
        self.check_sum(operation, x, reduction)?;
        let slice = x.len() / self.size();
        let own = slice * self.position()..slice * (self.position() + 1);
        self.submit(stream, operation, x, |submitted_call| match x.dtype {
            Dtype::I64 => {
                let pieces = (self.address(x), self.address(x.elements(own.clone())));
                let sum =
                    submitted_call.communicator.reduce_scatter(pieces, (slice, Element::I64), submitted_call.stream);
                self.done(submitted_call, sum)
            }
            Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::I32 => {
                let most = SCRATCH_BYTES / (self.size() * x.dtype.size_bytes());
                let mut parts = (0..slice).step_by(most.max(1)).map(|start| start..(start + most).min(slice));
                parts.try_for_each(|part| self.join_part(submitted_call, (x, reduction), slice, part))
            }
        })
    }

    /// Joins elements `part` of this member's slice, and sends those of the others' slices to them.
    fn join_part(
        &self,
        submitted_call: &SubmittedCall<'_>,
        (x, reduction): (Tensor, Reduction),
        slice: usize,
        part: Range<usize>,
    ) -> Result<(), DeviceError> {
        let scratch = self.scratch(submitted_call)?;
        let of = |member: usize| x.elements(slice * member + part.start..slice * member + part.end);
        let own = of(self.position());
        let (bytes, own_place) = (own.size_bytes(), self.address(own));
        let mut terms = places(scratch, bytes, self.size());
        self.exchange(submitted_call, |member| self.address(of(member)), |member| terms[member], bytes)?;
        terms[self.position()] = own_place;
        self.add(submitted_call, (own, reduction), &terms, own_place)
    }

    fn gather_slices(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.check(Operation::AllGather, x)?;
        let slice = x.len() / self.size();
        let own = x.elements(slice * self.position()..slice * (self.position() + 1));
        self.submit(stream, Operation::AllGather, x, |submitted_call| {
            let (pieces, amount) = ((self.address(own), self.address(x)), (own.size_bytes(), Element::Bytes));
            self.done(submitted_call, submitted_call.communicator.all_gather(pieces, amount, submitted_call.stream))
        })
    }

    fn exchange_parts(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        from.exchanges_with(to)?;
        self.check(Operation::AllToAll, from)?;
        to.is_dense_of(from.dtype)?;
        self.submit(stream, Operation::AllToAll, from, |submitted_call| {
            let bytes = from.size_bytes() / self.size();
            let [at, into] = [from, to].map(|x| move |member: usize| self.address(x).offset(member * bytes));
            self.exchange(submitted_call, at, into, bytes)?;
            let own = self.position();
            let copied = self.rank.gpu().copy(submitted_call.stream, into(own), at(own), bytes);
            copied.map_err(driver_error(format!("copy the part of {from:?} that stays")))
        })
    }

    fn pass_on(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        from.exchanges_with(to)?;
        from.is_dense_of(to.dtype)?;
        to.is_dense_of(from.dtype)?;
        let (own, members) = (self.position(), self.size());
        let (previous, next) = ((own + members - 1) % members, (own + 1) % members);
        self.submit(stream, Operation::Shift, from, |submitted_call| {
            let amount = (from.size_bytes(), Element::Bytes);
            let moved = submitted_call.communicator.together(|messages| {
                messages.send(self.address(from), amount, next, submitted_call.stream)?;
                messages.receive(self.address(to), amount, previous, submitted_call.stream)
            });
            self.done(submitted_call, moved)
        })
    }

    fn send_message(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.rank.check()?;
        let handle = self.rank.streams.handle(stream)?;
        self.messages.send(&self.rank, handle, (to, tag), (self.address(x), x.size_bytes()))
    }

    fn receive_message(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.rank.check()?;
        let handle = self.rank.streams.handle(stream)?;
        self.messages.receive(&self.rank, handle, (from, tag), (self.address(x), x.size_bytes()))
    }
}

/// Places of equal terms, one after the other.
fn places(start: DevicePointer, bytes: usize, members: usize) -> Vec<DevicePointer> {
    (0..members).map(|member| start.offset(member * bytes)).collect()
}

/// A wait for the comparison of a call as a wait for the call.
fn in_operation(error: CommError, operation: Operation) -> CommError {
    match error {
        CommError::Deadline { rank, peer, operation: _, tag, waited_ms, setting } => {
            CommError::Deadline { rank, peer, operation, tag, waited_ms, setting }
        }
        CommError::PeerLeft { rank, peer, operation: _, tag } => CommError::PeerLeft { rank, peer, operation, tag },
        CommError::Aborted { .. }
        | CommError::Mismatch { .. }
        | CommError::UnequalSlices { .. }
        | CommError::Library { .. }
        | CommError::TooManyMembers { .. }
        | CommError::NoSuchPosition { .. } => error,
    }
}
