//! A GPU as a device: one allocation for the arena, a stream of the driver for each stream of the rank.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use config::Products;
use device::{ArenaSize, Device, DeviceError, DeviceKind, KeptTimes, NumericsChoice, Op, Stream, StreamEvent, Tensor};
use gpu::{
    Arguments, AttentionLibrary, Capability, DevicePointer, DriverError, FunctionHandle, Gpu, ModuleHandle,
    PinnedHandle, ProductLibrary, StreamHandle, TensorMap, TensorTiles,
};
use sync::lock;

use crate::code::CompiledSource;
use crate::failure::{accelerator_error, described};
use crate::graphs::{GraphUse, Kernel};
use crate::launch::{Code as LoadedCode, Launch, ProductTile, Site, launches, library_attention, library_product};
use crate::library_attention::AttentionLauncher;
use crate::library_products::{LibraryProducts, Others};
use crate::owned::{Owned, allocate_pinned, load};
use crate::pinned::{PinnedRing, RING_BYTES};
use crate::rank_memory::RankMemory;
use crate::reader::{CudaReader, READER_BYTES};
use crate::run_product::{ChosenAlgorithms, ChosenTiles, KernelProduct};
use crate::submitter::Submitter;

/// Bytes of dynamic shared memory that a block has without an attribute: of 48 KiB, a kernel declares up to 16.
const PLAIN_SHARED_BYTES: u32 = 32 << 10;

/// Whether a library has submitted the work of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Submitted {
    Yes,
    No,
}

/// The tiles of products by warpgroups.
enum Tiles {
    /// The tiles that are estimated to be the fastest.
    Estimated,
    /// One for all products.
    Same(ProductTile),
    /// The tiles that were the fastest when they were timed.
    Chosen(Arc<ChosenTiles>),
}

/// Tensor maps and attributes of functions that launches reuse.
#[derive(Default)]
struct Prepared {
    /// Tensor maps.
    maps: HashMap<TensorTiles, TensorMap>,
    /// Dynamic shared memory that kernels are permitted.
    shared_bytes: HashMap<FunctionHandle, u32>,
}

/// Executes operations as kernels on streams of a GPU. The bits are those of `cpu::CpuDevice`, whatever the GPU and its
/// streams, but for products and attention by libraries.
pub struct CudaDevice {
    memory: Arc<RankMemory>,
    /// Holds the functions.
    _modules: Vec<Owned<ModuleHandle>>,
    functions: HashMap<&'static str, FunctionHandle>,
    code: LoadedCode,
    submitter: Arc<Submitter>,
    prepared: Mutex<Prepared>,
    /// Memory for reads.
    pinned: Owned<PinnedHandle>,
    products: Products,
    /// Of products by warpgroups.
    tiles: Tiles,
    /// Computes `Products::Device`.
    library: Option<LibraryProducts>,
    /// Computes causal attention in such a run.
    launcher: Option<AttentionLauncher>,
}

impl CudaDevice {
    /// Bytes of pinned memory of a rank with a reader.
    pub const PINNED_BYTES: usize = RING_BYTES + 2 * READER_BYTES;

    /// Allocates a zeroed arena with its memory of the host, and loads the kernels.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::OutOfHostMemory`], and other failures of the driver by name.
    pub fn open(
        gpu: Arc<dyn Gpu>,
        code: &[CompiledSource],
        size: impl Into<ArenaSize>,
    ) -> Result<CudaDevice, DeviceError> {
        let memory = Arc::new(RankMemory::allocate(Arc::clone(&gpu), size.into())?);
        let (mut modules, mut functions) = (vec![], HashMap::new());
        for CompiledSource { source, code } in code {
            let named = |cause| accelerator_error(format!("load the kernels of {}.cu", source.name), cause);
            let module = load(&gpu, code.image()).map_err(named)?;
            for entry in source.entries {
                functions.insert(*entry, gpu.function(module.handle(), entry).map_err(named)?);
            }
            modules.push(module);
        }
        let pinned_error =
            |cause| accelerator_error(format!("allocate {} bytes of pinned memory", Self::PINNED_BYTES), cause);
        let ring = PinnedRing::new(&gpu, RING_BYTES).map_err(pinned_error)?;
        let pinned = allocate_pinned(&gpu, READER_BYTES).map_err(pinned_error)?;
        let submitter = Arc::new(Submitter::new(Arc::clone(&memory), ring));
        let device = CudaDevice {
            memory,
            _modules: modules,
            functions,
            code: LoadedCode::of(code),
            submitter,
            prepared: Mutex::default(),
            pinned,
            products: Products::Chained,
            tiles: Tiles::Estimated,
            library: None,
            launcher: None,
        };
        device.synchronize()?;
        Ok(device)
    }

    /// The same device with products in another order, which [`accepts`] must have. Products of the device need
    /// [`CudaDevice::with_library`] instead.
    pub fn with_products(mut self, products: Products) -> CudaDevice {
        self.products = products;
        self
    }

    /// The same device, whose products by warpgroups take this tile where it has a kernel for them. Tiles change no
    /// bit.
    pub fn with_tile(mut self, tile: ProductTile) -> CudaDevice {
        self.tiles = Tiles::Same(tile);
        self
    }

    /// The same device, whose products by warpgroups take the tiles that were chosen for them. Tiles change no bit.
    pub fn with_tiles(mut self, tiles: Arc<ChosenTiles>) -> CudaDevice {
        self.tiles = Tiles::Chosen(tiles);
        self
    }

    /// The same device with products by a library, by algorithms that were chosen before: [`Products::Device`].
    ///
    /// # Errors
    /// No memory for the workspace.
    pub fn with_library(
        self,
        library: Box<dyn ProductLibrary>,
        chosen: Arc<ChosenAlgorithms>,
    ) -> Result<CudaDevice, DeviceError> {
        self.with_library_for(Products::Device, library, (chosen, Others::ByFirst))
    }

    /// The same device with products in blocks of 16, of which a library computes those that have a chosen algorithm.
    ///
    /// # Errors
    /// No memory for the workspace.
    pub fn with_equal_algorithms(
        self,
        library: Box<dyn ProductLibrary>,
        chosen: Arc<ChosenAlgorithms>,
    ) -> Result<CudaDevice, DeviceError> {
        self.with_library_for(Products::Blocks16, library, (chosen, Others::ByKernels))
    }

    fn with_library_for(
        mut self,
        products: Products,
        library: Box<dyn ProductLibrary>,
        chosen: (Arc<ChosenAlgorithms>, Others),
    ) -> Result<CudaDevice, DeviceError> {
        let name = library.name();
        let by_library = LibraryProducts::new(library, chosen, &self.memory.gpu)
            .map_err(|cause| accelerator_error(format!("allocate the workspace of {name}"), cause))?;
        self.library = Some(by_library);
        Ok(self.with_products(products))
    }

    /// The same device with attention by a library, where queries see the keys up to their own. All intervals of
    /// attention without places and without a window must say so, but for rows that nobody reads. Attention that needs
    /// a larger workspace is computed in parts.
    ///
    /// # Errors
    /// No memory for the workspace.
    pub fn with_attention(
        mut self,
        library: Box<dyn AttentionLibrary>,
        workspace_bytes: usize,
    ) -> Result<CudaDevice, DeviceError> {
        let name = library.name();
        let launcher = AttentionLauncher::new(library, &self.memory.gpu, workspace_bytes)
            .map_err(|cause| accelerator_error(format!("allocate the workspace of {name}"), cause))?;
        self.launcher = Some(launcher);
        Ok(self)
    }

    /// The GPU, which other ranks may have opened too.
    pub fn gpu(&self) -> &Arc<dyn Gpu> {
        &self.memory.gpu
    }

    /// The address of offset 0 of the arena, which is on the GPU only where no memory of the host comes first.
    pub fn arena(&self) -> DevicePointer {
        self.memory.base()
    }

    /// The first offset after the arena.
    pub fn arena_bytes(&self) -> usize {
        self.memory.end_bytes
    }

    /// The same device, which launches kernels as `graphs` say. Without this call it launches them one by one.
    pub fn with_graphs(self, graphs: GraphUse) -> CudaDevice {
        self.submitter.use_graphs(graphs);
        self
    }

    /// The driver's stream of `stream`, which is destroyed with the device. For work on it see
    /// [`CudaDevice::hand_over`].
    pub fn stream(&self, stream: Stream) -> StreamHandle {
        self.memory.stream(stream)
    }

    /// The driver's stream of `stream`, for a piece of work of somebody else after all that was submitted. Points that
    /// are recorded later include it.
    ///
    /// # Errors
    /// The driver's, of launches that were gathered.
    pub fn hand_over(&self, stream: Stream) -> Result<StreamHandle, DeviceError> {
        self.submitter.hand_over(stream)
    }

    /// Launches what was gathered until `event`. Who is to wait for it on another thread calls this first on its own,
    /// so that it does not depend on that thread which launches are made together.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch_until(&self, event: StreamEvent) -> Result<(), DeviceError> {
        self.submitter.launch_until(event)
    }

    /// A reader of the rank's memory for another thread.
    ///
    /// # Errors
    /// The driver's.
    pub fn reader(&self) -> Result<CudaReader, DeviceError> {
        CudaReader::new(Arc::clone(&self.submitter))
            .map_err(|cause| accelerator_error("open a reader of the rank's memory".into(), cause))
    }

    /// A launch with its function and all arguments.
    fn kernel(&self, op: &Op, launch: Launch) -> Result<Kernel, DeviceError> {
        let Some(function) = self.functions.get(launch.entry).copied() else {
            let what = format!("the kernel {} is in no source that was loaded", launch.entry);
            return Err(DeviceError::Shape { op: op.name(), what });
        };
        self.prepared(function, launch, op).map_err(|cause| accelerator_error(described(op), cause))
    }

    fn prepared(&self, function: FunctionHandle, launch: Launch, op: &Op) -> Result<Kernel, DriverError> {
        let Launch { entry: _, shape, maps, arguments, changing } = launch;
        let mut prepared = lock(&self.prepared);
        let permitted = prepared.shared_bytes.entry(function).or_insert(PLAIN_SHARED_BYTES);
        if shape.shared_bytes > *permitted {
            self.memory.gpu.allow_shared(function, shape.shared_bytes)?;
            *permitted = shape.shared_bytes;
        }
        if maps.is_empty() {
            return Ok(Kernel { op: *op, function, shape, arguments, changing });
        }
        let mut all = Arguments::new();
        for tiles in &maps {
            all = all.with(prepared.map(&*self.memory.gpu, tiles)?.bytes());
        }
        let all = arguments.values().iter().fold(all, |all, value| all.with(value));
        Ok(Kernel { op: *op, function, shape, arguments: all, changing: changing << maps.len() })
    }

    /// The tile of a product that does not have the estimated one.
    fn tile(&self, op: &Op) -> Option<ProductTile> {
        match &self.tiles {
            Tiles::Estimated => None,
            Tiles::Same(tile) => Some(*tile),
            Tiles::Chosen(tiles) => tiles.get(&KernelProduct::of(op)?).copied(),
        }
    }

    /// Submits an operation to the compute stream, with this tile where a kernel has it.
    pub(crate) fn submit_with_tile(&self, op: &Op, tile: Option<ProductTile>) -> Result<(), DeviceError> {
        let site = Site { tile, ..self.memory.site(self.products, self.code) };
        self.submit_kernels(Stream::Compute, op, &site)
    }

    fn submit_kernels(&self, stream: Stream, op: &Op, site: &Site) -> Result<(), DeviceError> {
        let launches = launches(op, site)?.into_iter();
        let kernels = launches.map(|launch| self.kernel(op, launch)).collect::<Result<Vec<Kernel>, _>>()?;
        self.submitter.submit(stream, op, kernels)
    }

    /// Submits a product to the library of a device that has one: not other operations, nor products that the
    /// library does not have.
    fn submit_to_library(&self, stream: Stream, op: &Op, site: &Site) -> Result<Submitted, DeviceError> {
        let Some((product, places)) = library_product(op, site)? else { return Ok(Submitted::No) };
        let Some(library) = &self.library else {
            let what = "products = \"device\" needs a library of products, and this device has none".into();
            return Err(DeviceError::Shape { op: op.name(), what });
        };
        let failed = |cause| accelerator_error(format!("{}: {}", library.name(), described(op)), cause);
        let Some(algorithm) = library.algorithm(stream, &product).map_err(failed)? else { return Ok(Submitted::No) };
        self.submitter.launch_gathered(stream)?;
        self.submitter.count(stream, op);
        library.multiply(self.memory.stream(stream), &product, &algorithm, places).map_err(failed)?;
        Ok(Submitted::Yes)
    }

    /// Submits attention to the library of a device that has one: not other operations, nor attention that the library
    /// does not have. Other streams have no workspace.
    fn submit_attention(&self, stream: Stream, op: &Op, site: &Site) -> Result<Submitted, DeviceError> {
        let Some(launcher) = self.launcher.as_ref().filter(|_| stream == Stream::Compute) else {
            return Ok(Submitted::No);
        };
        let Some(whole) = library_attention(op, site)? else { return Ok(Submitted::No) };
        let failed = |cause| accelerator_error(format!("{}: {}", launcher.name(), described(op)), cause);
        if !launcher.has(&whole.attention).map_err(failed)? {
            return Ok(Submitted::No);
        }
        self.submitter.launch_gathered(stream)?;
        self.submitter.count(stream, op);
        launcher.attend(self.memory.stream(stream), &whole).map_err(failed)?;
        Ok(Submitted::Yes)
    }

    /// Submits an operation whose product the library computes, if it has a chosen algorithm, or pleach's kernels.
    fn submit_to_either(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let mut each = op.unfused();
        let Some(first) = each.next() else { return Ok(()) };
        // Libraries have no place in memory of the host.
        if self.memory.host.work(&first)?.is_some() {
            return self.submit_one(stream, op);
        }
        let site = self.memory.site(self.products, self.code);
        match self.submit_to_library(stream, &first, &site)? {
            Submitted::Yes => each.try_for_each(|op| self.submit_one(stream, &op)),
            Submitted::No => self.submit_one(stream, op),
        }
    }

    /// Submits an operation that libraries have as it is, or do not have.
    fn submit_one(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        if let Some(work) = self.memory.host.work(op)? {
            op.operands()
                .reads()
                .chain(op.operands().writes())
                .try_for_each(|tensor| tensor.inside(self.memory.end_bytes))?;
            self.submitter.launch_gathered(stream)?;
            self.submitter.count(stream, op);
            let RankMemory { gpu, host, .. } = &*self.memory;
            let submitted = host.submit(&**gpu, self.memory.stream(stream), self.memory.base(), work);
            return submitted.map_err(|cause| accelerator_error(described(op), cause));
        }
        let site = Site { tile: self.tile(op), ..self.memory.site(self.products, self.code) };
        if self.products == Products::Device
            && (self.submit_to_library(stream, op, &site)? == Submitted::Yes
                || self.submit_attention(stream, op, &site)? == Submitted::Yes)
        {
            return Ok(());
        }
        self.submit_kernels(stream, op, &site)
    }
}

impl Prepared {
    /// The map of these tiles.
    fn map(&mut self, gpu: &dyn Gpu, tiles: &TensorTiles) -> Result<TensorMap, DriverError> {
        if let Some(map) = self.maps.get(tiles) {
            return Ok(*map);
        }
        let map = gpu.tensor_map(tiles)?;
        self.maps.insert(tiles.clone(), map);
        Ok(map)
    }
}

impl Device for CudaDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        match self.products {
            // A library has products alone.
            Products::Device => op.unfused().try_for_each(|op| self.submit_one(stream, &op)),
            Products::Blocks16 if self.library.is_some() => self.submit_to_either(stream, op),
            Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8 => self.submit_one(stream, op),
        }
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.memory.check_host_copy("write", to, from.len())?;
        if let Some((host, offset_bytes)) = self.memory.host.place(to) {
            self.submitter.launch_gathered(stream)?;
            let gpu = &self.memory.gpu;
            let written = gpu.synchronize(self.memory.stream(stream));
            let written = written.and_then(|()| gpu.write_pinned(host, offset_bytes, from));
            return written.map_err(|cause| accelerator_error(format!("write {to:?} in memory of the host"), cause));
        }
        self.submitter.upload(stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.synchronize()?;
        self.upload(Stream::Compute, to, from)?;
        self.synchronize()
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.check_host_copy("read", from, to.len())?;
        self.synchronize()?;
        self.memory
            .download(self.memory.stream(Stream::Compute), self.pinned.handle(), READER_BYTES, from, to)
            .map_err(|cause| accelerator_error(format!("read {from:?}"), cause))
    }

    fn record(&self, stream: Stream) -> StreamEvent {
        self.submitter.record(stream)
    }

    fn reached(&self, event: StreamEvent) -> Option<Instant> {
        lock(&self.submitter.submissions).events.reached(&self.memory.gpu, event)
    }

    fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        self.submitter.wait(stream, event)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.submitter.synchronize()
    }

    fn keep_times(&self, times: KeptTimes) {
        self.submitter.keep_times(times);
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // Code, events and pinned memory are released after the work that uses them. The rank ends; there is nobody to
        // tell of an error.
        let _ = self.memory.synchronize();
        self.submitter.release_graphs();
    }
}

/// Whether the kernels have this choice of a run's numerics.
pub fn accepts(choice: NumericsChoice) -> bool {
    match choice {
        NumericsChoice::Products(products) => match products {
            Products::Chained | Products::Blocks16 | Products::Blocks8 | Products::Device => true,
            Products::Pairs => false,
        },
        NumericsChoice::Stored(_) | NumericsChoice::GradientSums(_) => true,
    }
}

/// The order of products in blocks that tensor cores of this capability have.
pub(crate) fn blocks_of(capability: Capability) -> Products {
    match capability.major {
        ..9 => Products::Blocks8,
        9.. => Products::Blocks16,
    }
}

/// Refuses an order of products that tensor cores of this capability do not have.
///
/// # Errors
/// [`DeviceError::Refused`] with the order that they have.
pub fn check_products(products: Products, capability: Capability) -> Result<(), DeviceError> {
    let theirs = blocks_of(capability);
    let device = match capability.major {
        ..9 => DeviceKind("a GPU before compute capability 9.0"),
        9.. => DeviceKind("a GPU of compute capability 9.0 or later"),
    };
    match products {
        Products::Blocks16 | Products::Blocks8 if products != theirs => Err(DeviceError::Refused {
            choice: NumericsChoice::Products(products).to_string(),
            device,
            remedy: format!("use \"{}\"", theirs.name()),
        }),
        Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8 | Products::Device => Ok(()),
    }
}
