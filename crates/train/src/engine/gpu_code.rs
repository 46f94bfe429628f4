//! The compiled kernels of GPUs.

use cuda::code::{CompiledSource, compile, compile_all, target_of};
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

/// Where kernels come from.
pub trait KernelCode: Send + Sync {
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
}

impl KernelCode for CompiledKernels {
    fn code(&self, capability: Capability) -> Result<GpuCode, DeviceError> {
        let target = match self.form {
            CodeForm::Cubin => target_of(capability),
            CodeForm::Ptx => Target::ptx(capability),
        };
        Ok(GpuCode {
            operations: compile_all(&self.compiler, &self.cache, &target)?,
            collectives: compile(&self.compiler, &self.cache, &COLLECTIVES, &target)?,
        })
    }
}
