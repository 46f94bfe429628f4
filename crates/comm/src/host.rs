//! The groups of a rank whose tensors lie in host memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use device::{Arena, Bf16, DeviceError, Dtype, Element, F16, Reduction, Stream, Tensor};
use mesh::Group;

use crate::channel::Channel;
use crate::communicator::GroupCommunicator;
use crate::error::CommError;
use crate::tag::ChannelId;
use crate::transport::{SendHandle, Transport};

/// The collectives and sends of one group over tensors of one arena.
///
/// Streams are all the rank's own thread, so each call has happened when it returns; a send has been posted.
pub struct HostCommunicator {
    collectives: GroupCommunicator,
    channel: Channel,
    arena: Arc<Arena>,
    /// Sends that their receivers may still be reading, oldest first.
    lent: RefCell<VecDeque<SendHandle>>,
}

/// Which tag spaces a group uses: all members give the same, groups that share two members give different ones.
#[derive(Clone, Copy, Debug)]
pub struct GroupChannels {
    /// For collectives.
    pub collectives: ChannelId,
    /// For sends and receives.
    pub sends: ChannelId,
}

impl HostCommunicator {
    /// The communicator of `group` seen from the rank of `transport`, over tensors of `arena`.
    pub fn new(transport: Arc<dyn Transport>, group: Group, channels: GroupChannels, arena: Arc<Arena>) -> Self {
        HostCommunicator {
            collectives: GroupCommunicator::new(Arc::clone(&transport), group.clone(), channels.collectives),
            channel: Channel::new(transport, group, channels.sends),
            arena,
            lent: RefCell::new(VecDeque::new()),
        }
    }
}

impl HostCommunicator {
    fn sum<E: Element>(&self, x: Tensor) -> Result<(), DeviceError> {
        // SAFETY: the rank's own thread runs one operation at a time, and this one has `x` for itself.
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
}

/// Bytes of a tensor that another rank may read until its receive is done.
struct Lent {
    arena: Arc<Arena>,
    tensor: Tensor,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the memory plan reuses the place of a sent value only after the receive that matches this send.
        unsafe { self.arena.bytes(self.tensor) }.unwrap_or_default()
    }
}

fn failed(error: CommError) -> DeviceError {
    DeviceError::Communication(Box::new(error))
}

impl device::Communicator for HostCommunicator {
    fn size(&self) -> usize {
        self.collectives.size()
    }

    fn position(&self) -> usize {
        self.collectives.position()
    }

    fn all_reduce(&self, _stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        match (x.dtype, reduction) {
            (Dtype::F32, Reduction::Sum) => self.sum::<f32>(x),
            (Dtype::Bf16, Reduction::Sum) => self.sum::<Bf16>(x),
            (Dtype::F16, Reduction::Sum) => self.sum::<F16>(x),
            (Dtype::F32, Reduction::Max) => {
                // SAFETY: the rank's own thread runs one operation at a time, and this one has `x` for itself.
                let data = unsafe { self.arena.reals_mut(x) }?;
                self.collectives.all_reduce_max(data).map_err(failed)
            }
            (Dtype::I64, Reduction::Sum) => {
                // SAFETY: as above.
                let data = unsafe { self.arena.longs_mut(x) }?;
                self.collectives.all_reduce_integers(data).map_err(failed)
            }
            (Dtype::I32, _) | (Dtype::I64 | Dtype::Bf16 | Dtype::F16, Reduction::Max) => Err(DeviceError::Shape {
                op: "all_reduce",
                what: format!("{reduction:?} of {x:?}; real numbers and I64 have Sum, F32 has Max"),
            }),
        }
    }

    fn reduce_scatter(&self, _stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        match x.dtype {
            Dtype::F32 => self.sum_to_slices::<f32>(x),
            Dtype::Bf16 => self.sum_to_slices::<Bf16>(x),
            Dtype::F16 => self.sum_to_slices::<F16>(x),
            Dtype::I64 => {
                // SAFETY: as in `sum`.
                let data = unsafe { self.arena.longs_mut(x) }?;
                self.collectives.reduce_scatter_integers(data).map_err(failed)
            }
            Dtype::I32 => Err(DeviceError::Shape {
                op: "reduce_scatter",
                what: format!("{x:?} holds neither real numbers nor I64"),
            }),
        }
    }

    fn all_gather(&self, _stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        match x.dtype {
            Dtype::F32 => self.gather::<f32>(x),
            Dtype::Bf16 => self.gather::<Bf16>(x),
            Dtype::F16 => self.gather::<F16>(x),
            Dtype::I32 | Dtype::I64 => {
                Err(DeviceError::Shape { op: "all_gather", what: format!("{x:?} holds no real numbers") })
            }
        }
    }

    fn send(&self, _stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        let mut lent = self.lent.borrow_mut();
        // Sends that were read long ago are closed here, so that the list stays as short as the pipeline is deep.
        while let Some(&send) = lent.front().filter(|&&send| self.channel.is_complete(send)) {
            lent.pop_front();
            self.channel.wait(send).map_err(failed)?;
        }
        let loan = Arc::new(Lent { arena: Arc::clone(&self.arena), tensor: x });
        lent.push_back(self.channel.post_loan(to, tag, loan).map_err(failed)?);
        Ok(())
    }

    fn receive(&self, _stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        // SAFETY: as in `all_reduce`.
        let data = unsafe { self.arena.bytes_mut(x) }?;
        self.channel.receive(from, tag, data).map_err(failed)
    }
}

impl Drop for HostCommunicator {
    fn drop(&mut self) {
        // The arena may go with this rank: nobody may be reading it then. A failed peer has ended its reading too.
        for send in self.lent.get_mut().drain(..) {
            let _ = self.channel.wait(send);
        }
    }
}
