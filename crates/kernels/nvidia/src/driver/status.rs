//! Results of the driver, and the reasons that callers tell apart.

use gpu::DriverErrorKind;

use super::functions::Status;

pub(crate) const SUCCESS: Status = Status(0);
pub(crate) const NO_DEVICE: Status = Status(100);
/// Both are the results for memory of a fabric that this process may not use.
pub(crate) const NOT_PERMITTED: Status = Status(800);
pub(crate) const NOT_SUPPORTED: Status = Status(801);

/// Results with a reason of their own, by their name in the header. Every other one is [`DriverErrorKind::Other`].
pub(super) const KINDS: &[(&str, u32, DriverErrorKind)] = &[
    ("CUDA_ERROR_STUB_LIBRARY", 34, DriverErrorKind::Unavailable),
    ("CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", 36, DriverErrorKind::Unavailable),
    ("CUDA_ERROR_NO_DEVICE", 100, DriverErrorKind::Unavailable),
    ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 803, DriverErrorKind::Unavailable),
    ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", 804, DriverErrorKind::Unavailable),
    ("CUDA_ERROR_OUT_OF_MEMORY", 2, DriverErrorKind::OutOfMemory),
    ("CUDA_ERROR_INVALID_VALUE", 1, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_INVALID_DEVICE", 101, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_INVALID_HANDLE", 400, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_ILLEGAL_STATE", 401, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_NOT_FOUND", 500, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", 701, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", 900, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", 901, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_STREAM_CAPTURE_MERGE", 902, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", 903, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_STREAM_CAPTURE_UNJOINED", 904, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_STREAM_CAPTURE_ISOLATION", 905, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_CAPTURED_EVENT", 907, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_INVALID_CLUSTER_SIZE", 912, DriverErrorKind::InvalidArgument),
    ("CUDA_ERROR_INVALID_IMAGE", 200, DriverErrorKind::InvalidImage),
    ("CUDA_ERROR_NO_BINARY_FOR_GPU", 209, DriverErrorKind::InvalidImage),
    ("CUDA_ERROR_INVALID_PTX", 218, DriverErrorKind::InvalidImage),
    ("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", 221, DriverErrorKind::InvalidImage),
    ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", 222, DriverErrorKind::InvalidImage),
    ("CUDA_ERROR_JIT_COMPILATION_DISABLED", 223, DriverErrorKind::InvalidImage),
    ("CUDA_ERROR_INVALID_SOURCE", 300, DriverErrorKind::InvalidImage),
    ("CUDA_ERROR_ILLEGAL_ADDRESS", 700, DriverErrorKind::KernelFault),
    ("CUDA_ERROR_ASSERT", 710, DriverErrorKind::KernelFault),
    ("CUDA_ERROR_HARDWARE_STACK_ERROR", 714, DriverErrorKind::KernelFault),
    ("CUDA_ERROR_ILLEGAL_INSTRUCTION", 715, DriverErrorKind::KernelFault),
    ("CUDA_ERROR_MISALIGNED_ADDRESS", 716, DriverErrorKind::KernelFault),
    ("CUDA_ERROR_INVALID_ADDRESS_SPACE", 717, DriverErrorKind::KernelFault),
    ("CUDA_ERROR_INVALID_PC", 718, DriverErrorKind::KernelFault),
    ("CUDA_ERROR_LAUNCH_FAILED", 719, DriverErrorKind::KernelFault),
    ("CUDA_ERROR_TENSOR_MEMORY_LEAK", 721, DriverErrorKind::KernelFault),
    ("CUDA_ERROR_LAUNCH_TIMEOUT", 702, DriverErrorKind::Timeout),
    ("CUDA_ERROR_TIMEOUT", 909, DriverErrorKind::Timeout),
    ("CUDA_ERROR_ECC_UNCORRECTABLE", 214, DriverErrorKind::Ecc),
    ("CUDA_ERROR_CONTAINED", 226, DriverErrorKind::Ecc),
    ("CUDA_ERROR_DEINITIALIZED", 4, DriverErrorKind::Lost),
    ("CUDA_ERROR_NVLINK_UNCORRECTABLE", 220, DriverErrorKind::Lost),
    ("CUDA_ERROR_CONTEXT_IS_DESTROYED", 709, DriverErrorKind::Lost),
    ("CUDA_ERROR_NOT_READY", 600, DriverErrorKind::NotReady),
];

/// The reason of a result that is not success.
pub(super) fn kind(status: Status) -> DriverErrorKind {
    let known = KINDS.iter().find(|(_, code, _)| *code == status.0);
    known.map_or(DriverErrorKind::Other(status.0), |(_, _, kind)| *kind)
}

/// The remedy for a result, where it is not plain from the driver's text.
pub(super) fn remedy(status: Status) -> Option<&'static str> {
    match status.0 {
        34 => Some("this libcuda.so.1 is a toolkit's stub; put the driver's own folder first"),
        46 => Some("another process uses this GPU alone; wait for it, or set the compute mode to default"),
        222 => Some(
            "update the driver to the CUDA version that compiled the PTX: 580 or later for PTX 9.0, 570 for PTX 8.7",
        ),
        209 => Some("compile for the architecture of this GPU"),
        801 => Some("this GPU, or the share of it that this machine has, lacks the call; use a whole GPU"),
        802 => Some("start NVIDIA's fabric manager"),
        803 => Some("the driver's library and its kernel module differ: restart the machine, or load the module again"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_result_and_each_result_one_reason() {
        let mut codes: Vec<u32> = KINDS.iter().map(|(_, code, _)| *code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), KINDS.len());
        use DriverErrorKind as Kind;
        for (code, expected) in [
            (2, Kind::OutOfMemory),
            (222, Kind::InvalidImage),
            (700, Kind::KernelFault),
            (702, Kind::Timeout),
            (214, Kind::Ecc),
            (709, Kind::Lost),
            (600, Kind::NotReady),
            (999, Kind::Other(999)),
        ] {
            assert_eq!(kind(Status(code)), expected);
        }
    }
}
