//! The compiled kernels of GPUs.

use std::path::{Path, PathBuf};

use cuda::code::{CompiledSource, compile, compile_all, target_of};
use cuda::kernels::{SOURCES, Source};
use device::DeviceError;
use gpu::Capability;
use gpu_rank::COLLECTIVES;
use nvidia::nvrtc::{Cache, Code, Compiler, Target};

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

/// Kernels that were compiled before, in a folder for each target: `compute_90/mat_mul.ptx`. Where they are, no compiler is needed.
#[derive(Clone, Debug)]
pub struct ArchivedKernels {
    folder: PathBuf,
}

impl ArchivedKernels {
    /// The kernels of `folder`.
    pub fn in_folder(folder: &Path) -> ArchivedKernels {
        ArchivedKernels { folder: folder.into() }
    }

    /// Compiles all kernels to PTX for GPUs of `capability` and later, and writes them to `folder`.
    ///
    /// # Errors
    /// The compiler's, and a folder that cannot be written.
    pub fn write(compiler: &Compiler, folder: &Path, capability: Capability) -> Result<(), DeviceError> {
        let target = Target::ptx(capability);
        let folder = folder.join(target.to_string());
        std::fs::create_dir_all(&folder).map_err(|cause| file_error("make", &folder, cause))?;
        // Nothing is kept apart from the archive: the cache is a folder of it that goes away.
        let kept = folder.join("cache");
        let cache = Cache::in_folder(&kept);
        let mut all = compile_all(compiler, &cache, &target)?;
        all.push(compile(compiler, &cache, &COLLECTIVES, &target)?);
        for CompiledSource { source, code } in all {
            let path = folder.join(format!("{}.ptx", source.name));
            std::fs::write(&path, code.bytes()).map_err(|cause| file_error("write", &path, cause))?;
        }
        std::fs::remove_dir_all(&kept).map_err(|cause| file_error("remove", &kept, cause))
    }

    fn read(&self, target: &Target, source: Source) -> Result<CompiledSource, DeviceError> {
        let path = self.folder.join(target.to_string()).join(format!("{}.ptx", source.name));
        let text = std::fs::read_to_string(&path).map_err(|cause| file_error("read", &path, cause))?;
        Ok(CompiledSource { source, code: Code::Ptx(text) })
    }

    /// The newest target that a GPU of `capability` runs.
    fn target(&self, capability: Capability) -> Option<Target> {
        let minors = |major: u32| (0..=9).rev().map(move |minor| Capability { major, minor });
        let all = (0..=capability.major).rev().flat_map(minors).filter(|older| *older <= capability);
        let mut targets = all.map(Target::ptx);
        targets.find(|target| self.folder.join(target.to_string()).is_dir())
    }
}

impl KernelCode for ArchivedKernels {
    fn code(&self, capability: Capability) -> Result<GpuCode, DeviceError> {
        let target = self.target(capability).ok_or_else(|| DeviceError::Accelerator {
            what: format!("kernels for {capability}"),
            cause: format!("{} has none; compile them for it or for an older GPU", self.folder.display()).into(),
        })?;
        let operations = SOURCES.iter().map(|source| self.read(&target, *source)).collect::<Result<_, _>>()?;
        Ok(GpuCode { operations, collectives: self.read(&target, COLLECTIVES)? })
    }
}

fn file_error(verb: &str, path: &Path, cause: std::io::Error) -> DeviceError {
    DeviceError::Accelerator { what: format!("{verb} compiled kernels at {}", path.display()), cause: Box::new(cause) }
}
