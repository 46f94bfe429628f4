//! The CPU as a device: operations run on the rank's own thread and, with more threads per rank, on its pool.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use config::Products;
use device::{Arena, Device, DeviceError, NumericsChoice, Op, Stream, StreamEvent, StreamQueues, Tensor};
use sync::lock;

use crate::affinity::stay_on;
use crate::instruction_set::InstructionSet;
use crate::meter::Meter;
use crate::parts;
use crate::pool::Pool;
use crate::worker::Worker;

/// Whether the kernels have this choice of a run's numerics: all but the products of other devices.
pub fn accepts(choice: NumericsChoice) -> bool {
    match choice {
        NumericsChoice::Products(products) => match products {
            Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8 => true,
            Products::Device => false,
        },
        NumericsChoice::Stored(_) | NumericsChoice::GradientSums(_) => true,
    }
}

/// Executes operations in the order in which they are submitted to a stream: at once on the calling thread, or on the
/// thread of the stream, where it has one. Results do not depend on the number of threads.
pub struct CpuDevice {
    own: Worker,
    pool: Option<Pool>,
    meters: Vec<Arc<Meter>>,
    queues: Arc<StreamQueues>,
    /// One for each stream with a thread.
    workers: [Option<Arc<Mutex<Worker>>>; Stream::COUNT],
}

impl CpuDevice {
    /// A device over `arena` that uses the best instruction set of this machine and the rank's own thread.
    ///
    /// # Errors
    /// [`DeviceError::Buffers`].
    pub fn new(arena: Arc<Arena>) -> Result<CpuDevice, DeviceError> {
        CpuDevice::with_instruction_set(arena, InstructionSet::detect())
    }

    /// A device that uses `instruction_set`, which this machine must have. Results are the same bits on all.
    ///
    /// # Errors
    /// The errors of [`CpuDevice::new`].
    pub fn with_instruction_set(arena: Arc<Arena>, instruction_set: InstructionSet) -> Result<CpuDevice, DeviceError> {
        assert!(instruction_set.is_available(), "this machine has no {instruction_set:?}");
        let own = Worker::new(arena, instruction_set)?;
        let meters = vec![Arc::clone(&own.meter)];
        Ok(CpuDevice { own, pool: None, meters, queues: Arc::default(), workers: [const { None }; Stream::COUNT] })
    }

    /// The same device, which adds the terms of products in this order, which [`accepts`] must have. Asked before it
    /// has threads.
    pub fn with_products(mut self, products: Products) -> CpuDevice {
        assert!(self.pool.is_none(), "threads of a pool multiply in the order that was theirs from the start");
        assert!(accepts(NumericsChoice::Products(products)), "the CPU has no products = {:?}", products.name());
        self.own.products = products;
        self
    }

    /// The same device with `threads` threads: the rank's own and those of a pool, which ends with the device. With one
    /// thread there is no pool. Of `cores` the calling thread and those of the pool take one each, in order, and stay
    /// there; where none is left, threads run anywhere.
    ///
    /// # Errors
    /// [`DeviceError::Threads`] where the system starts no more, and [`DeviceError::Buffers`].
    pub fn with_threads(mut self, threads: usize, cores: &[usize]) -> Result<CpuDevice, DeviceError> {
        let workers = (1..threads).map(|_| self.own.sibling()).collect::<Result<Vec<Worker>, _>>()?;
        self.meters.truncate(1);
        self.meters.extend(workers.iter().map(|worker| Arc::clone(&worker.meter)));
        if let Some(core) = cores.first() {
            stay_on(*core);
        }
        self.pool =
            if workers.is_empty() { None } else { Some(Pool::start(workers, cores.get(1..).unwrap_or_default())?) };
        Ok(self)
    }

    /// The same device with these streams, after its products are known. A stream with a thread computes there alone,
    /// without the pool.
    ///
    /// # Errors
    /// The errors of [`CpuDevice::new`].
    pub fn with_queues(mut self, queues: Arc<StreamQueues>) -> Result<CpuDevice, DeviceError> {
        for stream in Stream::ALL {
            let worker = queues.of(stream).map(|_| self.own.apart()).transpose()?;
            self.workers[stream.index()] = worker.map(|worker| Arc::new(Mutex::new(worker)));
        }
        self.meters.extend(self.workers.iter().flatten().map(|worker| {
            let worker = lock(worker);
            Arc::clone(&worker.meter)
        }));
        Ok(CpuDevice { queues, ..self })
    }

    /// Hands `work` to the thread of `stream`, with what executes there; `None` where the stream has no thread.
    fn queued(
        &self,
        stream: Stream,
        work: impl FnOnce(&Worker) -> Result<(), DeviceError> + Send + 'static,
    ) -> Option<Result<(), DeviceError>> {
        let (queue, worker) = (self.queues.of(stream)?, Arc::clone(self.workers[stream.index()].as_ref()?));
        // Only the stream's thread takes the lock; a panic there ends the stream.
        queue.submit(Box::new(move || work(&lock(&worker))));
        Some(Ok(()))
    }

    /// Multiply-adds so far that the kernels have counted in their loops, on all threads.
    pub fn multiply_adds(&self) -> u64 {
        self.meters.iter().map(|meter| meter.multiply_adds()).sum()
    }
}

impl Device for CpuDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let queued = *op;
        self.queued(stream, move |worker| worker.execute(&queued)).unwrap_or_else(|| match &self.pool {
            Some(pool) => op.unfused().try_for_each(|op| match parts::pays(&op) {
                true => pool.execute(&self.own, &op),
                false => self.own.execute(&op),
            }),
            None => self.own.execute(op),
        })
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        match self.queues.of(stream) {
            None => self.own.write(to, from),
            Some(_) => {
                let bytes = from.to_vec();
                self.queued(stream, move |worker| worker.write(to, &bytes)).unwrap_or(Ok(()))
            }
        }
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.synchronize()?;
        self.own.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.synchronize()?;
        self.own.read(from, to)
    }

    fn record(&self, stream: Stream) -> StreamEvent {
        self.queues.record(stream)
    }

    fn reached(&self, event: StreamEvent) -> Option<Instant> {
        self.queues.reached(event)
    }

    fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        self.queues.wait(stream, event)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.queues.synchronize()
    }
}
