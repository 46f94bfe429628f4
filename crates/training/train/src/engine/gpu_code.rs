//! The compiled kernels of GPUs.

use std::path::PathBuf;

use cuda::code::{CompiledSource, compile, compile_all, target_of, to_compile};
use device::DeviceError;
use gpu::Capability;
use gpu_rank::COLLECTIVES;
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

    fn code(&self, capability: Capability) -> Result<GpuCode, DeviceError> {
        let target = self.target(capability);
        Ok(GpuCode {
            operations: compile_all(&self.compiler, &self.cache, &target)?,
            collectives: compile(&self.compiler, &self.cache, &COLLECTIVES, &target)?,
        })
    }
}
