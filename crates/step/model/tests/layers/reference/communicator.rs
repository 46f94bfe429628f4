//! All-reduce, reduce-scatter, all-gather, all-to-all and ring shift between threads, each with a reference device of
//! its own.

use std::sync::{Barrier, Mutex};

use device::{Call, Communicator, DeviceError, Reduction, Stream};

use super::ReferenceDevice;

/// Where the members of a group meet.
pub struct Exchange {
    barrier: Barrier,
    contributions: Mutex<Vec<Vec<f64>>>,
}

impl Exchange {
    /// For a group of `size`.
    pub fn new(size: usize) -> Exchange {
        Exchange { barrier: Barrier::new(size), contributions: Mutex::new(vec![vec![]; size]) }
    }
}

/// One member.
pub struct ReferenceCommunicator<'a> {
    pub exchange: &'a Exchange,
    pub device: &'a ReferenceDevice,
    pub size: usize,
    pub position: usize,
}

impl Communicator for ReferenceCommunicator<'_> {
    fn size(&self) -> usize {
        self.size
    }

    fn position(&self) -> usize {
        self.position
    }

    fn call(&self, _stream: Stream, call: Call) -> Result<(), DeviceError> {
        let ([Some(from), Some(to)], position, size) = (call.operands(), self.position, self.size) else {
            unreachable!("layers neither send nor receive");
        };
        self.exchange.contributions.lock().unwrap()[position] = self.device.values(from);
        self.exchange.barrier.wait();
        let all = self.exchange.contributions.lock().unwrap().clone();
        let slice = from.len() / size;
        let own = position * slice..(position + 1) * slice;
        let joined = |index: usize, reduction: Reduction| {
            let values = all.iter().map(|member| member[index]);
            match reduction {
                Reduction::Sum(_) => values.sum(),
                Reduction::Max => values.fold(f64::NEG_INFINITY, f64::max),
            }
        };
        let places = 0..from.len();
        let result: Vec<f64> = match call {
            Call::AllReduce(_, reduction) => places.map(|index| joined(index, reduction)).collect(),
            Call::ReduceScatter(_, tree) => {
                let sum = |index| joined(index, Reduction::Sum(tree));
                // Unspecified elements are NaN.
                places.map(|index| if own.contains(&index) { sum(index) } else { f64::NAN }).collect()
            }
            Call::AllGather(_) => places.map(|index| all[index / slice][index]).collect(),
            Call::AllToAll { .. } | Call::ExchangeRows { .. } => {
                all.iter().flat_map(|member| member[own.clone()].to_vec()).collect()
            }
            Call::Shift { .. } => all[(position + size - 1) % size].clone(),
            Call::Send { .. } | Call::Receive { .. } => unreachable!("layers neither send nor receive"),
        };
        self.device.assign(to, &result);
        self.exchange.barrier.wait();
        Ok(())
    }
}
