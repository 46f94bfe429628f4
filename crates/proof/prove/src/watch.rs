//! Looking at ranks between instructions.

use device::DeviceError;
use train::Worker;

/// Sees every rank after each of its instructions, on the rank's own thread.
pub trait Watch: Sync {
    /// Called after instruction `rank.position.at` of step `rank.position.step`.
    ///
    /// # Errors
    /// The device's; they end the run.
    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError>;
}

/// Sees nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoWatch;

impl Watch for NoWatch {
    fn instruction(&self, _worker: &Worker<'_>) -> Result<(), DeviceError> {
        Ok(())
    }
}
