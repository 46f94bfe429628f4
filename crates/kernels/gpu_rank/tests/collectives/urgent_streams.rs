//! The streams of a rank over NCCL whose kernels come first.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comm::Timeouts;
use device::{Communicator, Device, Dtype, Stream, Tensor};
use gpu::{DriverError, Gpu, StreamHandle};
use gpu_rank::QueueOrder;

use crate::collectives::kernels::{compiled, compiler};
use crate::collectives::nccl::{Copied, copied, member_on};
use crate::collectives::on_ranks;

/// A GPU that counts streams.
struct CountingGpu {
    inner: Arc<dyn Gpu>,
    urgent: Arc<Mutex<usize>>,
}

impl Gpu for CountingGpu {
    fn create_urgent_stream(&self) -> Result<StreamHandle, DriverError> {
        *self.urgent.lock().expect("whole") += 1;
        self.inner.create_urgent_stream()
    }

    gpu::forward!(
        inner: facts, enter, memory, copies, create_stream, destroy_stream, synchronize, has_ended, events, elapsed_ms,
        load, unload, function, function_facts, allow_shared, tensor_map, launch, graphs
    );
}

/// Reductions, transfers and shifts have an urgent stream each, and so has an outbox, once for all of its messages.
#[needs::cuda]
#[test]
fn messages_leave_by_an_urgent_stream() {
    let code = compiled(&compiler(), &gpu_rank::COLLECTIVES.whole()).expect("code");
    let counts = on_ranks(2, &[], |transports_of_rank| {
        let rank = transports_of_rank.group.rank().0;
        let urgent = Arc::new(Mutex::new(0));
        let Copied { gpu, nccl } = copied("urgent", rank, "");
        let gpu = Arc::new(CountingGpu { inner: gpu, urgent: Arc::clone(&urgent) });
        let timeouts = Timeouts::new(Duration::from_secs(60));
        let own = member_on(Copied { gpu, nccl }, &code, transports_of_rank, timeouts, QueueOrder::One);
        let opened = *urgent.lock().expect("whole");
        let place = Tensor::new(0, 1, 8, Dtype::F32);
        for tag in 0..2 {
            match rank {
                0 => own.group.send(Stream::Compute, 1, tag, place).expect("sent"),
                _ => own.group.receive(Stream::Compute, 0, tag, place).expect("received"),
            }
        }
        own.rank.synchronize().expect("ended");
        (opened, *urgent.lock().expect("whole"))
    });
    assert_eq!(counts, [(3, 4), (3, 3)]);
}
