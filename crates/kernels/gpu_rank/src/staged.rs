//! Collectives of a group by way of the host: what is read is copied there, the host's communicator joins it, and the
//! result is copied back. All transports of [`HostCommunicator`] serve, and its bits are the result.

use std::sync::Arc;

use comm::HostCommunicator;
use device::{Call, Communicator, DeviceError, Stream, StreamQueues};

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
}

impl Communicator for StagedCommunicator {
    fn size(&self) -> usize {
        self.host.size()
    }

    fn position(&self) -> usize {
        self.host.position()
    }

    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        if self.size() == 1 && call.is_in_place() {
            return Ok(());
        }
        let [given, gotten] = call.parts(self.size(), self.position());
        let (host, staging) = (Arc::clone(&self.host), Arc::clone(&self.staging));
        self.staging.streams().on(&self.queues, stream, move || {
            given.into_iter().try_for_each(|part| staging.download(stream, part))?;
            host.call(stream, call)?;
            gotten.into_iter().try_for_each(|part| staging.upload(stream, part))
        })
    }
}
