//! The CPU as a device: operations run on the rank's own thread and, with more threads per rank, on its pool.

use std::sync::Arc;

use config::Products;
use device::{Arena, Device, DeviceError, Op, Stream, Tensor};

use crate::affinity::stay_on;
use crate::instruction_set::InstructionSet;
use crate::meter::Meter;
use crate::parts;
use crate::pool::Pool;
use crate::worker::Worker;

/// Executes operations at once, in the order in which they are submitted; streams are all the same thread. Results do not depend on the
/// number of threads.
pub struct CpuDevice {
    own: Worker,
    pool: Option<Pool>,
    meters: Vec<Arc<Meter>>,
}

impl CpuDevice {
    /// A device over `arena` that uses the best instruction set of this machine and the rank's own thread.
    pub fn new(arena: Arc<Arena>) -> CpuDevice {
        CpuDevice::with_instruction_set(arena, InstructionSet::detect())
    }

    /// A device that uses `instruction_set`, which this machine must have. Results are the same bits on all.
    pub fn with_instruction_set(arena: Arc<Arena>, instruction_set: InstructionSet) -> CpuDevice {
        assert!(instruction_set.is_available(), "this machine has no {instruction_set:?}");
        let own = Worker::new(arena, instruction_set);
        let meters = vec![Arc::clone(&own.meter)];
        CpuDevice { own, pool: None, meters }
    }

    /// The same device, which adds the terms of products in this order. Asked before it has threads.
    pub fn with_products(mut self, products: Products) -> CpuDevice {
        assert!(self.pool.is_none(), "threads of a pool multiply in the order that was theirs from the start");
        self.own.products = products;
        self
    }

    /// The same device with `threads` threads: the rank's own and those of a pool, which ends with the device. With one thread there is no pool.
    /// Of `cores` the calling thread and those of the pool take one each, in order, and stay there; where none is left, threads run anywhere.
    ///
    /// # Errors
    /// [`DeviceError::Threads`] where the system starts no more.
    pub fn with_threads(mut self, threads: usize, cores: &[usize]) -> Result<CpuDevice, DeviceError> {
        let workers: Vec<Worker> = (1..threads).map(|_| self.own.sibling()).collect();
        self.meters.truncate(1);
        self.meters.extend(workers.iter().map(|worker| Arc::clone(&worker.meter)));
        if let Some(core) = cores.first() {
            stay_on(*core);
        }
        self.pool =
            if workers.is_empty() { None } else { Some(Pool::start(workers, cores.get(1..).unwrap_or_default())?) };
        Ok(self)
    }

    /// Multiply-adds so far that the kernels have counted in their loops, on all threads.
    pub fn multiply_adds(&self) -> u64 {
        self.meters.iter().map(|meter| meter.multiply_adds()).sum()
    }
}

impl Device for CpuDevice {
    fn submit(&self, _stream: Stream, op: &Op) -> Result<(), DeviceError> {
        match &self.pool {
            Some(pool) if parts::pays(op) => pool.execute(&self.own, op),
            Some(_) | None => self.own.execute(op),
        }
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.own.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.own.read(from, to)
    }
}
