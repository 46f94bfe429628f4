//! Collectives of one group on one lane of the transport.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};
use comm::{Channel, CommError, GroupChannels, Tag};
use device::{Call, DeviceError, Dtype, Operation, Reduction, Stream, SumTree, Tensor};
use gpu::{DevicePointer, StreamHandle};
use mesh::Rank;
use nvidia::nccl::{CollectiveError, Communicator, Element, GroupId, Progress};

use super::error::named;
use super::messages::Messages;
use super::rank::{NcclRank, SCRATCH_BYTES};
use super::watch::CallName;
use crate::peer_kernels::MAX_MEMBERS;
use crate::rank_streams::driver_error;

/// Terms of a sum that are gathered whole on every rank: one call in place of two.
const ONE_SHOT_BYTES: usize = 256 << 10;

/// Messages of a meeting, among those of calls, which are counted from 0.
const MEETING: u64 = 1 << 63;

/// A call, as the next member compares it with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Announcement {
    /// Its number.
    operation: u64,
    bytes: u64,
}

/// See the top of the file.
pub(super) struct NcclEnd {
    pub(super) rank: Arc<NcclRank>,
    lane: usize,
    channels: GroupChannels,
    calls: Channel,
    /// Collectives so far.
    number: AtomicU64,
    messages: Messages,
}

/// A call on its way: what [`NcclEnd::submit`] gives to those who submit.
struct SubmittedCall<'a> {
    communicator: &'a Communicator,
    stream: StreamHandle,
    name: &'a CallName,
}

impl NcclEnd {
    pub(super) fn new(
        rank: Arc<NcclRank>,
        (lane, channels): (usize, GroupChannels),
        calls: Channel,
        messages: Channel,
    ) -> NcclEnd {
        let messages = Messages::new(messages, channels.sends);
        NcclEnd { rank, lane, channels, calls, number: AtomicU64::new(0), messages }
    }

    pub(super) fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
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

    fn members(&self) -> usize {
        self.calls.group().size()
    }

    fn position(&self) -> usize {
        self.calls.group().position()
    }

    fn address(&self, x: Tensor) -> DevicePointer {
        self.rank.streams.device.arena().offset(x.offset_bytes)
    }

    /// Meets the other members by a name that the first one makes and sends over the transport of the host.
    fn meet(&self, name: &CallName) -> Result<Arc<Communicator>, DeviceError> {
        let mut id = [0u8; 128];
        if self.position() == 0 {
            let made = self.rank.new_id().map_err(|cause| self.rank.watch.failed(name, cause))?;
            id = made.bytes();
            (1..self.members()).try_for_each(|member| self.calls.post_send(member, MEETING, &id)).map_err(failed)?;
        } else {
            self.calls.receive(0, MEETING, &mut id).map_err(failed)?;
        }
        self.rank.meet(GroupId::of_bytes(id), (self.members(), self.position()), name)
    }

    /// Compares the call with that of the previous member.
    fn compare(&self, operation: Operation, bytes: usize) -> Result<(), DeviceError> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (members, own) = (self.members(), self.position());
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
        let place = (self.lane, group.members().to_vec());
        let communicator = self.rank.communicator(place, || self.meet(&name))?;
        let handle = self.rank.streams.handle(stream)?;
        let watched = driver_error(format!("record an event for {operation} of {x:?}"));
        let begun = self.rank.watch.begin(handle).map_err(watched)?;
        submit(&SubmittedCall { communicator: &communicator, stream: handle, name: &name })?;
        let watched = driver_error(format!("record an event for {operation} of {x:?}"));
        self.rank.watch.end(handle, begun, name).map_err(watched)
    }

    /// Waits until a call of NCCL is submitted.
    fn done(
        &self,
        submitted_call: &SubmittedCall<'_>,
        submitted: Result<Progress, CollectiveError>,
    ) -> Result<(), DeviceError> {
        match submitted {
            Ok(Progress::Done) => Ok(()),
            Ok(Progress::Continues) => self.rank.watch.settle(submitted_call.communicator, submitted_call.name),
            Err(cause) => Err(self.rank.watch.failed(submitted_call.name, cause)),
        }
    }

    /// Refuses tensors that are not dense, and those without a slice for each member.
    fn check(&self, operation: Operation, x: Tensor) -> Result<(), DeviceError> {
        let (len, members) = (x.len(), self.members());
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
        if self.members() > MAX_MEMBERS {
            let what = format!("{} ranks in a group over NCCL; use at most {MAX_MEMBERS}", self.members());
            return Err(DeviceError::Shape { op: "reduce", what });
        }
        let terms = vec![self.address(x); self.members()];
        self.rank.kernels.reduction(x, reduction, &terms, self.address(x)).map(|_| ())
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
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
        let (members, width) = (self.members(), x.dtype.size_bytes());
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
            let moved = submitted_call.communicator.all_to_all(
                (from, scratch),
                (slice * width, Element::Bytes),
                submitted_call.stream,
            );
            self.done(submitted_call, moved)?;
            let own = block.elements(slice * self.position()..slice * (self.position() + 1));
            self.add(submitted_call, (own, reduction), &places(scratch, slice * width, members), self.address(own))?;
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
        self.add(submitted_call, (x, reduction), &places(scratch, bytes, self.members()), place)
    }

    fn scratch(&self, submitted_call: &SubmittedCall<'_>) -> Result<DevicePointer, DeviceError> {
        self.rank
            .scratch(submitted_call.stream)
            .map_err(driver_error("allocate memory for the terms of sums over NCCL"))
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        let (operation, reduction) = (Operation::ReduceScatter, Reduction::Sum(tree));
        self.check_sum(operation, x, reduction)?;
        let slice = x.len() / self.members();
        let own = slice * self.position()..slice * (self.position() + 1);
        self.submit(stream, operation, x, |submitted_call| match x.dtype {
            Dtype::I64 => {
                let pieces = (self.address(x), self.address(x.elements(own.clone())));
                let sum =
                    submitted_call.communicator.reduce_scatter(pieces, (slice, Element::I64), submitted_call.stream);
                self.done(submitted_call, sum)
            }
            Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::I32 => {
                let most = SCRATCH_BYTES / (self.members() * x.dtype.size_bytes());
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
        let mut terms = places(scratch, bytes, self.members());
        if part.len() == slice {
            let moved = submitted_call.communicator.all_to_all(
                (self.address(x), scratch),
                (bytes, Element::Bytes),
                submitted_call.stream,
            );
            self.done(submitted_call, moved)?;
        } else {
            terms[self.position()] = own_place;
            let mut others = (0..self.members()).filter(|member| *member != self.position());
            let moved = self.rank.together(|| {
                others.try_for_each(|member| {
                    let (amount, from) = ((bytes, Element::Bytes), self.address(of(member)));
                    submitted_call.communicator.send(from, amount, member, submitted_call.stream)?;
                    submitted_call
                        .communicator
                        .receive(terms[member], amount, member, submitted_call.stream)
                        .map(|_| ())
                })
            });
            self.done(submitted_call, moved)?;
        }
        self.add(submitted_call, (own, reduction), &terms, own_place)
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.check(Operation::AllGather, x)?;
        let slice = x.len() / self.members();
        let own = x.elements(slice * self.position()..slice * (self.position() + 1));
        self.submit(stream, Operation::AllGather, x, |submitted_call| {
            let (pieces, amount) = ((self.address(own), self.address(x)), (own.size_bytes(), Element::Bytes));
            self.done(submitted_call, submitted_call.communicator.all_gather(pieces, amount, submitted_call.stream))
        })
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        from.exchanges_with(to)?;
        self.check(Operation::AllToAll, from)?;
        to.is_dense_of(from.dtype)?;
        self.submit(stream, Operation::AllToAll, from, |submitted_call| {
            let amount = (from.size_bytes() / self.members(), Element::Bytes);
            self.done(
                submitted_call,
                submitted_call.communicator.all_to_all(
                    (self.address(from), self.address(to)),
                    amount,
                    submitted_call.stream,
                ),
            )
        })
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        from.exchanges_with(to)?;
        from.is_dense_of(to.dtype)?;
        to.is_dense_of(from.dtype)?;
        let (own, members) = (self.position(), self.members());
        let (previous, next) = ((own + members - 1) % members, (own + 1) % members);
        self.submit(stream, Operation::Shift, from, |submitted_call| {
            let amount = (from.size_bytes(), Element::Bytes);
            let moved = self.rank.together(|| {
                submitted_call.communicator.send(self.address(from), amount, next, submitted_call.stream)?;
                submitted_call
                    .communicator
                    .receive(self.address(to), amount, previous, submitted_call.stream)
                    .map(|_| ())
            });
            self.done(submitted_call, moved)
        })
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.rank.check()?;
        let handle = self.rank.streams.handle(stream)?;
        self.messages.send(&self.rank, handle, (to, tag), (self.address(x), x.size_bytes()))
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
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

pub(super) fn failed(error: CommError) -> DeviceError {
    DeviceError::Communication(Box::new(error))
}
