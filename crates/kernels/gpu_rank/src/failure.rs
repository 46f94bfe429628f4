//! The report of a GPU's failure: which GPU, what was asked of it, the driver's reason, and a remedy.

use device::DeviceError;
use gpu::{DeviceFacts, DriverError, DriverErrorKind};
use thiserror::Error;

/// The driver's reason with a remedy.
#[derive(Debug, Error)]
#[error("{cause}; {}", remedy(.cause.kind))]
struct DriverFailure {
    cause: DriverError,
}

/// The remedy of a failure of the driver.
pub fn remedy(kind: DriverErrorKind) -> &'static str {
    match kind {
        DriverErrorKind::Unavailable => {
            "install a newer driver of NVIDIA: 580 loads code of CUDA 13.0, and 570 that of 12.8"
        }
        DriverErrorKind::OutOfMemory => {
            "end other programs on the GPU, or use a smaller microbatch, more ranks or a higher ZeRO stage"
        }
        DriverErrorKind::InvalidArgument | DriverErrorKind::NotReady => {
            "this is a fault of pleach; please report it with the run file"
        }
        DriverErrorKind::InvalidImage => "use a newer driver, or a GPU of compute capability 8.0 or newer",
        DriverErrorKind::KernelFault => {
            "this is a fault of pleach; please report it with the run file. The newest checkpoint resumes the run"
        }
        DriverErrorKind::Timeout => {
            "a GPU that also draws a screen ends long kernels; use another one, or a smaller microbatch. The newest checkpoint resumes the run"
        }
        DriverErrorKind::Ecc => {
            "reset the GPU with nvidia-smi, or leave it out. The newest checkpoint resumes the run on other GPUs"
        }
        DriverErrorKind::Lost => {
            "the system's log names the reason (Xid); reset or leave out the GPU. The newest checkpoint resumes the run"
        }
        DriverErrorKind::Other(_) => "the driver's documentation explains the code",
    }
}

/// `GPU 0 (NVIDIA H100)`.
pub fn named(facts: &DeviceFacts) -> String {
    format!("GPU {} ({})", facts.ordinal, facts.name)
}

/// `error` with the GPU on which it happened. Errors that are not the GPU's stay as they are.
pub fn on_gpu(facts: &DeviceFacts, error: DeviceError) -> DeviceError {
    if matches!(error, DeviceError::OutOfMemory { .. }) {
        return DeviceError::Accelerator { what: named(facts), cause: Box::new(error) };
    }
    let DeviceError::Accelerator { what, cause } = error else { return error };
    match cause.downcast::<DriverError>() {
        Ok(cause) => DeviceError::Accelerator {
            what: format!("{}: {what}", named(facts)),
            cause: Box::new(DriverFailure { cause: *cause }),
        },
        // It names the GPU already.
        Err(cause) => DeviceError::Accelerator { what, cause },
    }
}
