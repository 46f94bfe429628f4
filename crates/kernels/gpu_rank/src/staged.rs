//! Collectives of a group by way of the host: what is read is copied there, the host's communicator joins it, and the
//! result is copied back. All transports of [`HostCommunicator`] serve, and its bits are the result.

use std::ops::Range;
use std::sync::Arc;

use comm::HostCommunicator;
use device::{Communicator, DeviceError, Reduction, Stream, StreamQueues, SumTree, Tensor};

use crate::staging::Staging;

/// A group of ranks of any processes and hosts, whose tensors are on GPUs.
///
/// A call on a stream without a thread waits for the GPU and for the other members. On the others it is handed to the
/// thread.
pub struct StagedCommunicator {
    host: Arc<HostCommunicator>,
    staging: Arc<Staging>,
    queues: Arc<StreamQueues>,
}

impl StagedCommunicator {
    /// The group of `host`, a communicator over the mirror of `staging` without threads of its own; calls run on those
    /// of `queues`.
    pub fn new(host: HostCommunicator, staging: Arc<Staging>, queues: Arc<StreamQueues>) -> StagedCommunicator {
        StagedCommunicator { host: Arc::new(host), staging, queues }
    }

    fn on(
        &self,
        stream: Stream,
        call: impl FnOnce(&HostCommunicator, &Staging) -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        let (host, staging) = (Arc::clone(&self.host), Arc::clone(&self.staging));
        self.staging.streams().on(&self.queues, stream, move || call(&host, &staging))
    }

    /// The slices of `x` before and after that of this member.
    fn other_slices(&self, x: Tensor) -> [Tensor; 2] {
        let own = self.own_slice(x);
        [x.elements(0..own.start), x.elements(own.end..x.len())]
    }

    /// The elements of this member's slice of `x`. The host's communicator refuses a length that does not divide.
    fn own_slice(&self, x: Tensor) -> Range<usize> {
        let (len, position) = (x.len() / self.host.size(), self.host.position());
        len * position..len * (position + 1)
    }
}

impl Communicator for StagedCommunicator {
    fn size(&self) -> usize {
        self.host.size()
    }

    fn position(&self) -> usize {
        self.host.position()
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        if self.size() == 1 {
            return Ok(());
        }
        self.on(stream, move |host, staging| {
            staging.download(stream, x)?;
            host.all_reduce(stream, x, reduction)?;
            staging.upload(stream, x)
        })
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        if self.size() == 1 {
            return Ok(());
        }
        let own = x.elements(self.own_slice(x));
        self.on(stream, move |host, staging| {
            staging.download(stream, x)?;
            host.reduce_scatter(stream, x, tree)?;
            staging.upload(stream, own)
        })
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        if self.size() == 1 {
            return Ok(());
        }
        let (own, others) = (x.elements(self.own_slice(x)), self.other_slices(x));
        self.on(stream, move |host, staging| {
            staging.download(stream, own)?;
            host.all_gather(stream, x)?;
            others.into_iter().filter(|slice| !slice.is_empty()).try_for_each(|slice| staging.upload(stream, slice))
        })
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.on(stream, move |host, staging| {
            staging.download(stream, from)?;
            host.all_to_all(stream, from, to)?;
            staging.upload(stream, to)
        })
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.on(stream, move |host, staging| {
            staging.download(stream, from)?;
            host.shift(stream, from, to)?;
            staging.upload(stream, to)
        })
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, move |host, staging| {
            staging.download(stream, x)?;
            host.send(stream, to, tag, x)
        })
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, move |host, staging| {
            host.receive(stream, from, tag, x)?;
            staging.upload(stream, x)
        })
    }
}
