//! Failures of the driver, with the operation.

use device::{DeviceError, Op, Tensor};
use gpu::DriverError;

/// The operation with its tensors.
pub(crate) fn described(op: &Op) -> String {
    let operands = op.operands();
    let list = |tensors: &mut dyn Iterator<Item = Tensor>| {
        tensors.map(|tensor| format!("{tensor:?}")).collect::<Vec<_>>().join(", ")
    };
    format!("{} of {} into {}", op.name(), list(&mut operands.reads()), list(&mut operands.writes()))
}

/// A failure of the driver with what was asked of it.
pub(crate) fn accelerator_error(what: String, cause: DriverError) -> DeviceError {
    DeviceError::Accelerator { what, cause: Box::new(cause) }
}
