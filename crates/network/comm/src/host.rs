//! The groups of a rank whose tensors are in host memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use device::{
    Arena, Bf16, Call, DeviceError, Dtype, Element, ExchangedRows, F16, Reduction, Stream, StreamQueues, SumTree,
    Tensor,
};
use mesh::Group;
use sync::lock;

use crate::channel::Channel;
use crate::communicator::GroupCommunicator;
use crate::ends::{StreamEnds, StreamTransports};
use crate::error::CommError;
use crate::host_map::HostMap;
use crate::library::LibraryGroup;
use crate::tag::ChannelId;
use crate::transport::SendHandle;

/// The collectives and sends of one group over tensors of one arena.
///
/// On a stream without a thread of its own a call has happened when it returns; a send has been posted. On the others a
/// call is handed to the stream's thread, which has an end of the transport of its own.
pub struct HostCommunicator {
    group: Group,
    queues: Arc<StreamQueues>,
    ends: StreamEnds<End>,
}

/// The calls of one thread of a rank.
struct End {
    collectives: GroupCommunicator,
    channel: Channel,
    arena: Arc<Arena>,
    /// Sends that their receivers may still be reading, oldest first.
    lent: Mutex<VecDeque<SendHandle>>,
}

/// Which tag spaces a group uses: all members give the same, groups that share two members give different ones.
#[derive(Clone, Copy, Debug)]
pub struct GroupChannels {
    pub collectives: ChannelId,
    /// For sends and receives.
    pub sends: ChannelId,
}

impl HostCommunicator {
    /// The communicator of `group` seen from the rank of `transports`, over tensors of `arena`. All ranks give the same
    /// `hosts`. `library` returns the part of a library that serves the group on the end of the transport of a stream.
    pub fn new(
        transports: &StreamTransports,
        group: Group,
        hosts: &HostMap,
        channels: GroupChannels,
        arena: &Arc<Arena>,
        queues: Arc<StreamQueues>,
        library: &dyn Fn(Stream) -> Option<LibraryGroup>,
    ) -> HostCommunicator {
        let ends = StreamEnds::open(transports, |stream, transport| {
            let own = GroupCommunicator::new(Arc::clone(transport), group.clone(), hosts, channels.collectives);
            let collectives = match library(stream) {
                Some(library) => own.with_library(library),
                None => own,
            };
            End {
                collectives,
                channel: Channel::new(Arc::clone(transport), group.clone(), channels.sends),
                arena: Arc::clone(arena),
                lent: Mutex::default(),
            }
        });
        HostCommunicator { group, queues, ends }
    }
}

impl End {
    fn call(&self, call: Call) -> Result<(), DeviceError> {
        match call {
            Call::AllReduce(x, reduction) => self.all_reduce(x, reduction),
            Call::ReduceScatter(x, tree) => self.reduce_scatter(x, tree),
            Call::AllGather(x) => self.all_gather(x),
            Call::AllToAll { from, to } => self.all_to_all(from, to),
            Call::ExchangeRows { from, to, rows } => self.exchange_rows(from, to, rows),
            Call::Shift { from, to } => self.shift(from, to),
            Call::Send { to, tag, x } => self.send(to, tag, x),
            Call::Receive { from, tag, x } => self.receive(from, tag, x),
        }
    }

    fn sum<E: Element>(&self, x: Tensor) -> Result<(), DeviceError> {
        // SAFETY: a stream runs one operation at a time, others that touch `x` wait for it, and this one has `x` for
        // itself.
        let data = unsafe { self.arena.reals_mut::<E>(x) }?;
        self.collectives.all_reduce_sum(data).map_err(failed)
    }

    fn sum_to_slices<E: Element>(&self, x: Tensor) -> Result<(), DeviceError> {
        // SAFETY: as in `sum`.
        let data = unsafe { self.arena.reals_mut::<E>(x) }?;
        self.collectives.reduce_scatter(data).map_err(failed)
    }

    fn gather<E: Element>(&self, x: Tensor) -> Result<(), DeviceError> {
        // SAFETY: as in `sum`.
        let data = unsafe { self.arena.reals_mut::<E>(x) }?;
        self.collectives.all_gather(data).map_err(failed)
    }

    fn exchange<E: Element>(&self, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        // SAFETY: as in `sum`; nothing writes `from` meanwhile, and `all_to_all` has refused tensors that overlap.
        let (from, to) = unsafe { (self.arena.reals::<E>(from)?, self.arena.reals_mut::<E>(to)?) };
        self.collectives.all_to_all(from, to).map_err(failed)
    }

    fn all_reduce(&self, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        match (x.dtype, reduction) {
            (Dtype::F32, Reduction::Sum(tree)) => {
                // SAFETY: as in `sum`.
                let data = unsafe { self.arena.reals_mut(x) }?;
                self.collectives.all_reduce_in_runs(data, tree).map_err(failed)
            }
            (Dtype::Bf16, Reduction::Sum(SumTree::RANK_ORDER)) => self.sum::<Bf16>(x),
            (Dtype::F16, Reduction::Sum(SumTree::RANK_ORDER)) => self.sum::<F16>(x),
            (Dtype::F32, Reduction::Max) => {
                // SAFETY: as in `sum`.
                let data = unsafe { self.arena.reals_mut(x) }?;
                self.collectives.all_reduce_max(data).map_err(failed)
            }
            (Dtype::I64, Reduction::Sum(tree)) => {
                // SAFETY: as in `sum`.
                let data = unsafe { self.arena.longs_mut(x) }?;
                self.collectives.all_reduce_integers_in_runs(data, tree).map_err(failed)
            }
            (Dtype::Bf16 | Dtype::F16, Reduction::Sum(tree)) => Err(narrow_in_runs("all_reduce", x, tree)),
            (Dtype::I32, _) | (Dtype::I64 | Dtype::Bf16 | Dtype::F16, Reduction::Max) => Err(DeviceError::Shape {
                op: "all_reduce",
                what: format!("{reduction:?} of {x:?}; real numbers and I64 have Sum, F32 has Max"),
            }),
        }
    }

    fn reduce_scatter(&self, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        match (x.dtype, tree) {
            (Dtype::F32, tree) => {
                // SAFETY: as in `sum`.
                let data = unsafe { self.arena.reals_mut(x) }?;
                self.collectives.reduce_scatter_in_runs(data, tree).map_err(failed)
            }
            (Dtype::Bf16, SumTree::RANK_ORDER) => self.sum_to_slices::<Bf16>(x),
            (Dtype::F16, SumTree::RANK_ORDER) => self.sum_to_slices::<F16>(x),
            (Dtype::Bf16 | Dtype::F16, tree) => Err(narrow_in_runs("reduce_scatter", x, tree)),
            (Dtype::I64, tree) => {
                // SAFETY: as in `sum`.
                let data = unsafe { self.arena.longs_mut(x) }?;
                self.collectives.reduce_scatter_integers_in_runs(data, tree).map_err(failed)
            }
            (Dtype::I32, _) => Err(DeviceError::Shape {
                op: "reduce_scatter",
                what: format!("{x:?} holds neither real numbers nor I64"),
            }),
        }
    }

    fn all_gather(&self, x: Tensor) -> Result<(), DeviceError> {
        match x.dtype {
            Dtype::F32 => self.gather::<f32>(x),
            Dtype::Bf16 => self.gather::<Bf16>(x),
            Dtype::F16 => self.gather::<F16>(x),
            Dtype::I32 => {
                // SAFETY: as in `sum`.
                let data = unsafe { self.arena.bytes_mut(x) }?;
                self.collectives.all_gather(data).map_err(failed)
            }
            Dtype::I64 => {
                Err(DeviceError::Shape { op: "all_gather", what: format!("{x:?} holds neither real numbers nor I32") })
            }
        }
    }

    fn all_to_all(&self, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        from.exchanges_with(to)?;
        match from.dtype {
            Dtype::F32 => self.exchange::<f32>(from, to),
            Dtype::Bf16 => self.exchange::<Bf16>(from, to),
            Dtype::F16 => self.exchange::<F16>(from, to),
            Dtype::I32 | Dtype::I64 => {
                Err(DeviceError::Shape { op: "all_to_all", what: format!("{from:?} holds no real numbers") })
            }
        }
    }

    fn exchange_rows(&self, from: Tensor, to: Tensor, rows: ExchangedRows) -> Result<(), DeviceError> {
        from.exchanges_with(to)?;
        let (given, gotten) = (self.bytes_in_use(from, rows.given)?, self.bytes_in_use(to, rows.gotten)?);
        // SAFETY: as in `sum`; nothing writes `from` meanwhile, and the two places do not overlap.
        let (from, to) = unsafe { (self.arena.bytes(from)?, self.arena.bytes_mut(to)?) };
        self.collectives.exchange_parts((from, &given), (to, &gotten)).map_err(failed)
    }

    /// Bytes of the rows in use of each slice of `x`, of which `numbers` has the last in each row.
    fn bytes_in_use(&self, x: Tensor, numbers: Tensor) -> Result<Vec<usize>, DeviceError> {
        // SAFETY: as in `sum`; nothing writes the numbers meanwhile.
        let values = unsafe { self.arena.ints(numbers) }?;
        let room = x.rows / numbers.rows.max(1);
        let bytes = |row: &[i32]| {
            let number = row.last().and_then(|number| usize::try_from(*number).ok());
            number.filter(|number| *number <= room).map(|number| number * x.cols * x.dtype.size_bytes())
        };
        values
            .chunks(numbers.cols.max(1))
            .enumerate()
            .map(|(member, row)| {
                bytes(row).ok_or_else(|| DeviceError::Shape {
                    op: "exchange_rows",
                    what: format!("member {member} has {:?} rows; slices have room for {room}", row.last()),
                })
            })
            .collect()
    }

    fn shift(&self, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        from.exchanges_with(to)?;
        // SAFETY: as in `sum`; nothing writes `from` meanwhile, and the two places do not overlap.
        let (from, to) = unsafe { (self.arena.bytes(from)?, self.arena.bytes_mut(to)?) };
        self.collectives.shift(from, to).map_err(failed)
    }

    fn send(&self, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        let mut lent = lock(&self.lent);
        // Sends that were read long ago are closed here, so that the list stays as short as the pipeline is deep.
        while let Some(&send) = lent.front().filter(|&&send| self.channel.is_complete(send)) {
            lent.pop_front();
            self.channel.wait(send).map_err(failed)?;
        }
        let loan = Arc::new(TensorLoan { arena: Arc::clone(&self.arena), tensor: x });
        lent.push_back(self.channel.post_loan(to, tag, loan).map_err(failed)?);
        Ok(())
    }

    fn receive(&self, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        // SAFETY: as in `sum`.
        let data = unsafe { self.arena.bytes_mut(x) }?;
        self.channel.receive(from, tag, data).map_err(failed)
    }
}

/// Bytes of a tensor that another rank may read until its receive is done.
struct TensorLoan {
    arena: Arc<Arena>,
    tensor: Tensor,
}

impl AsRef<[u8]> for TensorLoan {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the memory plan reuses the place of a sent value only after the receive that matches this send.
        unsafe { self.arena.bytes(self.tensor) }.unwrap_or_default()
    }
}

/// A partial sum takes the place of the elements that it is a sum of, and has no room there if they are narrow.
fn narrow_in_runs(op: &'static str, x: Tensor, tree: SumTree) -> DeviceError {
    DeviceError::Shape {
        op,
        what: format!("the sum of {x:?} in {tree}; sums in runs take F32 or I64, or use rank order"),
    }
}

fn failed(error: CommError) -> DeviceError {
    DeviceError::Communication(Box::new(error))
}

impl device::Communicator for HostCommunicator {
    fn size(&self) -> usize {
        self.group.size()
    }

    fn position(&self) -> usize {
        self.group.position()
    }

    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        let end = self.ends.of(stream);
        match self.queues.of(stream) {
            None => end.call(call),
            Some(queue) => {
                let end = Arc::clone(end);
                queue.submit(Box::new(move || end.call(call)));
                Ok(())
            }
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // The arena may go with this rank: nobody may be reading it then. A failed peer has ended its reading too.
        for send in lock(&self.lent).drain(..) {
            let _ = self.channel.wait(send);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use device::Communicator;
    use mesh::{Axis, AxisSet, AxisSizes, Mesh};

    use super::*;
    use crate::{ThreadTransport, Timeouts, Transport};

    #[test]
    fn sums_of_narrow_values_in_runs_are_refused() {
        let timeouts = Timeouts::new(Duration::from_secs(1));
        let transport: Arc<dyn Transport> = Arc::new(ThreadTransport::world(1, timeouts).swap_remove(0));
        let group = Mesh::new(AxisSizes::ONE).unwrap().group(transport.rank(), Axis::DpInner);
        let channel = |usage| ChannelId::new(AxisSet::of(Axis::DpInner), usage);
        let channels = GroupChannels { collectives: channel(0), sends: channel(1) };
        let on_failure: device::OnFailure = Arc::new(|_: Stream, _: &DeviceError| ());
        let queues = Arc::new(StreamQueues::start(&[], "rank 0", &on_failure).unwrap());
        let (transports, arena) = (Stream::ALL.map(|_| Arc::clone(&transport)), Arc::new(Arena::new(1024).unwrap()));
        let group =
            HostCommunicator::new(&transports, group, &HostMap::one_host(), channels, &arena, queues, &|_| None);
        let tree = SumTree::of_runs(NonZeroUsize::new(2).unwrap());
        for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32, Dtype::I64] {
            let x = Tensor::new(0, 1, 16, dtype);
            let sums = |tree| {
                let all = group.all_reduce(Stream::Compute, x, Reduction::Sum(tree));
                [all, group.reduce_scatter(Stream::Compute, x, tree)].map(|sum| sum.map_err(|error| error.to_string()))
            };
            assert!(sums(SumTree::RANK_ORDER).iter().all(Result::is_ok), "{dtype:?}");
            match dtype {
                Dtype::F32 | Dtype::I64 | Dtype::I32 => assert!(sums(tree).iter().all(Result::is_ok), "{dtype:?}"),
                Dtype::Bf16 | Dtype::F16 => {
                    let said = sums(tree).map(Result::unwrap_err);
                    let remedy = "in runs of 2; sums in runs take F32 or I64, or use rank order";
                    assert!(said.iter().all(|error| error.contains(remedy)), "{said:?}");
                }
            }
        }
    }
}
