//! Reasons for which ranks cannot have GPUs.

use std::path::PathBuf;

use device::{DeviceError, DeviceKind};
use gpu::{Capability, DriverError};
use gpu_rank::remedy;
use nvidia::LibraryError;
use nvidia::driver::{OLDEST_CAPABILITY, OLDEST_CUDA};
use thiserror::Error;

use crate::engine::gpu_code::CodeOrigin;
use crate::engine::gpu_memory::GpuMemory;
use crate::engine::kernel_archive::ArchiveError;
use crate::engine::product_source::NoProductLibrary;

/// Why ranks cannot have GPUs. Nothing has been started.
#[derive(Debug, Error)]
pub enum GpuError {
    /// There is no driver.
    #[error("run.device = \"cuda\" has no driver: {0}, or write run.device = \"cpu\"")]
    NoDriver(String),
    /// The driver does not answer.
    #[error("run.device = \"cuda\": {cause}; {}", remedy(.cause.kind))]
    Driver {
        /// Its reason.
        cause: DriverError,
    },
    /// The driver is older than all code.
    #[error(
        "the driver supports CUDA {}, and pleach needs {}; install {} or newer, or write run.device = \"cpu\"",
        version(*.0), version(OLDEST_CUDA), driver_of(OLDEST_CUDA)
    )]
    OldDriver(u32),
    /// The driver does not load the code that is there.
    #[error(
        "the driver supports CUDA {}, and {code} needs {}; install {} or newer, or put an NVRTC of CUDA 12 (12.8 or later) first in \
         PLEACH_CUDA (`pip install nvidia-cuda-nvrtc-cu12`), or write run.device = \"cpu\"",
        version(*.driver), version(.code.oldest_cuda()), driver_of(.code.oldest_cuda())
    )]
    OldDriverForCode {
        /// The version of CUDA that the driver supports.
        driver: u32,
        code: CodeOrigin,
    },
    /// There is no GPU.
    #[error("run.device = \"cuda\" needs a GPU, and the driver lists none; write run.device = \"cpu\"")]
    NoGpu,
    /// There are fewer GPUs than asked for.
    #[error("run.gpus = {wanted} must be at most the GPUs of this machine; got {there}; use {there}, or leave it out")]
    FewGpus {
        /// Asked for.
        wanted: usize,
        /// There.
        there: usize,
    },
    /// A GPU is older than the kernels.
    #[error(
        "{gpu} has compute capability {capability}, and kernels need {OLDEST_CAPABILITY} or newer; use run.gpus to leave it out, or write \
         run.device = \"cpu\""
    )]
    OldGpu {
        /// Its name.
        gpu: String,
        /// The capability.
        capability: Capability,
    },
    /// The compiler does not know a GPU, and no kernels are carried that it runs.
    #[error(
        "{gpu} has compute capability {capability}, which NVRTC {compiler} does not know, and the program carries no kernels for \
         it; put a newer NVRTC first in PLEACH_CUDA (`pip install nvidia-cuda-nvrtc`), use a program by tools/release.sh, or \
         write run.device = \"cpu\""
    )]
    UnknownGpu {
        /// Its name.
        gpu: String,
        capability: Capability,
        /// The version of NVRTC.
        compiler: String,
    },
    /// There is no compiler. The reason ends with the remedy of the library.
    #[error("kernels must be compiled for {0}; {1} in PLEACH_CUDA")]
    NoCompiler(DeviceKind, String),
    /// An archive of compiled kernels cannot be read.
    #[error("{} must be a readable archive of compiled kernels; {cause}; remove it, or make it again", file.display())]
    UnreadArchive {
        file: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    /// Kernels that the program carries cannot be used.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// There is no library of products whose algorithms could be compared.
    #[error("run.product_algorithms = \"equal\" needs cuBLASLt: {0} in PLEACH_CUDA; or leave the key out")]
    NoEqualAlgorithms(LibraryError),
    /// There is no library of products, and the run needs one.
    #[error(transparent)]
    NoProducts(#[from] NoProductLibrary),
    /// A GPU is too small for its ranks.
    #[error("{0} does not fit; use more GPUs, or a layout whose ranks need less, as `pleach check` names it")]
    TooSmall(GpuMemory),
    /// A GPU cannot be opened, or code for it cannot be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// 13.0 for 13000.
fn version(number: u32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// The first driver of NVIDIA with a version of CUDA.
fn driver_of(cuda: u32) -> String {
    let branches = [(12_040, 550), (12_050, 555), (12_060, 560), (12_080, 570), (12_090, 575), (13_000, 580)];
    let branch = branches.iter().find(|(known, _)| *known == cuda);
    branch.map_or_else(|| format!("a driver for CUDA {}", version(cuda)), |(_, branch)| format!("driver {branch}"))
}
