//! The GPUs of this machine that ranks use: found and judged before work starts, opened when the first rank asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use config::Products;
use cuda::{GraphUse, LIBRARY_RANK_BYTES};
use device::{DeviceError, DeviceKind};
use gpu::{Capability, DeviceFacts, Driver, Gpu, ProductLibrary};
use gpu_rank::{NCCL_RANK_BYTES, PeerKernels, named, remedy};
use nvidia::driver::{OLDEST_CAPABILITY, OLDEST_CUDA};
use sync::lock;

use crate::engine::attention_source::{AttentionSource, RankAttention};
use crate::engine::gpu_code::{GpuCode, KernelCode, ToCompile};
use crate::engine::gpu_error::GpuError;
use crate::engine::gpu_memory::GpuMemory;
use crate::engine::kernel_choice::GivenChoices;
use crate::engine::product_source::{NoProductLibrary, ProductSource};

/// Memory of a GPU that a process takes for its context and for loaded libraries, where it has not opened the GPU yet:
/// an estimate.
pub const CONTEXT_BYTES: u64 = 600 << 20;

/// Memory of a GPU that a rank takes in addition to its arena: its kernels, and what allocations are rounded up to. An
/// estimate.
pub const RANK_MARGIN_BYTES: u64 = 64 << 20;

/// The kernels or algorithms that may compute products in blocks of 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlocksBy {
    /// Pleach's kernels.
    #[default]
    Kernels,
    /// These, or those algorithms of the library of products that were chosen.
    KernelsOrLibrary,
}

/// Memory of a GPU that a rank takes in addition to its arena, with attention by pleach's kernels.
fn rank_margin_bytes(products: Products, blocks: BlocksBy) -> u64 {
    match (products, blocks) {
        (Products::Blocks16, BlocksBy::Kernels) | (Products::Chained | Products::Pairs | Products::Blocks8, _) => {
            RANK_MARGIN_BYTES
        }
        (Products::Blocks16, BlocksBy::KernelsOrLibrary) | (Products::Device, _) => {
            RANK_MARGIN_BYTES + LIBRARY_RANK_BYTES
        }
    }
}

/// Memory of a GPU that a process with one rank takes in addition to the arena, where it has not opened the GPU yet;
/// NCCL takes [`NCCL_RANK_BYTES`] more.
pub fn own_process_margin_bytes(products: Products, blocks: BlocksBy) -> u64 {
    CONTEXT_BYTES + rank_margin_bytes(products, blocks)
}

/// A GPU that is open in this process, with the kernels that its ranks launch.
pub struct OpenGpu {
    pub gpu: Arc<dyn Gpu>,
    pub code: GpuCode,
    /// Kernels of collectives, loaded.
    pub collectives: Arc<PeerKernels>,
}

/// See the top of the file.
pub struct Gpus {
    pub(crate) driver: Arc<dyn Driver>,
    kind: DeviceKind,
    /// Of those that ranks use.
    facts: Vec<DeviceFacts>,
    code: Box<dyn KernelCode>,
    pub(crate) products: ProductSource,
    pub(crate) choices: GivenChoices,
    blocks: OnceLock<BlocksBy>,
    pub(crate) attention: AttentionSource,
    graphs: GraphUse,
    contexts: Mutex<BTreeMap<usize, Arc<dyn Gpu>>>,
    opened: Mutex<BTreeMap<usize, Arc<OpenGpu>>>,
}

/// The first `wanted` GPUs of `driver`, or all.
///
/// # Errors
/// A driver or a GPU that cannot run the kernels.
pub fn usable_gpus(driver: &dyn Driver, wanted: Option<usize>) -> Result<Vec<DeviceFacts>, GpuError> {
    let version = driver.version().map_err(|cause| GpuError::Driver { cause })?;
    if version < OLDEST_CUDA {
        return Err(GpuError::OldDriver(version));
    }
    let mut facts = driver.devices().map_err(|cause| GpuError::Driver { cause })?;
    if facts.is_empty() {
        return Err(GpuError::NoGpu);
    }
    if let Some(wanted) = wanted {
        if wanted > facts.len() {
            return Err(GpuError::FewGpus { wanted, there: facts.len() });
        }
        facts.truncate(wanted);
    }
    if let Some(old) = facts.iter().find(|facts| facts.capability < OLDEST_CAPABILITY) {
        return Err(GpuError::OldGpu { gpu: named(old), capability: old.capability });
    }
    Ok(facts)
}

/// Compares the driver with the one that code for these GPUs needs.
fn check_code(driver: &dyn Driver, code: &dyn KernelCode, facts: &[DeviceFacts]) -> Result<(), GpuError> {
    let version = driver.version().map_err(|cause| GpuError::Driver { cause })?;
    let mut origins = facts.iter().map(|facts| code.origin(facts.capability));
    let refused = origins.find(|origin| version < origin.oldest_cuda());
    refused.map_or(Ok(()), |code| Err(GpuError::OldDriverForCode { driver: version, code }))
}

impl Gpus {
    /// The first `wanted` GPUs of `driver`, or all.
    ///
    /// # Errors
    /// A driver or a GPU that cannot run the kernels.
    pub fn new(
        driver: Arc<dyn Driver>,
        kind: DeviceKind,
        code: Box<dyn KernelCode>,
        wanted: Option<usize>,
    ) -> Result<Gpus, GpuError> {
        let facts = usable_gpus(&*driver, wanted)?;
        check_code(&*driver, &*code, &facts)?;
        Ok(Gpus {
            driver,
            kind,
            facts,
            code,
            products: ProductSource::None,
            choices: GivenChoices::new(),
            blocks: OnceLock::new(),
            attention: AttentionSource::None,
            graphs: GraphUse::Off,
            contexts: Mutex::default(),
            opened: Mutex::default(),
        })
    }

    /// The same GPUs with a library of products.
    #[must_use]
    pub fn with_products(self, products: ProductSource) -> Gpus {
        Gpus { products, ..self }
    }

    /// The same GPUs with a library of attention, for runs with products of the device.
    #[must_use]
    pub fn with_attention(self, attention: AttentionSource) -> Gpus {
        Gpus { attention, ..self }
    }

    /// The same GPUs, whose ranks launch kernels as `graphs` say. Without this call they launch them one by one.
    #[must_use]
    pub fn with_graphs(self, graphs: GraphUse) -> Gpus {
        Gpus { graphs, ..self }
    }

    /// How ranks launch kernels.
    pub(crate) fn graphs(&self) -> GraphUse {
        self.graphs.clone()
    }

    /// Compares the order of `products` with those of the GPUs, and looks for the library that they need, if they need
    /// one.
    ///
    /// # Errors
    /// An order that tensor cores of a GPU do not have; [`GpuError::NoProducts`].
    pub fn check_products(&self, products: Products) -> Result<(), GpuError> {
        self.facts.iter().try_for_each(|facts| cuda::check_products(products, facts.capability))?;
        match (products, self.blocks()) {
            (Products::Blocks16, BlocksBy::KernelsOrLibrary) => match self.products.find() {
                Ok(_) => Ok(()),
                Err(NoProductLibrary::Library(missing)) => Err(GpuError::NoEqualAlgorithms(missing)),
                Err(none @ NoProductLibrary::None) => Err(none.into()),
            },
            (Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8, _) => Ok(()),
            (Products::Device, _) => Ok(self.products.find().map(|_| ())?),
        }
    }

    /// Ranks multiply in blocks of 16 by these. The first call counts.
    pub fn multiply_blocks_by(&self, blocks: BlocksBy) {
        self.blocks.get_or_init(|| blocks);
    }

    /// The kernels or algorithms that may compute products in blocks of 16.
    pub(crate) fn blocks(&self) -> BlocksBy {
        self.blocks.get().copied().unwrap_or_default()
    }

    /// The work of the compiler before ranks compute, for the first GPU that has any; `None` where all kernels are
    /// there.
    pub fn to_compile(&self) -> Option<ToCompile> {
        self.facts.iter().find_map(|facts| self.code.to_compile(facts.capability))
    }

    /// A line about code of an older GPU that a GPU runs; `None` where all have their own.
    pub fn substitute(&self) -> Option<String> {
        self.facts.iter().find_map(|facts| self.code.substitute(facts.capability))
    }

    /// The library of products for a rank on the open GPU of this index.
    pub(crate) fn product_library(
        &self,
        index: usize,
        gpu: &Arc<dyn Gpu>,
    ) -> Result<Box<dyn ProductLibrary>, DeviceError> {
        self.products.open(&self.facts[index], gpu)
    }

    /// The library of attention for a rank on the open GPU of this index, where there is one.
    pub(crate) fn attention_library(
        &self,
        index: usize,
        gpu: &Arc<dyn Gpu>,
    ) -> Result<Option<RankAttention>, DeviceError> {
        self.attention.open(&self.facts[index], gpu)
    }

    /// Memory of a GPU that a rank takes in addition to its arena.
    fn rank_margin_bytes(&self, products: Products) -> u64 {
        let of_attention = match products {
            Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8 => 0,
            Products::Device => self.attention.rank_bytes(),
        };
        rank_margin_bytes(products, self.blocks()) + of_attention
    }

    /// The kind of device that they are.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Facts of the GPUs that ranks use.
    pub fn facts(&self) -> &[DeviceFacts] {
        &self.facts
    }

    /// The GPU, as an index of [`Gpus::facts`], of rank number `local` of this host, counted from 0.
    pub fn of_rank(&self, local: usize) -> usize {
        local % self.facts.len()
    }

    /// The kernels for GPUs of `capability`.
    pub(crate) fn code(&self, capability: Capability) -> Result<GpuCode, DeviceError> {
        self.code.code(capability)
    }

    /// The context of a GPU in this process.
    pub(crate) fn context(&self, index: usize) -> Result<Arc<dyn Gpu>, DeviceError> {
        let mut contexts = lock(&self.contexts);
        if let Some(gpu) = contexts.get(&index) {
            return Ok(Arc::clone(gpu));
        }
        let facts = &self.facts[index];
        let gpu = self.driver.open(facts.ordinal).map_err(|cause| DeviceError::Accelerator {
            what: format!("open {}", named(facts)),
            cause: format!("{cause}; {}", remedy(cause.kind)).into(),
        })?;
        contexts.insert(index, Arc::clone(&gpu));
        Ok(gpu)
    }

    /// Opens a GPU and loads its kernels, or returns it where it is open.
    ///
    /// # Errors
    /// The driver's and the compiler's.
    pub fn open(&self, index: usize) -> Result<Arc<OpenGpu>, DeviceError> {
        let mut opened = lock(&self.opened);
        if let Some(open) = opened.get(&index) {
            return Ok(Arc::clone(open));
        }
        let gpu = self.context(index)?;
        let code = self.code.code(self.facts[index].capability)?;
        let collectives = Arc::new(PeerKernels::load(&*gpu, &code.collectives)?);
        let open = Arc::new(OpenGpu { gpu, code, collectives });
        opened.insert(index, Arc::clone(&open));
        Ok(open)
    }

    /// The need of a host's ranks on each GPU: `arena_bytes` are those of the host's ranks, in order, and `processes`
    /// the processes that have them, which multiply by `products`.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory(
        &self,
        arena_bytes: &[u64],
        processes: usize,
        products: Products,
    ) -> Result<Vec<GpuMemory>, DeviceError> {
        let used = arena_bytes.len().min(self.facts.len());
        let memory_of = |index: usize| {
            let own = arena_bytes.iter().enumerate().filter(|(local, _)| self.of_rank(*local) == index);
            let (ranks, arena_bytes) = own.fold((0, 0u64), |(ranks, sum), (_, bytes)| (ranks + 1, sum + bytes));
            let free = self.context(index)?.free_memory().map_err(|cause| DeviceError::Accelerator {
                what: format!("{}: ask for its memory", named(&self.facts[index])),
                cause: Box::new(cause),
            })?;
            // This process has its context.
            let contexts = processes.min(ranks).saturating_sub(1) as u64;
            Ok(GpuMemory {
                gpu: named(&self.facts[index]),
                ranks,
                arena_bytes,
                margin_bytes: contexts * CONTEXT_BYTES + ranks as u64 * self.rank_margin_bytes(products),
                free_bytes: free.free_bytes,
                total_bytes: free.total_bytes,
            })
        };
        (0..used).map(memory_of).collect()
    }

    /// Checks that the GPU of rank number `local` of this host has the memory for it alone, and for NCCL.
    ///
    /// # Errors
    /// The errors of [`Gpus::check_memory`].
    pub fn check_memory_of_one(&self, local: usize, arena_bytes: u64, products: Products) -> Result<(), GpuError> {
        let index = self.of_rank(local);
        let free = self.context(index)?.free_memory().map_err(|cause| GpuError::Driver { cause })?;
        let memory = GpuMemory {
            gpu: named(&self.facts[index]),
            ranks: 1,
            arena_bytes,
            margin_bytes: self.rank_margin_bytes(products) + NCCL_RANK_BYTES,
            free_bytes: free.free_bytes,
            total_bytes: free.total_bytes,
        };
        if memory.needed_bytes() > memory.free_bytes { Err(GpuError::TooSmall(memory)) } else { Ok(()) }
    }

    /// Checks that every GPU has the memory for its ranks: what is free, or all where other processes of the run may
    /// have taken theirs.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`], and the driver's.
    pub fn check_memory(&self, arena_bytes: &[u64], processes: usize, products: Products) -> Result<(), GpuError> {
        for memory in self.memory(arena_bytes, processes, products)? {
            let there = if processes > 1 { memory.total_bytes } else { memory.free_bytes };
            if memory.needed_bytes() > there {
                return Err(GpuError::TooSmall(memory));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gpu::DriverError;
    use softgpu::{Settings, SoftDriver};

    use super::*;
    use crate::engine::kernel_archive::ArchivedKernels;

    /// A driver of a version, with GPUs that are in software.
    struct Listed {
        version: u32,
        gpus: SoftDriver,
    }

    impl Driver for Listed {
        fn version(&self) -> Result<u32, DriverError> {
            Ok(self.version)
        }

        fn devices(&self) -> Result<Vec<DeviceFacts>, DriverError> {
            self.gpus.devices()
        }

        fn open(&self, ordinal: usize) -> Result<Arc<dyn Gpu>, DriverError> {
            self.gpus.open(ordinal)
        }
    }

    /// GPUs of these capabilities under a driver of `version`.
    fn listed(version: u32, capabilities: &[(u32, u32)]) -> Listed {
        let settings = |(major, minor): &(u32, u32)| Settings {
            capability: Capability { major: *major, minor: *minor },
            ..Settings::default()
        };
        Listed { version, gpus: SoftDriver::of(capabilities.iter().map(settings)) }
    }

    #[test]
    fn drivers_and_gpus_that_cannot_run_the_kernels_are_refused_with_a_remedy() {
        let refused = |driver: Listed, wanted| match usable_gpus(&driver, wanted) {
            Ok(facts) => panic!("{facts:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(
            refused(listed(12_030, &[(9, 0)]), None),
            "the driver supports CUDA 12.3, and pleach needs 12.4; install driver 550 or newer, or write run.device = \
             \"cpu\""
        );
        assert_eq!(
            refused(listed(13_000, &[]), None),
            "run.device = \"cuda\" needs a GPU, and the driver lists none; write run.device = \"cpu\""
        );
        assert_eq!(
            refused(listed(13_000, &[(9, 0), (9, 0)]), Some(3)),
            "run.gpus = 3 must be at most the GPUs of this machine; got 2; use 2, or leave it out"
        );
        let old = refused(listed(13_000, &[(9, 0), (7, 5)]), None);
        let said = "has compute capability sm_75, and kernels need sm_80 or newer; use run.gpus to leave it out, or \
                    write run.device = \"cpu\"";
        assert!(old.starts_with("GPU 1 (soft GPU (sm_75") && old.ends_with(said), "{old}");
        // The old one is left out.
        let facts = usable_gpus(&listed(13_000, &[(9, 0), (7, 5)]), Some(1)).expect("the first");
        assert_eq!(facts.len(), 1);
    }

    #[test]
    fn a_driver_that_does_not_load_the_code_is_refused_with_the_version_that_it_needs() {
        let gpus = |version| {
            let code = ArchivedKernels::read(&ArchivedKernels::of_no_target()).expect("an archive");
            Gpus::new(Arc::new(listed(version, &[(9, 0)])), DeviceKind::CUDA, Box::new(code), None)
        };
        let said = gpus(12_080).err().map(|error| error.to_string()).expect("PTX of 13.0");
        assert_eq!(
            said,
            "the driver supports CUDA 12.8, and PTX of NVRTC 13.0 needs 13.0; install driver 580 or newer, or put an NVRTC \
             of CUDA 12 (12.8 or later) first in PLEACH_CUDA (`pip install nvidia-cuda-nvrtc-cu12`), or write run.device = \
             \"cpu\""
        );
        assert!(gpus(13_000).is_ok());
    }

    #[test]
    fn a_library_of_products_takes_memory_of_every_rank() {
        let gpus = Gpus::new(
            Arc::new(listed(13_000, &[(9, 0)])),
            DeviceKind::CUDA,
            Box::new(ArchivedKernels::read(&ArchivedKernels::of_no_target()).expect("an archive")),
            None,
        );
        let gpus = gpus.expect("a GPU");
        let margin = |products| gpus.memory(&[1 << 20; 3], 1, products).expect("memory")[0].margin_bytes;
        assert_eq!(margin(Products::Blocks16), 3 * (64 << 20));
        assert_eq!(margin(Products::Device), 3 * ((64 + 32 + 96) << 20));
        let (name, workspace_bytes, open) = ("attention", 16 << 20, Box::new(|_| None));
        let gpus = gpus.with_attention(AttentionSource::Given { name, workspace_bytes, open });
        let margin = |products| gpus.memory(&[1 << 20; 3], 1, products).expect("memory")[0].margin_bytes;
        assert_eq!(margin(Products::Blocks16), 3 * (64 << 20));
        assert_eq!(margin(Products::Device), 3 * ((64 + 32 + 96 + 16) << 20));
        assert!(gpus.check_products(Products::Blocks16).is_ok() && gpus.check_products(Products::Device).is_err());
        gpus.multiply_blocks_by(BlocksBy::KernelsOrLibrary);
        assert_eq!(gpus.memory(&[1 << 20; 3], 1, Products::Blocks16).expect("memory")[0].margin_bytes, 3 * (192 << 20));
        assert!(gpus.check_products(Products::Blocks16).is_err());
    }

    #[test]
    fn the_order_of_products_is_compared_with_every_gpu() {
        let code = ArchivedKernels::read(&ArchivedKernels::of_no_target()).expect("an archive");
        let driver = Arc::new(listed(13_000, &[(9, 0), (8, 0)]));
        let gpus = Gpus::new(driver, DeviceKind::CUDA, Box::new(code), None).expect("two GPUs");
        assert!(gpus.check_products(Products::Chained).is_ok());
        let refused = |products| gpus.check_products(products).expect_err("refused").to_string();
        let rule = "must be supported by the device; a GPU";
        let [blocks8, blocks16] = [Products::Blocks8, Products::Blocks16].map(refused);
        let later = format!(
            "train.products = \"blocks8\" {rule} of compute capability 9.0 or later refuses it; use \"blocks16\""
        );
        let before =
            format!("train.products = \"blocks16\" {rule} before compute capability 9.0 refuses it; use \"blocks8\"");
        assert_eq!([blocks8, blocks16], [later, before]);
    }

    #[test]
    fn a_gpu_that_is_too_small_for_its_ranks_is_named_with_its_memory() {
        let large = Settings::default();
        let small = Settings { memory_bytes: 1 << 30, ..Settings::default() };
        let code = ArchivedKernels::read(&ArchivedKernels::of_no_target()).expect("an archive");
        let driver = Arc::new(SoftDriver::of([large, small]));
        let gpus = Gpus::new(driver, DeviceKind::CUDA, Box::new(code), None).expect("two GPUs");
        // Ranks 0 and 2 are on the large one, rank 1 on the small one: of its memory, 64 MiB are a rank's own margin.
        let most = (1u64 << 30) - RANK_MARGIN_BYTES;
        let chained = Products::Chained;
        gpus.check_memory(&[2 << 30, most, 2 << 30], 1, chained).expect("both fit");
        let error =
            gpus.check_memory(&[2 << 30, most + 1, 2 << 30], 1, chained).expect_err("a byte too many").to_string();
        assert_eq!(
            error,
            "GPU 1 (soft GPU (sm_90a)): 1 rank with 1.01 GB of arenas and 67.1 MB more, of 1.07 GB free (1.07 GB in \
             all) does not fit; use more GPUs, or a layout whose ranks need less, as `pleach check` names it"
        );
        // A context of another process takes its part, too.
        let error = gpus.check_memory(&[5 << 30, 1, 2_700 << 20], 2, chained).expect_err("two contexts").to_string();
        assert!(error.contains("2 ranks with 8.20 GB of arenas and 763 MB more"), "{error}");
    }
}
