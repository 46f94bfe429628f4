//! All-reduce, reduce-scatter, all-gather, all-to-all and ring shift between threads, each with a reference device of
//! its own.

use std::sync::{Barrier, Mutex};

use device::{Communicator, DeviceError, Reduction, Stream, SumTree, Tensor};

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

    fn all_reduce(&self, _stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.exchange.contributions.lock().unwrap()[self.position] = self.device.values(x);
        self.exchange.barrier.wait();
        let contributions = self.exchange.contributions.lock().unwrap().clone();
        let joined: Vec<f64> = (0..x.len())
            .map(|index| {
                let values = contributions.iter().map(|member| member[index]);
                match reduction {
                    Reduction::Sum(_) => values.sum(),
                    Reduction::Max => values.fold(f64::NEG_INFINITY, f64::max),
                }
            })
            .collect();
        self.device.assign(x, &joined);
        self.exchange.barrier.wait();
        Ok(())
    }

    /// Unspecified elements are NaN afterwards.
    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        self.all_reduce(stream, x, Reduction::Sum(tree))?;
        let slice = x.len() / self.size;
        let kept = self.position * slice..(self.position + 1) * slice;
        let values = self.device.values(x).into_iter().enumerate();
        let values: Vec<f64> =
            values.map(|(index, value)| if kept.contains(&index) { value } else { f64::NAN }).collect();
        self.device.assign(x, &values);
        Ok(())
    }

    fn all_gather(&self, _stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.exchange.contributions.lock().unwrap()[self.position] = self.device.values(x);
        self.exchange.barrier.wait();
        let contributions = self.exchange.contributions.lock().unwrap().clone();
        let slice = x.len() / self.size;
        let joined: Vec<f64> = (0..x.len()).map(|index| contributions[index / slice][index]).collect();
        self.device.assign(x, &joined);
        self.exchange.barrier.wait();
        Ok(())
    }

    fn all_to_all(&self, _stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        let slice = from.len() / self.size;
        self.exchange.contributions.lock().unwrap()[self.position] = self.device.values(from);
        self.exchange.barrier.wait();
        let contributions = self.exchange.contributions.lock().unwrap().clone();
        let own = self.position * slice..(self.position + 1) * slice;
        let joined: Vec<f64> = contributions.iter().flat_map(|member| member[own.clone()].to_vec()).collect();
        self.device.assign(to, &joined);
        self.exchange.barrier.wait();
        Ok(())
    }

    fn shift(&self, _stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.exchange.contributions.lock().unwrap()[self.position] = self.device.values(from);
        self.exchange.barrier.wait();
        let previous = (self.position + self.size - 1) % self.size;
        let received = self.exchange.contributions.lock().unwrap()[previous].clone();
        self.device.assign(to, &received);
        self.exchange.barrier.wait();
        Ok(())
    }

    fn send(&self, _stream: Stream, _to: usize, _tag: u64, _x: Tensor) -> Result<(), DeviceError> {
        unreachable!("layers do not send")
    }

    fn receive(&self, _stream: Stream, _from: usize, _tag: u64, _x: Tensor) -> Result<(), DeviceError> {
        unreachable!("layers do not receive")
    }
}
