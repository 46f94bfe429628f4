//! An engine of which one rank's device misbehaves.

use std::cell::Cell;
use std::time::Duration;

use device::DeviceError;
use mesh::Rank;
use testkit::intercepted::intercept_ops;
use testkit::wrapped_engine::WrappedEngine;
use train::ThreadEngine;

/// The fault in place of an operation.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Panics,
    Fails,
    Sleeps(Duration),
}

/// The ranks of `inner`; operation number `nth` (from 0) of `rank` is preceded by a fault.
pub fn faulty(inner: ThreadEngine, rank: Rank, nth: u64, fault: Fault) -> WrappedEngine<'static> {
    WrappedEngine::opened_by(Box::new(inner), move |inner, number, size, numerics| {
        let opened = inner.open(number, size, numerics)?;
        if number != rank {
            return Ok(opened);
        }
        // Operations until the fault.
        let left = Cell::new(nth);
        Ok(intercept_ops(opened, move |device, stream, op| {
            let is_due = left.replace(left.get().wrapping_sub(1)) == 0;
            match fault {
                Fault::Panics if is_due => panic!("a kernel has gone wrong in {}", op.name()),
                Fault::Fails if is_due => {
                    return Err(DeviceError::Shape { op: op.name(), what: "a shape that no kernel takes".into() });
                }
                Fault::Sleeps(time) if is_due => std::thread::sleep(time),
                Fault::Panics | Fault::Fails | Fault::Sleeps(_) => {}
            }
            device.submit(stream, op)
        }))
    })
}
