//! GPUs whose calls are judged one by one: a wait may be left out, and any call may fail as a driver fails.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use gpu::{
    Arguments, DeviceFacts, DevicePointer, Driver, DriverError, DriverErrorKind, EventHandle, FunctionHandle, Gpu,
    GraphHandle, KernelNode, LaunchShape, ModuleHandle, ModuleImage, PinnedHandle, StreamHandle,
};
use sync::lock;

/// A call to a GPU that a judge hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuCall {
    /// Memory of the GPU or of the host.
    Allocate,
    /// A copy to or from pinned memory.
    Transfer(StreamHandle, PinnedRange),
    /// The host reads or writes pinned memory.
    Host(PinnedRange),
    /// A copy or a fill within the GPU.
    Copy(StreamHandle),
    /// An event is recorded.
    Record(EventHandle, StreamHandle),
    /// A stream waits for an event.
    Wait(StreamHandle, EventHandle),
    /// A stream is created.
    Create(StreamHandle),
    /// The host waits for a stream.
    Synchronize(StreamHandle),
    /// Code is loaded.
    Load,
    /// A kernel is launched.
    Launch(StreamHandle),
    /// A graph of this many kernels is made.
    CreateGraph(usize),
    /// The node at this place of a graph is given other arguments.
    SetNode(GraphHandle, usize),
    /// A graph of this many kernels is launched.
    LaunchGraph(StreamHandle, usize),
}

/// Bytes of pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedRange {
    pub pinned: PinnedHandle,
    pub offset: usize,
    pub bytes: usize,
}

impl PinnedRange {
    /// Whether both have bytes in common.
    pub fn meets(&self, other: &PinnedRange) -> bool {
        let end = |range: &PinnedRange| range.offset + range.bytes;
        self.pinned == other.pinned && self.offset < end(other) && other.offset < end(self)
    }
}

/// The result of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It is done.
    Done,
    /// It is left out; the caller does not learn of it. Only records, waits and changes of nodes are; of a graph that
    /// is made, what its second half comes after.
    LeftOut,
    /// It fails.
    Fails(DriverErrorKind),
}

/// Judges the calls to the GPU of an ordinal.
pub type Judge = Arc<dyn Fn(usize, GpuCall) -> CallOutcome + Send + Sync>;

/// A driver whose GPUs are judged.
pub struct WrappedDriver {
    inner: Arc<dyn Driver>,
    judge: Judge,
}

impl WrappedDriver {
    /// `inner`, judged by `judge`.
    pub fn new(inner: Arc<dyn Driver>, judge: Judge) -> WrappedDriver {
        WrappedDriver { inner, judge }
    }
}

impl Driver for WrappedDriver {
    fn version(&self) -> Result<u32, DriverError> {
        self.inner.version()
    }

    fn devices(&self) -> Result<Vec<DeviceFacts>, DriverError> {
        self.inner.devices()
    }

    fn open(&self, ordinal: usize) -> Result<Arc<dyn Gpu>, DriverError> {
        Ok(Arc::new(WrappedGpu {
            inner: self.inner.open(ordinal)?,
            judge: Arc::clone(&self.judge),
            kernels: Mutex::default(),
        }))
    }
}

struct WrappedGpu {
    inner: Arc<dyn Gpu>,
    judge: Judge,
    /// Kernels of each graph.
    kernels: Mutex<HashMap<GraphHandle, usize>>,
}

impl WrappedGpu {
    /// Does `work`, unless the judge has it left out or failed.
    fn judged<T>(
        &self,
        call: GpuCall,
        left_out: Option<T>,
        work: impl FnOnce(&dyn Gpu) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        match ((self.judge)(self.inner.facts().ordinal, call), left_out) {
            (CallOutcome::Done, _) | (CallOutcome::LeftOut, None) => work(&*self.inner),
            (CallOutcome::LeftOut, Some(value)) => Ok(value),
            (CallOutcome::Fails(kind), _) => Err(failed(kind)),
        }
    }
}

fn failed(kind: DriverErrorKind) -> DriverError {
    DriverError { call: "judged", kind, text: "a test has it so".into() }
}

impl Gpu for WrappedGpu {
    fn allocate(&self, bytes: usize) -> Result<DevicePointer, DriverError> {
        self.judged(GpuCall::Allocate, None, |gpu| gpu.allocate(bytes))
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<PinnedHandle, DriverError> {
        self.judged(GpuCall::Allocate, None, |gpu| gpu.allocate_pinned(bytes))
    }

    fn upload(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        pinned: PinnedHandle,
        offset_bytes: usize,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let range = PinnedRange { pinned, offset: offset_bytes, bytes };
        self.judged(GpuCall::Transfer(stream, range), None, |gpu| gpu.upload(stream, to, pinned, offset_bytes, bytes))
    }

    fn download(
        &self,
        stream: StreamHandle,
        pinned: PinnedHandle,
        offset_bytes: usize,
        from: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let range = PinnedRange { pinned, offset: offset_bytes, bytes };
        self.judged(GpuCall::Transfer(stream, range), None, |gpu| {
            gpu.download(stream, pinned, offset_bytes, from, bytes)
        })
    }

    fn copy(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        from: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError> {
        self.judged(GpuCall::Copy(stream), None, |gpu| gpu.copy(stream, to, from, bytes))
    }

    fn fill(&self, stream: StreamHandle, to: DevicePointer, value: u8, bytes: usize) -> Result<(), DriverError> {
        self.judged(GpuCall::Copy(stream), None, |gpu| gpu.fill(stream, to, value, bytes))
    }

    fn write_pinned(&self, pinned: PinnedHandle, offset_bytes: usize, from: &[u8]) -> Result<(), DriverError> {
        let range = PinnedRange { pinned, offset: offset_bytes, bytes: from.len() };
        self.judged(GpuCall::Host(range), None, |gpu| gpu.write_pinned(pinned, offset_bytes, from))
    }

    fn read_pinned(&self, pinned: PinnedHandle, offset_bytes: usize, to: &mut [u8]) -> Result<(), DriverError> {
        let range = PinnedRange { pinned, offset: offset_bytes, bytes: to.len() };
        self.judged(GpuCall::Host(range), None, |gpu| gpu.read_pinned(pinned, offset_bytes, to))
    }

    fn create_stream(&self) -> Result<StreamHandle, DriverError> {
        let stream = self.inner.create_stream()?;
        self.judged(GpuCall::Create(stream), None, |_| Ok(stream))
    }

    fn create_urgent_stream(&self) -> Result<StreamHandle, DriverError> {
        let stream = self.inner.create_urgent_stream()?;
        self.judged(GpuCall::Create(stream), None, |_| Ok(stream))
    }

    fn synchronize(&self, stream: StreamHandle) -> Result<(), DriverError> {
        self.judged(GpuCall::Synchronize(stream), None, |gpu| gpu.synchronize(stream))
    }

    fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<(), DriverError> {
        self.judged(GpuCall::Record(event, stream), Some(()), |gpu| gpu.record(event, stream))
    }

    fn wait(&self, stream: StreamHandle, event: EventHandle) -> Result<(), DriverError> {
        self.judged(GpuCall::Wait(stream, event), Some(()), |gpu| gpu.wait(stream, event))
    }

    fn load(&self, image: ModuleImage) -> Result<ModuleHandle, DriverError> {
        self.judged(GpuCall::Load, None, |gpu| gpu.load(image))
    }

    fn launch(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        shape: LaunchShape,
        arguments: &Arguments,
    ) -> Result<(), DriverError> {
        self.judged(GpuCall::Launch(stream), None, |gpu| gpu.launch(stream, function, shape, arguments))
    }

    fn create_graph(&self, nodes: &[KernelNode<'_>]) -> Result<GraphHandle, DriverError> {
        let mut broken = nodes.to_vec();
        broken[nodes.len() / 2].after = None;
        let outcome = (self.judge)(self.inner.facts().ordinal, GpuCall::CreateGraph(nodes.len()));
        let graph = match outcome {
            CallOutcome::Done => self.inner.create_graph(nodes),
            CallOutcome::LeftOut => self.inner.create_graph(&broken),
            CallOutcome::Fails(kind) => Err(failed(kind)),
        }?;
        lock(&self.kernels).insert(graph, nodes.len());
        Ok(graph)
    }

    fn set_node(&self, graph: GraphHandle, place: usize, node: &KernelNode<'_>) -> Result<(), DriverError> {
        self.judged(GpuCall::SetNode(graph, place), Some(()), |gpu| gpu.set_node(graph, place, node))
    }

    fn launch_graph(&self, stream: StreamHandle, graph: GraphHandle) -> Result<(), DriverError> {
        let kernels = lock(&self.kernels).get(&graph).copied().unwrap_or(0);
        self.judged(GpuCall::LaunchGraph(stream, kernels), None, |gpu| gpu.launch_graph(stream, graph))
    }

    gpu::forward!(
        inner: facts, enter, free_memory, free, free_pinned, destroy_stream, has_ended,
        create_event, destroy_event, is_reached, elapsed_ms, unload, function, function_facts, allow_shared, tensor_map,
        begin_capture, end_capture, destroy_graph
    );
}
