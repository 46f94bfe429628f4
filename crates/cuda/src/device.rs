//! A GPU as a device: one allocation for the arena, a stream of the driver for each stream of the rank.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use config::Products;
use device::{ArenaSize, Device, DeviceError, DeviceKind, NumericsChoice, Op, Stream, StreamEvent, Tensor};
use gpu::{
    Arguments, Capability, DevicePointer, DriverError, FunctionHandle, Gpu, ModuleHandle, PinnedHandle, ProductLibrary,
    StreamHandle, TensorMap, TensorTiles,
};
use sync::lock;

use crate::code::CompiledSource;
use crate::events::Events;
use crate::host_memory::HostMemory;
use crate::kernels::Instructions;
use crate::launch::{Code as LoadedCode, Launch, Site, launches, library_product};
use crate::library_products::LibraryProducts;
use crate::owned::{Owned, allocate, allocate_pinned, create_stream, load};
use crate::pinned::{PinnedRing, RING_BYTES};
use crate::reader::{CudaReader, READER_BYTES};

/// The memory of a rank on its GPU, which readers share.
pub(crate) struct RankMemory {
    pub(crate) gpu: Arc<dyn Gpu>,
    /// By number.
    pub(crate) streams: Vec<Owned<StreamHandle>>,
    arena: Owned<DevicePointer>,
    host: HostMemory,
    /// The first address after both memories.
    end_bytes: usize,
}

impl RankMemory {
    fn allocate(gpu: Arc<dyn Gpu>, size: ArenaSize) -> Result<RankMemory, DeviceError> {
        let ArenaSize { host_bytes, device_bytes } = size;
        let failed = |what: String, full: DeviceError| {
            |cause: DriverError| match cause.kind {
                gpu::DriverErrorKind::OutOfMemory => full,
                _ => accelerator_error(what, cause),
            }
        };
        let remedy = "a smaller microbatch, more ranks or a higher ZeRO stage need less";
        let full = DeviceError::OutOfMemory { bytes: device_bytes, remedy };
        let arena = allocate(&gpu, device_bytes.max(1));
        let arena = arena.map_err(failed(format!("allocate an arena of {device_bytes} bytes"), full))?;
        let what = format!("allocate {host_bytes} bytes of pinned memory");
        let full = DeviceError::OutOfHostMemory { bytes: host_bytes };
        let host = HostMemory::allocate(&gpu, host_bytes).map_err(failed(what, full))?;
        let streams = Stream::ALL.iter().map(|_| create_stream(&gpu)).collect::<Result<_, _>>();
        let streams = streams.map_err(|cause| accelerator_error("create streams".into(), cause))?;
        Ok(RankMemory { gpu, streams, arena, host, end_bytes: size.end_bytes() })
    }

    /// The address of offset 0, which is on the GPU only where no memory of the host comes first.
    fn base(&self) -> DevicePointer {
        self.arena.handle().before(self.host.bytes())
    }

    /// Refuses a tensor that is not dense, outside of the arena, or of another size than the host's bytes.
    pub(crate) fn check_host_copy(
        &self,
        op: &'static str,
        tensor: Tensor,
        host_bytes: usize,
    ) -> Result<(), DeviceError> {
        tensor.has_host_bytes(op, host_bytes)?;
        tensor.is_dense_of(tensor.dtype)?;
        tensor.inside(self.end_bytes)
    }

    /// Copies a tensor through `pinned` memory of `pinned_bytes`, and waits for it.
    pub(crate) fn download(
        &self,
        stream: StreamHandle,
        pinned: PinnedHandle,
        pinned_bytes: usize,
        from: Tensor,
        to: &mut [u8],
    ) -> Result<(), DriverError> {
        if let Some((host, offset_bytes)) = self.host.place(from) {
            self.gpu.synchronize(stream)?;
            return self.gpu.read_pinned(host, offset_bytes, to);
        }
        let mut place = self.base().offset(from.offset_bytes);
        for piece in to.chunks_mut(pinned_bytes) {
            self.gpu.download(stream, pinned, 0, place, piece.len())?;
            self.gpu.synchronize(stream)?;
            self.gpu.read_pinned(pinned, 0, piece)?;
            place = place.offset(piece.len());
        }
        Ok(())
    }

    fn site(&self, products: Products, code: LoadedCode) -> Site {
        Site {
            arena: self.base(),
            arena_bytes: self.end_bytes,
            multiprocessors: self.gpu.facts().multiprocessors,
            capability: self.gpu.facts().capability,
            products,
            code,
        }
    }

    fn stream(&self, stream: Stream) -> StreamHandle {
        self.streams[stream.index()].handle()
    }
}

impl RankMemory {
    /// Waits until all work of all streams has ended.
    fn synchronize(&self) -> Result<(), DriverError> {
        self.streams.iter().try_for_each(|stream| self.gpu.synchronize(stream.handle()))
    }
}

impl Drop for RankMemory {
    fn drop(&mut self) {
        // The rank ends; there is nobody to tell of an error.
        let _ = self.synchronize();
    }
}

/// Shared memory of a block that needs no permission.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;

/// State that changes while a rank submits.
struct Submissions {
    events: Events,
    ring: PinnedRing,
    /// The last operation of each stream, for messages of failures that come later.
    last: [Option<Op>; Stream::COUNT],
    /// Those that launches have had.
    maps: HashMap<TensorTiles, TensorMap>,
}

/// Whether somebody has the work of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Submitted {
    Yes,
    No,
}

/// Executes operations as kernels on streams of a GPU. The bits are those of `cpu::CpuDevice`, whatever the GPU and its
/// streams, but for products by a library.
pub struct CudaDevice {
    memory: Arc<RankMemory>,
    /// Holds the functions.
    _modules: Vec<Owned<ModuleHandle>>,
    functions: HashMap<&'static str, FunctionHandle>,
    code: LoadedCode,
    submissions: Mutex<Submissions>,
    /// Memory for reads.
    pinned: Owned<PinnedHandle>,
    products: Products,
    /// Computes `Products::Device`.
    library: Option<LibraryProducts>,
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
        let has_of_90 = code.iter().any(|code| code.source.instructions == Instructions::Of90);
        let loaded = if has_of_90 { LoadedCode::Of90 } else { LoadedCode::Common };
        let pinned_error =
            |cause| accelerator_error(format!("allocate {} bytes of pinned memory", Self::PINNED_BYTES), cause);
        let ring = PinnedRing::new(&gpu, RING_BYTES).map_err(pinned_error)?;
        let pinned = allocate_pinned(&gpu, READER_BYTES).map_err(pinned_error)?;
        let submissions = Submissions {
            events: Events::new(Stream::ALL.map(|stream| memory.stream(stream))),
            ring,
            last: [None; Stream::COUNT],
            maps: HashMap::new(),
        };
        let device = CudaDevice {
            memory,
            _modules: modules,
            functions,
            code: loaded,
            submissions: Mutex::new(submissions),
            pinned,
            products: Products::Chained,
            library: None,
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

    /// The same device with products by a library: [`Products::Device`].
    ///
    /// # Errors
    /// No memory for the workspace.
    pub fn with_library(self, library: Box<dyn ProductLibrary>) -> Result<CudaDevice, DeviceError> {
        let name = library.name();
        let products = LibraryProducts::new(library, &self.memory.gpu)
            .map_err(|cause| accelerator_error(format!("allocate the workspace of {name}"), cause))?;
        let mut device = self.with_products(Products::Device);
        device.library = Some(products);
        Ok(device)
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

    /// The driver's stream of `stream`. It is destroyed with the device.
    pub fn stream(&self, stream: Stream) -> StreamHandle {
        self.memory.stream(stream)
    }

    /// Counts work that somebody else has submitted to the driver's stream of `stream`: points that are recorded later
    /// include it.
    pub fn count_work(&self, stream: Stream) {
        lock(&self.submissions).events.count(stream);
    }

    /// A reader of the rank's memory for another thread.
    ///
    /// # Errors
    /// The driver's.
    pub fn reader(&self) -> Result<CudaReader, DeviceError> {
        CudaReader::new(Arc::clone(&self.memory))
            .map_err(|cause| accelerator_error("open a reader of the rank's memory".into(), cause))
    }

    fn launch(&self, stream: StreamHandle, function: FunctionHandle, launch: &Launch) -> Result<(), DriverError> {
        let Launch { entry: _, shape, maps, arguments } = launch;
        let gpu = &self.memory.gpu;
        if shape.shared_bytes > PLAIN_SHARED_BYTES {
            gpu.allow_shared(function, shape.shared_bytes)?;
        }
        if maps.is_empty() {
            return gpu.launch(stream, function, *shape, arguments);
        }
        let mut all = Arguments::new();
        for tiles in maps {
            all = all.with(self.map(tiles)?.bytes());
        }
        let all = arguments.values().iter().fold(all, |all, value| all.with(value));
        gpu.launch(stream, function, *shape, &all)
    }

    /// The map of these tiles.
    fn map(&self, tiles: &TensorTiles) -> Result<TensorMap, DriverError> {
        if let Some(map) = lock(&self.submissions).maps.get(tiles) {
            return Ok(*map);
        }
        let map = self.memory.gpu.tensor_map(tiles)?;
        lock(&self.submissions).maps.insert(tiles.clone(), map);
        Ok(map)
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
        self.count(stream, op);
        library.multiply(self.memory.stream(stream), &product, &algorithm, places).map_err(failed)?;
        Ok(Submitted::Yes)
    }

    /// Notes a job of `stream`. One thread at a time submits to a stream, so the driver has the same order.
    fn count(&self, stream: Stream, op: &Op) {
        let mut submissions = lock(&self.submissions);
        submissions.events.count(stream);
        submissions.last[stream.index()] = Some(*op);
    }

    /// A failure of work, which the driver reports later: with the last operations that it can be.
    fn late_error(&self, what: &str, last: [Option<Op>; Stream::COUNT], cause: DriverError) -> DeviceError {
        let names: Vec<String> = last.iter().flatten().map(described).collect();
        let after = if names.is_empty() { "nothing".into() } else { names.join("; ") };
        accelerator_error(format!("{what} after {after}"), cause)
    }
}

impl Device for CudaDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        if let Some(work) = self.memory.host.work(op)? {
            op.operands()
                .reads()
                .chain(op.operands().writes())
                .try_for_each(|tensor| tensor.inside(self.memory.end_bytes))?;
            self.count(stream, op);
            let RankMemory { gpu, host, .. } = &*self.memory;
            let submitted = host.submit(&**gpu, self.memory.stream(stream), self.memory.base(), work);
            return submitted.map_err(|cause| accelerator_error(described(op), cause));
        }
        let site = self.memory.site(self.products, self.code);
        if self.products == Products::Device && self.submit_to_library(stream, op, &site)? == Submitted::Yes {
            return Ok(());
        }
        let launches = launches(op, &site)?;
        self.count(stream, op);
        for launch in launches {
            let Some(function) = self.functions.get(launch.entry) else {
                let what = format!("the kernel {} is in no source that was loaded", launch.entry);
                return Err(DeviceError::Shape { op: op.name(), what });
            };
            let handle = self.memory.stream(stream);
            self.launch(handle, *function, &launch).map_err(|cause| accelerator_error(described(op), cause))?;
        }
        Ok(())
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.memory.check_host_copy("write", to, from.len())?;
        if let Some((host, offset_bytes)) = self.memory.host.place(to) {
            let gpu = &self.memory.gpu;
            let written = gpu.synchronize(self.memory.stream(stream));
            let written = written.and_then(|()| gpu.write_pinned(host, offset_bytes, from));
            return written.map_err(|cause| accelerator_error(format!("write {to:?} in memory of the host"), cause));
        }
        let mut submissions = lock(&self.submissions);
        submissions.events.count(stream);
        let place = self.memory.base().offset(to.offset_bytes);
        submissions
            .ring
            .upload(&self.memory.gpu, self.memory.stream(stream), place, from)
            .map_err(|cause| accelerator_error(format!("upload {to:?}"), cause))
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
        lock(&self.submissions).events.record(&self.memory.gpu, stream)
    }

    fn reached(&self, event: StreamEvent) -> Option<Instant> {
        lock(&self.submissions).events.reached(&self.memory.gpu, event)
    }

    fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        let mut submissions = lock(&self.submissions);
        let waited = submissions.events.wait(&self.memory.gpu, stream, event);
        waited.map_err(|cause| self.late_error("wait for a stream", submissions.last, cause))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        // Without the lock: other threads submit to other streams meanwhile.
        let ended = self.memory.synchronize();
        let mut submissions = lock(&self.submissions);
        let ended = ended.and_then(|()| submissions.events.compare_clocks(&self.memory.gpu));
        ended.map_err(|cause| self.late_error("synchronize", submissions.last, cause))
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // Code, events and pinned memory are released after the work that uses them. The rank ends; there is nobody to
        // tell of an error.
        let _ = self.memory.synchronize();
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

/// Refuses an order of products that tensor cores of this capability do not have.
///
/// # Errors
/// [`DeviceError::Refused`] with the order that they have.
pub fn check_products(products: Products, capability: Capability) -> Result<(), DeviceError> {
    let (device, theirs) = match capability.major {
        ..9 => (DeviceKind("a GPU before compute capability 9.0"), Products::Blocks8),
        9.. => (DeviceKind("a GPU of compute capability 9.0 or later"), Products::Blocks16),
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

/// The operation with its tensors.
fn described(op: &Op) -> String {
    let operands = op.operands();
    let list = |tensors: &mut dyn Iterator<Item = Tensor>| {
        tensors.map(|tensor| format!("{tensor:?}")).collect::<Vec<_>>().join(", ")
    };
    format!("{} of {} into {}", op.name(), list(&mut operands.reads()), list(&mut operands.writes()))
}

/// A failure of the driver with what was asked of it.
pub(crate) fn accelerator_error(what: String, cause: DriverError) -> DeviceError {
    DeviceError::Accelerator { what, cause: Box::new(cause) }
}
