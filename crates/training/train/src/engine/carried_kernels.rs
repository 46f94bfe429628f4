//! Kernels of a compiler, and those that the program carries for GPUs that the compiler does not know: a GPU runs PTX
//! of older ones.

use std::borrow::Cow;

use device::DeviceError;
use gpu::{Capability, DeviceFacts};

use crate::engine::gpu_code::{CodeOrigin, CompiledKernels, GpuCode, KernelCode, ToCompile};
use crate::engine::gpu_error::GpuError;
use crate::engine::kernel_archive::ArchivedKernels;

/// See the top of the file.
struct CompiledOrCarried {
    compiled: CompiledKernels,
    carried: ArchivedKernels,
}

/// The kernels of a compiler for all of `gpus`, where those that it does not know take the kernels of `archive`.
///
/// # Errors
/// [`GpuError::UnknownGpu`] for a GPU that neither has code for; a damaged archive, where it is needed.
pub(crate) fn compiled_or_carried(
    compiled: CompiledKernels,
    gpus: &[DeviceFacts],
    archive: impl FnOnce() -> Result<Option<Cow<'static, [u8]>>, GpuError>,
) -> Result<Box<dyn KernelCode>, GpuError> {
    let unknown: Vec<&DeviceFacts> = gpus.iter().filter(|facts| !compiled.knows(facts.capability)).collect();
    let Some(first) = unknown.first() else { return Ok(Box::new(compiled)) };
    let carried = archive()?.map(|bytes| ArchivedKernels::read(&bytes)).transpose()?;
    let has_all = |carried: &ArchivedKernels| unknown.iter().all(|facts| carried.target(facts.capability).is_some());
    match carried.filter(has_all) {
        Some(carried) => Ok(Box::new(CompiledOrCarried { compiled, carried })),
        None => {
            let (major, minor) = compiled.origin(first.capability).compiler;
            let gpu = gpu_rank::named(first);
            Err(GpuError::UnknownGpu { gpu, capability: first.capability, compiler: format!("{major}.{minor}") })
        }
    }
}

impl CompiledOrCarried {
    fn chosen(&self, capability: Capability) -> &dyn KernelCode {
        if self.compiled.knows(capability) { &self.compiled } else { &self.carried }
    }
}

impl KernelCode for CompiledOrCarried {
    fn to_compile(&self, capability: Capability) -> Option<ToCompile> {
        self.chosen(capability).to_compile(capability)
    }

    fn substitute(&self, capability: Capability) -> Option<String> {
        let target = self.carried.target(capability).filter(|_| !self.compiled.knows(capability))?;
        let (major, minor) = self.compiled.origin(capability).compiler;
        let carried = self.carried.origin(capability);
        Some(format!("{carried} for {target}, as NVRTC {major}.{minor} does not know {capability}"))
    }

    fn origin(&self, capability: Capability) -> CodeOrigin {
        self.chosen(capability).origin(capability)
    }

    fn code(&self, capability: Capability) -> Result<GpuCode, DeviceError> {
        self.chosen(capability).code(capability)
    }
}
