//! How unequally much the ranks along an axis compute.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use mesh::{Axis, Coord};
use sync::lock;
use testkit::intercepted::intercept_ops;
use testkit::wrapped_engine::WrappedEngine;
use train::Setup;

use crate::timed::{Length, seconds_of_steps};

/// Seconds inside of operations, which wait for no rank, of the busiest place along `axis`, over the mean of its
/// places.
pub fn imbalance(setup: &Setup, axis: Axis, length: Length) -> f64 {
    let busy = Arc::new(Mutex::new(vec![0.0; setup.mesh.sizes().along(axis)]));
    let wrap = |coord: Coord, rank| {
        let (busy, place) = (Arc::clone(&busy), coord.along(axis));
        intercept_ops(rank, move |device, stream, op| {
            let started = Instant::now();
            device.submit(stream, op)?;
            lock(&busy)[place] += started.elapsed().as_secs_f64();
            Ok(())
        })
    };
    seconds_of_steps(setup, &WrappedEngine::new(setup, &wrap), length);
    let busy = lock(&busy);
    busy.iter().copied().fold(0.0, f64::max) * busy.len() as f64 / busy.iter().sum::<f64>()
}
