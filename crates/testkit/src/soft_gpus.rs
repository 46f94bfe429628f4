//! Engines on GPUs in software, whose kernels NVRTC compiles: for tests that run where there is no GPU.

use std::path::PathBuf;
use std::sync::Arc;

use device::DeviceKind;
use gpu::Driver;
use nvidia::Search;
use nvidia::nvrtc::{Cache, Compiler};
use softgpu::{Settings, SoftDriver};
use train::{CodeForm, CompiledKernels, GpuEngine, Gpus, Setup};

use crate::layout::thread_engine;

/// Names the folder of NVRTC.
const FOLDER: &str = "PLEACH_CUDA";

/// `count` GPUs in software; `None`, with a line that says so, where no NVRTC is named.
///
/// # Panics
/// A folder is named and has no NVRTC.
pub fn soft_gpus(count: usize) -> Option<Arc<Gpus>> {
    gpus_of(Arc::new(SoftDriver::new(count, Settings::default())))
}

/// As [`soft_gpus`], of `driver`.
///
/// # Panics
/// As [`soft_gpus`].
pub fn gpus_of(driver: Arc<dyn Driver>) -> Option<Arc<Gpus>> {
    let Some(folder) = std::env::var_os(FOLDER) else {
        println!("skipped: {FOLDER} names no folder with NVRTC");
        return None;
    };
    let compiler = Compiler::open(&Search::only([PathBuf::from(folder)]));
    let compiler = compiler.unwrap_or_else(|error| panic!("{FOLDER}: {error}"));
    let cache = Cache::in_folder(std::env::temp_dir().join("pleach-kernels-of-tests"));
    let code = Box::new(CompiledKernels::new(compiler, cache, CodeForm::Ptx));
    let gpus = Gpus::new(driver, DeviceKind::SOFT_GPU, code, None);
    Some(Arc::new(gpus.unwrap_or_else(|error| panic!("{error}"))))
}

/// Fresh ranks for `setup` on `gpus`, all on this host.
pub fn gpu_engine(setup: &Setup, gpus: &Arc<Gpus>) -> GpuEngine {
    let host: Vec<_> = setup.mesh.ranks().collect();
    GpuEngine::new(thread_engine(setup), &host, Arc::clone(gpus))
}
