//! Engines on GPUs in software, whose kernels NVRTC compiles: for tests that run where there is no GPU.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use device::{DeviceError, DeviceKind};
use gpu::{AttentionLibrary, Capability, Driver, ProductLibrary};
use nvidia::Search;
use nvidia::nvrtc::{Cache, Compiler};
use soft_products::{SoftAttention, SoftProducts};
use softgpu::{Settings, SharedCode, SoftDriver};
use sync::lock;
use train::{
    AttentionSource, CodeForm, CodeOrigin, CompiledKernels, GpuCode, GpuEngine, Gpus, GraphNotice, GraphUse,
    KernelCode, ProductSource, Setup,
};

use crate::layout::thread_engine;

/// Names the folder of NVRTC.
const FOLDER: &str = "PLEACH_CUDA";

/// `count` GPUs in software.
///
/// # Panics
/// No folder with NVRTC is named.
pub fn soft_gpus(count: usize) -> Arc<Gpus> {
    let driver = soft_driver(vec![Settings::default(); count]);
    gpus_with(Arc::new(driver.clone()), products_of(driver), AttentionSource::None, graphs_of_tests())
}

/// Returns the same as [`soft_gpus`], with a library of attention, which ranks use in training on text whose tokens see
/// their past.
///
/// # Panics
/// The panics of [`soft_gpus`].
pub fn soft_gpus_with_attention(count: usize) -> Arc<Gpus> {
    let driver = soft_driver(vec![Settings::default(); count]);
    let soft = driver.clone();
    let open = move |ordinal| Some(Box::new(SoftAttention::new(soft.opened(ordinal)?)) as Box<dyn AttentionLibrary>);
    let (name, workspace_bytes) = ("the soft GPU's attention", 16 << 20);
    let attention = AttentionSource::Given { name, workspace_bytes, open: Box::new(open) };
    gpus_with(Arc::new(driver.clone()), products_of(driver), attention, graphs_of_tests())
}

fn products_of(driver: SoftDriver) -> ProductSource {
    let open = move |ordinal| Some(Box::new(SoftProducts::new(driver.opened(ordinal)?)) as Box<dyn ProductLibrary>);
    ProductSource::Given { name: "the soft GPU's products", open: Box::new(open) }
}

/// A driver with a GPU in software for each of `settings`. All drivers of a test program decode kernels once.
pub fn soft_driver(settings: impl IntoIterator<Item = Settings>) -> SoftDriver {
    static CODE: LazyLock<SharedCode> = LazyLock::new(SharedCode::default);
    SoftDriver::of(settings).with_code(&CODE)
}

/// Returns the same as [`soft_gpus`], of `driver` and without a library of products. Ranks launch graphs.
///
/// # Panics
/// The panics of [`soft_gpus`].
pub fn gpus_of(driver: Arc<dyn Driver>) -> Arc<Gpus> {
    gpus_with(driver, ProductSource::None, AttentionSource::None, graphs_of_tests())
}

/// Returns the same as [`gpus_of`]; ranks launch kernels as `graphs` say.
///
/// # Panics
/// The panics of [`soft_gpus`].
pub fn gpus_with_graphs(driver: Arc<dyn Driver>, graphs: GraphUse) -> Arc<Gpus> {
    gpus_with(driver, ProductSource::None, AttentionSource::None, graphs)
}

/// Graphs; a driver that has none ends the test.
fn graphs_of_tests() -> GraphUse {
    GraphUse::Auto(Arc::new(GraphNotice::new(|line| panic!("{line}"))))
}

fn gpus_with(
    driver: Arc<dyn Driver>,
    products: ProductSource,
    attention: AttentionSource,
    graphs: GraphUse,
) -> Arc<Gpus> {
    let code = CompiledOnce(CompiledKernels::new(compiler(), cache_of_tests(), CodeForm::Ptx));
    let gpus = Gpus::new(driver, DeviceKind::CUDA, Box::new(code), None);
    let gpus = gpus.unwrap_or_else(|error| panic!("{error}"));
    Arc::new(gpus.with_products(products).with_attention(attention).with_graphs(graphs))
}

/// NVRTC of the folder that `PLEACH_CUDA` names.
///
/// # Panics
/// The variable is not set, or the folder has no NVRTC.
pub fn compiler() -> Compiler {
    let folder = std::env::var_os(FOLDER);
    let folder = folder.unwrap_or_else(|| panic!("{FOLDER} must name a folder with NVRTC: run tools/install-cuda.sh"));
    let compiler = Compiler::open(&Search::only([PathBuf::from(folder)]));
    compiler.unwrap_or_else(|error| panic!("{FOLDER}: {error}"))
}

/// Compiled kernels of all test programs. As the cache of a command: `pleach/kernels` in `$XDG_CACHE_HOME`.
pub fn cache_of_tests() -> Cache {
    Cache::in_folder(std::env::temp_dir().join("pleach-of-tests/pleach/kernels"))
}

/// Kernels that one thread compiles, or reads, for all of a test program.
struct CompiledOnce(CompiledKernels);

impl KernelCode for CompiledOnce {
    fn origin(&self, capability: Capability) -> CodeOrigin {
        self.0.origin(capability)
    }

    fn code(&self, capability: Capability) -> Result<GpuCode, DeviceError> {
        static CODE: LazyLock<Mutex<BTreeMap<Capability, GpuCode>>> = LazyLock::new(Mutex::default);
        let mut all = lock(&CODE);
        if let Some(code) = all.get(&capability) {
            return Ok(code.clone());
        }
        let code = self.0.code(capability)?;
        all.insert(capability, code.clone());
        Ok(code)
    }
}

/// Fresh ranks for `setup` on `gpus`, all on this host.
pub fn gpu_engine(setup: &Setup, gpus: &Arc<Gpus>) -> GpuEngine {
    let host: Vec<_> = setup.mesh.ranks().collect();
    GpuEngine::new(thread_engine(setup), &host, Arc::clone(gpus))
}
