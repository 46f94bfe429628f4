//! The compiled kernels of GPUs.

use std::fmt;
use std::path::PathBuf;

use cuda::code::{CompiledSource, compile, compile_all, target_of, to_compile};
use device::DeviceError;
use gpu::Capability;
use gpu_rank::COLLECTIVES;
use nvidia::driver::OLDEST_CUDA;
use nvidia::nvrtc::{Cache, Compiler, Target};

/// Everything that ranks on a GPU launch.
#[derive(Clone, Debug)]
pub struct GpuCode {
    /// Kernels of operations.
    pub operations: Vec<CompiledSource>,
    /// Kernels of collectives.
    pub collectives: CompiledSource,
}

/// Work of the compiler before a GPU computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToCompile {
    /// Number of files of kernels.
    pub sources: usize,
    /// The folder of compiled code.
    pub folder: PathBuf,
    /// Why the folder does not take it; `None` where it does.
    pub refused: Option<String>,
}

/// Where kernels come from.
pub trait KernelCode: Send + Sync {
    /// The kernels for GPUs of `capability` that must be compiled first; `None` where all are there.
    fn to_compile(&self, _capability: Capability) -> Option<ToCompile> {
        None
    }

    /// A line about code of an older GPU that GPUs of `capability` run, and why; `None` where they have their own.
    fn substitute(&self, _capability: Capability) -> Option<String> {
        None
    }

    /// Who makes the kernels for GPUs of `capability`.
    fn origin(&self, capability: Capability) -> CodeOrigin;

    /// The kernels for GPUs of `capability`.
    ///
    /// # Errors
    /// No code for such a GPU, or a compiler that does not make it.
    fn code(&self, capability: Capability) -> Result<GpuCode, DeviceError>;
}

/// The form of code that the GPU loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeForm {
    /// Code of its architecture.
    Cubin,
    /// PTX: the only form that a GPU in software executes.
    Ptx,
}

/// The compiler of kernels, and the form in which it leaves them: both decide which drivers load them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeOrigin {
    /// The version of NVRTC: (13, 0).
    pub compiler: (u32, u32),
    pub form: CodeForm,
}

impl CodeOrigin {
    /// The oldest version of CUDA whose drivers load the code, as drivers count. A driver compiles PTX of its own
    /// version and of earlier ones. It loads CUBINs of all compilers with its major version, which NVIDIA calls
    /// minor version compatibility.
    pub fn oldest_cuda(self) -> u32 {
        let (major, minor) = self.compiler;
        let version = match self.form {
            CodeForm::Cubin => major * 1000,
            CodeForm::Ptx => major * 1000 + minor * 10,
        };
        version.max(OLDEST_CUDA)
    }
}

impl fmt::Display for CodeOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.form {
            CodeForm::Cubin => "code",
            CodeForm::Ptx => "PTX",
        };
        write!(f, "{form} of NVRTC {}.{}", self.compiler.0, self.compiler.1)
    }
}

/// Kernels that NVRTC compiles at the first use, and a folder keeps.
pub struct CompiledKernels {
    compiler: Compiler,
    cache: Cache,
    form: CodeForm,
}

impl CompiledKernels {
    /// Kernels by `compiler`, kept in `cache`.
    pub fn new(compiler: Compiler, cache: Cache, form: CodeForm) -> CompiledKernels {
        CompiledKernels { compiler, cache, form }
    }

    /// Whether the compiler has GPUs of `capability` as a target. One that does not list its targets is asked for all.
    pub(crate) fn knows(&self, capability: Capability) -> bool {
        let number = capability.major * 10 + capability.minor;
        self.compiler.architectures().map_or(true, |known| known.contains(&number))
    }

    fn target(&self, capability: Capability) -> Target {
        match self.form {
            CodeForm::Cubin => target_of(capability),
            CodeForm::Ptx => Target::ptx(capability),
        }
    }
}

impl KernelCode for CompiledKernels {
    fn to_compile(&self, capability: Capability) -> Option<ToCompile> {
        let sources = to_compile(&self.compiler, &self.cache, &[COLLECTIVES], &self.target(capability)).len();
        (sources > 0).then(|| ToCompile {
            sources,
            folder: self.cache.folder().to_path_buf(),
            refused: self.cache.try_to_write().err().map(|error| error.to_string()),
        })
    }

    fn origin(&self, _capability: Capability) -> CodeOrigin {
        CodeOrigin { compiler: self.compiler.version(), form: self.form }
    }

    fn code(&self, capability: Capability) -> Result<GpuCode, DeviceError> {
        let target = self.target(capability);
        Ok(GpuCode {
            operations: compile_all(&self.compiler, &self.cache, &target)?,
            collectives: compile(&self.compiler, &self.cache, &COLLECTIVES, &target)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_driver_follows_from_the_compiler_and_the_form() {
        let oldest = |compiler, form| CodeOrigin { compiler, form }.oldest_cuda();
        assert_eq!(
            [(12, 8), (12, 9), (13, 0), (13, 1)].map(|of| oldest(of, CodeForm::Ptx)),
            [12_080, 12_090, 13_000, 13_010]
        );
        assert_eq!(
            [(12, 8), (12, 9), (13, 0), (13, 1)].map(|of| oldest(of, CodeForm::Cubin)),
            [12_040, 12_040, 13_000, 13_000]
        );
    }
}
