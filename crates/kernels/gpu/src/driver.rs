//! The two traits: a driver lists GPUs and opens one; an open GPU holds memory, code and queues.

use std::sync::Arc;

use crate::{
    Arguments, Capability, DevicePointer, DriverError, EventHandle, FunctionHandle, GraphHandle, KernelNode,
    LaunchShape, ModuleHandle, PinnedHandle, StreamHandle, TensorMap, TensorTiles,
};

/// Facts of a GPU that need no context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its number, counted from 0.
    pub ordinal: usize,
    /// The marketing name.
    pub name: String,
    /// Its compute capability.
    pub capability: Capability,
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// The most shared memory of a block, where the kernel asks for it.
    pub max_shared_bytes: u32,
    /// Identifier that no other GPU has. Instances of a GPU that is divided (MIG) have one each.
    pub uuid: [u8; 16],
    /// The place in its machine: domain, bus, device and function of PCI, as `0000:1b:00.0`. Instances of one GPU have
    /// the same.
    pub bus_id: String,
}

/// Memory of a GPU at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeMemory {
    /// Unused by any process.
    pub free_bytes: u64,
    pub total_bytes: u64,
}

/// Code for a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleImage<'a> {
    /// PTX as text, which the driver compiles.
    Ptx(&'a str),
    /// A CUBIN for exactly one architecture.
    Cubin(&'a [u8]),
}

/// Facts of a kernel as it was compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block.
    pub shared_bytes: u32,
    /// Local memory of a thread: spills and arrays that are not in registers.
    pub local_bytes: u32,
    /// The most threads of a block.
    pub max_threads_per_block: u32,
}

/// The driver of the GPUs of a machine.
pub trait Driver: Send + Sync {
    /// The newest version of CUDA that the driver supports, as the driver counts: 13000 for 13.0.
    ///
    /// # Errors
    /// A driver that does not answer.
    fn version(&self) -> Result<u32, DriverError>;

    /// All GPUs, by ordinal.
    ///
    /// # Errors
    /// A driver that does not answer.
    fn devices(&self) -> Result<Vec<DeviceFacts>, DriverError>;

    /// Opens the GPU's context in this process.
    ///
    /// # Errors
    /// An ordinal that does not exist; a GPU that is lost or used by another process alone.
    fn open(&self, ordinal: usize) -> Result<Arc<dyn Gpu>, DriverError>;
}

/// An open GPU. Any thread may call it; calls on one stream are in the order in which they are made.
///
/// Work is asynchronous: an error of a kernel may come from a later call, and then from every call.
pub trait Gpu: Send + Sync {
    /// Its facts.
    fn facts(&self) -> &DeviceFacts;

    /// Makes this GPU the one of the calling thread, for libraries that take it from there.
    ///
    /// # Errors
    /// A lost GPU.
    fn enter(&self) -> Result<(), DriverError>;

    /// Memory at this moment.
    ///
    /// # Errors
    /// A lost GPU.
    fn free_memory(&self) -> Result<FreeMemory, DriverError>;

    /// Reserves a range of addresses, backs it with memory and zeroes it. The address is a multiple of 2 MiB.
    ///
    /// # Errors
    /// [`crate::DriverErrorKind::OutOfMemory`].
    fn allocate(&self, bytes: usize) -> Result<DevicePointer, DriverError>;

    /// Frees what [`Gpu::allocate`] returned. Work that uses it must have ended.
    ///
    /// # Errors
    /// An address that was not returned.
    fn free(&self, pointer: DevicePointer) -> Result<(), DriverError>;

    /// Allocates memory of the host from which copies to and from this GPU overlap with other work.
    ///
    /// # Errors
    /// [`crate::DriverErrorKind::OutOfMemory`].
    fn allocate_pinned(&self, bytes: usize) -> Result<PinnedHandle, DriverError>;

    /// Frees pinned memory. Copies that use it must have ended.
    ///
    /// # Errors
    /// A handle that does not exist.
    fn free_pinned(&self, pinned: PinnedHandle) -> Result<(), DriverError>;

    /// Copies host bytes into pinned memory from `offset_bytes` on, at once.
    ///
    /// # Errors
    /// A range outside of it.
    fn write_pinned(&self, pinned: PinnedHandle, offset_bytes: usize, from: &[u8]) -> Result<(), DriverError>;

    /// Copies pinned memory from `offset_bytes` on into host bytes, at once.
    ///
    /// # Errors
    /// A range outside of it.
    fn read_pinned(&self, pinned: PinnedHandle, offset_bytes: usize, to: &mut [u8]) -> Result<(), DriverError>;

    /// Copies `bytes` of pinned memory from `offset_bytes` on to the GPU, as work of `stream`.
    ///
    /// # Errors
    /// A range outside of either memory.
    fn upload(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        pinned: PinnedHandle,
        offset_bytes: usize,
        bytes: usize,
    ) -> Result<(), DriverError>;

    /// Copies `bytes` from the GPU to pinned memory from `offset_bytes` on, as work of `stream`.
    ///
    /// # Errors
    /// A range outside of either memory.
    fn download(
        &self,
        stream: StreamHandle,
        pinned: PinnedHandle,
        offset_bytes: usize,
        from: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError>;

    /// Copies `bytes` within the GPU, as work of `stream`. The ranges do not overlap.
    ///
    /// # Errors
    /// A range that is not allocated.
    fn copy(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        from: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError>;

    /// Sets `bytes` to `value`, as work of `stream`.
    ///
    /// # Errors
    /// A range that is not allocated.
    fn fill(&self, stream: StreamHandle, to: DevicePointer, value: u8, bytes: usize) -> Result<(), DriverError>;

    /// A stream that waits for no other one.
    ///
    /// # Errors
    /// A lost GPU.
    fn create_stream(&self) -> Result<StreamHandle, DriverError>;

    /// A stream that waits for no other one, and whose kernels come before those of all usual streams that have not
    /// begun: where a multiprocessor becomes free, their blocks take it first.
    ///
    /// # Errors
    /// A lost GPU.
    fn create_urgent_stream(&self) -> Result<StreamHandle, DriverError>;

    /// Destroys a stream, once its work has ended.
    ///
    /// # Errors
    /// A handle that does not exist.
    fn destroy_stream(&self, stream: StreamHandle) -> Result<(), DriverError>;

    /// Waits until all work of `stream` has ended.
    ///
    /// # Errors
    /// The failure of any work so far.
    fn synchronize(&self, stream: StreamHandle) -> Result<(), DriverError>;

    /// Whether all work of `stream` has ended.
    ///
    /// # Errors
    /// The failure of any work so far.
    fn has_ended(&self, stream: StreamHandle) -> Result<bool, DriverError>;

    /// An event that keeps the time at which it is reached.
    ///
    /// # Errors
    /// A lost GPU.
    fn create_event(&self) -> Result<EventHandle, DriverError>;

    /// Destroys an event.
    ///
    /// # Errors
    /// A handle that does not exist.
    fn destroy_event(&self, event: EventHandle) -> Result<(), DriverError>;

    /// `event` becomes the point that `stream` reaches when it has ended what was submitted so far.
    ///
    /// # Errors
    /// A handle that does not exist.
    fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<(), DriverError>;

    /// Whatever is submitted to `stream` from here on begins after `event`, as it was last recorded. Does not block.
    ///
    /// # Errors
    /// A handle that does not exist.
    fn wait(&self, stream: StreamHandle, event: EventHandle) -> Result<(), DriverError>;

    /// Whether `event` is reached.
    ///
    /// # Errors
    /// The failure of any work so far.
    fn is_reached(&self, event: EventHandle) -> Result<bool, DriverError>;

    /// Milliseconds between two events that are reached.
    ///
    /// # Errors
    /// An event that is not reached.
    fn elapsed_ms(&self, from: EventHandle, to: EventHandle) -> Result<f32, DriverError>;

    /// Loads code.
    ///
    /// # Errors
    /// [`crate::DriverErrorKind::InvalidImage`] with the compiler's log.
    fn load(&self, image: ModuleImage) -> Result<ModuleHandle, DriverError>;

    /// Unloads code. Work that uses it must have ended.
    ///
    /// # Errors
    /// A handle that does not exist.
    fn unload(&self, module: ModuleHandle) -> Result<(), DriverError>;

    /// The kernel `name` of a module.
    ///
    /// # Errors
    /// A name that the module does not have.
    fn function(&self, module: ModuleHandle, name: &str) -> Result<FunctionHandle, DriverError>;

    /// Facts of a kernel.
    ///
    /// # Errors
    /// A handle that does not exist.
    fn function_facts(&self, function: FunctionHandle) -> Result<FunctionFacts, DriverError>;

    /// Permits launches of the kernel with up to `bytes` of dynamic shared memory.
    ///
    /// # Errors
    /// More than a block of this GPU can have.
    fn allow_shared(&self, function: FunctionHandle, bytes: u32) -> Result<(), DriverError>;

    /// Encodes a tensor and its boxes for a kernel that copies them. The map is valid while the memory is.
    ///
    /// # Errors
    /// A rule of [`TensorTiles::check`]; a GPU that has no tensor maps.
    fn tensor_map(&self, tiles: &TensorTiles) -> Result<TensorMap, DriverError>;

    /// Launches a kernel as work of `stream`.
    ///
    /// # Errors
    /// A shape that the GPU or the kernel does not have; arguments of other sizes than the kernel's parameters.
    fn launch(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        shape: LaunchShape,
        arguments: &Arguments,
    ) -> Result<(), DriverError>;

    /// From here on, work that is submitted to `stream`, and to streams that wait for it, is captured and does not run.
    ///
    /// # Errors
    /// A stream that is being captured.
    fn begin_capture(&self, stream: StreamHandle) -> Result<(), DriverError>;

    /// Ends a capture and makes a graph that can be launched.
    ///
    /// # Errors
    /// A stream that is not being captured; work of streams that were not joined.
    fn end_capture(&self, stream: StreamHandle) -> Result<GraphHandle, DriverError>;

    /// Makes a graph of kernels that can be launched.
    ///
    /// # Errors
    /// [`crate::DriverErrorKind::Unavailable`] from a driver without graphs; a node after one that is not earlier; the
    /// errors of [`Gpu::launch`]; no memory for the graph.
    fn create_graph(&self, nodes: &[KernelNode<'_>]) -> Result<GraphHandle, DriverError>;

    /// Gives the node at `place` of a graph of kernels other arguments, for launches of the graph from here on: those
    /// that were submitted before keep theirs. The function and what the node comes after stay as they are.
    ///
    /// # Errors
    /// A graph or a place that does not exist, and the errors of [`Gpu::launch`].
    fn set_node(&self, graph: GraphHandle, place: usize, node: &KernelNode<'_>) -> Result<(), DriverError>;

    /// Launches all work of a graph as work of `stream`. Launches of one graph run one after the other.
    ///
    /// # Errors
    /// A handle that does not exist.
    fn launch_graph(&self, stream: StreamHandle, graph: GraphHandle) -> Result<(), DriverError>;

    /// Destroys a graph, once its launches have ended.
    ///
    /// # Errors
    /// A handle that does not exist.
    fn destroy_graph(&self, graph: GraphHandle) -> Result<(), DriverError>;
}
