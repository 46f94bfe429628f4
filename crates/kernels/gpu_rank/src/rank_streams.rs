//! The streams of a rank: of the driver, and the threads of the host that submit to them.

use std::sync::Arc;

use cuda::CudaDevice;
use device::{DeviceError, Stream, StreamQueues};
use gpu::{DriverError, StreamHandle};

use crate::failure::on_gpu;

/// Which streams of the driver a rank uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// One for everything: the work of a rank is in the order in which it is submitted.
    One,
    /// One for each stream, in no order but that of waits.
    PerStream,
}

impl QueueOrder {
    /// The stream of the device that has the work of `stream`.
    pub fn stream(self, stream: Stream) -> Stream {
        match self {
            QueueOrder::One => Stream::Compute,
            QueueOrder::PerStream => stream,
        }
    }
}

/// A rank's device with its streams.
#[derive(Clone)]
pub struct RankStreams {
    pub device: Arc<CudaDevice>,
    /// Its streams.
    pub order: QueueOrder,
}

impl RankStreams {
    /// The driver's stream of `stream`, for work that is not an operation of the device, which counts it.
    ///
    /// # Errors
    /// The driver's, of launches that the device has gathered.
    pub(crate) fn handle(&self, stream: Stream) -> Result<StreamHandle, DeviceError> {
        self.device.hand_over(self.order.stream(stream))
    }

    /// Does `job` on the thread of `stream`, where it has one among `queues`, and else at once. A failure names the
    /// GPU.
    pub(crate) fn on(
        &self,
        queues: &StreamQueues,
        stream: Stream,
        job: impl FnOnce() -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        match queues.of(stream) {
            None => self.named(job()),
            Some(queue) => {
                let facts = self.device.gpu().facts().clone();
                queue.submit(Box::new(move || job().map_err(|error| on_gpu(&facts, error))));
                Ok(())
            }
        }
    }

    /// A result whose failure names the GPU.
    pub(crate) fn named<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        result.map_err(|error| on_gpu(self.device.gpu().facts(), error))
    }
}

/// A failure of the driver with what was asked of it.
pub(crate) fn driver_error(what: impl Into<String>) -> impl FnOnce(DriverError) -> DeviceError {
    let what = what.into();
    move |cause| DeviceError::Accelerator { what, cause: Box::new(cause) }
}
