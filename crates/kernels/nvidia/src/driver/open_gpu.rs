//! An open GPU: handles are looked up, ranges and arguments are checked, and the driver is called.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

use gpu::{
    Arguments, DeviceFacts, DevicePointer, DriverError, EventHandle, FreeMemory, FunctionFacts, FunctionHandle, Gpu,
    GraphHandle, KernelNode, LaunchShape, ModuleHandle, ModuleImage, PinnedHandle, StreamHandle, TensorMap,
    TensorTiles,
};
use sync::lock;

use super::arguments::{check_range, check_sizes, invalid};
use super::calls::entry::Api;
use super::calls::memory::{Pinned, Range, Sharing};
use super::constants::USUAL_PRIORITY;
use super::context::Context;
use super::cubin::Cubin;
use super::functions::{Device, Event, ExecutableGraph, Function, Module, Stream};
use super::kernel_graph::{KernelGraph, KernelGraphs};
use super::owned::{Owned, Registry};

/// Addresses of memory are multiples of this.
const ALIGNMENT: usize = 2 << 20;

/// A kernel, and the module that keeps it.
#[derive(Clone)]
pub(super) struct Kernel {
    pub(super) raw: Function,
    module: Arc<Owned<Module>>,
    /// Their sizes, where the driver tells them.
    parameters: Option<Arc<[usize]>>,
}

impl Kernel {
    /// Compares arguments with the sizes of parameters, where the driver tells them.
    fn check(&self, arguments: &Arguments) -> Result<(), DriverError> {
        self.parameters.as_ref().map_or(Ok(()), |sizes| check_sizes(sizes, arguments))
    }
}

/// See the module.
pub(super) struct OpenGpu {
    facts: DeviceFacts,
    granularity: usize,
    sharing: Sharing,
    /// Zeroes new memory.
    zeroing: Arc<Owned<Stream>>,
    graphs: Registry<ExecutableGraph>,
    /// The graphs of kernels, by the number of the graph that is launched.
    kernel_graphs: KernelGraphs,
    streams: Registry<Stream>,
    events: Registry<Event>,
    kernels: Mutex<BTreeMap<u64, Kernel>>,
    modules: Registry<Module>,
    pinned: Registry<Pinned>,
    memory: Registry<Range>,
    /// Last, so that it outlives all that lives in it.
    context: Arc<Context>,
}

impl OpenGpu {
    pub(super) fn open(api: Arc<Api>, device: Device, facts: DeviceFacts) -> Result<OpenGpu, DriverError> {
        let context = Arc::new(Context::open(api, device)?);
        let api = context.enter()?;
        let sharing = api.sharing(device);
        let granularity = api.granularity(device, sharing)?.max(ALIGNMENT);
        let streams = Registry::default();
        let number = streams.add(api.create_stream(USUAL_PRIORITY)?, &context);
        let zeroing = streams.get("cuStreamCreateWithPriority", number)?;
        streams.remove("cuStreamCreateWithPriority", number)?;
        Ok(OpenGpu {
            facts,
            granularity,
            sharing,
            zeroing,
            graphs: Registry::default(),
            kernel_graphs: KernelGraphs::default(),
            streams,
            events: Registry::default(),
            kernels: Mutex::default(),
            modules: Registry::default(),
            pinned: Registry::default(),
            memory: Registry::default(),
            context,
        })
    }

    /// Checks that a range is within one allocation.
    fn check_memory(&self, call: &'static str, pointer: DevicePointer, bytes: usize) -> Result<(), DriverError> {
        let range = self.memory.last_up_to(pointer.0).filter(|range| pointer.0 - range.address < range.bytes as u64);
        let Some(range) = range else {
            return Err(invalid(call, format!("{bytes} bytes at {:#x} are not within allocated memory", pointer.0)));
        };
        let offset = usize::try_from(pointer.0 - range.address).unwrap_or(usize::MAX);
        check_range(call, offset, bytes, range.bytes)
    }

    fn kernel(&self, call: &'static str, function: FunctionHandle) -> Result<Kernel, DriverError> {
        let kernel = lock(&self.kernels).get(&function.0).cloned();
        kernel.ok_or_else(|| {
            invalid(call, format!("function {:#x} does not exist here, or its module does not", function.0))
        })
    }
}

impl OpenGpu {
    /// The kernel of a node whose arguments have the sizes of its parameters.
    fn node_kernel(&self, call: &'static str, node: &KernelNode<'_>) -> Result<Kernel, DriverError> {
        let kernel = self.kernel(call, node.function)?;
        kernel.check(node.arguments)?;
        Ok(kernel)
    }
}

impl Gpu for OpenGpu {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn enter(&self) -> Result<(), DriverError> {
        self.context.enter().map(|_| ())
    }

    fn free_memory(&self) -> Result<FreeMemory, DriverError> {
        self.context.enter()?.free_memory()
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePointer, DriverError> {
        let whole = bytes.checked_next_multiple_of(self.granularity).filter(|whole| *whole > 0);
        let whole = whole.ok_or_else(|| invalid("cuMemCreate", format!("{bytes} bytes cannot be allocated")))?;
        let api = self.context.enter()?;
        let range = api.map((self.context.device, self.sharing), whole, ALIGNMENT)?;
        let address = self.memory.add(range, &self.context);
        let stream = self.zeroing.raw();
        let zeroed = api.fill(stream, address, 0, whole).and_then(|()| api.synchronize(stream));
        if let Err(error) = zeroed {
            self.memory.remove("cuMemUnmap", address)?;
            return Err(error);
        }
        Ok(DevicePointer(address))
    }

    fn free(&self, pointer: DevicePointer) -> Result<(), DriverError> {
        self.memory.remove("cuMemUnmap", pointer.0)
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<PinnedHandle, DriverError> {
        if bytes == 0 {
            return Err(invalid("cuMemHostAlloc", "0 bytes cannot be allocated".into()));
        }
        let pinned = self.context.enter()?.allocate_pinned(bytes)?;
        Ok(PinnedHandle(self.pinned.add(pinned, &self.context)))
    }

    fn free_pinned(&self, pinned: PinnedHandle) -> Result<(), DriverError> {
        self.pinned.remove("cuMemFreeHost", pinned.0)
    }

    fn write_pinned(&self, pinned: PinnedHandle, offset_bytes: usize, from: &[u8]) -> Result<(), DriverError> {
        let call = "write_pinned";
        let memory = self.pinned.get(call, pinned.0)?;
        check_range(call, offset_bytes, from.len(), memory.raw().bytes())?;
        memory.alone(|memory| memory.write(offset_bytes, from));
        Ok(())
    }

    fn read_pinned(&self, pinned: PinnedHandle, offset_bytes: usize, to: &mut [u8]) -> Result<(), DriverError> {
        let call = "read_pinned";
        let memory = self.pinned.get(call, pinned.0)?;
        check_range(call, offset_bytes, to.len(), memory.raw().bytes())?;
        memory.alone(|memory| memory.read(offset_bytes, to));
        Ok(())
    }

    fn upload(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        pinned: PinnedHandle,
        offset_bytes: usize,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let call = "cuMemcpyHtoDAsync";
        let (stream, memory) = (self.streams.get(call, stream.0)?, self.pinned.get(call, pinned.0)?);
        check_range(call, offset_bytes, bytes, memory.raw().bytes())?;
        self.check_memory(call, to, bytes)?;
        self.context.enter()?.upload(stream.raw(), to.0, (memory.raw(), offset_bytes), bytes)
    }

    fn download(
        &self,
        stream: StreamHandle,
        pinned: PinnedHandle,
        offset_bytes: usize,
        from: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let call = "cuMemcpyDtoHAsync";
        let (stream, memory) = (self.streams.get(call, stream.0)?, self.pinned.get(call, pinned.0)?);
        check_range(call, offset_bytes, bytes, memory.raw().bytes())?;
        self.check_memory(call, from, bytes)?;
        self.context.enter()?.download(stream.raw(), (memory.raw(), offset_bytes), from.0, bytes)
    }

    fn copy(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        from: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let call = "cuMemcpyDtoDAsync";
        let stream = self.streams.get(call, stream.0)?;
        self.check_memory(call, to, bytes)?;
        self.check_memory(call, from, bytes)?;
        self.context.enter()?.copy(stream.raw(), to.0, from.0, bytes)
    }

    fn fill(&self, stream: StreamHandle, to: DevicePointer, value: u8, bytes: usize) -> Result<(), DriverError> {
        let call = "cuMemsetD8Async";
        let stream = self.streams.get(call, stream.0)?;
        self.check_memory(call, to, bytes)?;
        self.context.enter()?.fill(stream.raw(), to.0, value, bytes)
    }

    fn create_stream(&self) -> Result<StreamHandle, DriverError> {
        let stream = self.context.enter()?.create_stream(USUAL_PRIORITY)?;
        Ok(StreamHandle(self.streams.add(stream, &self.context)))
    }

    fn create_urgent_stream(&self) -> Result<StreamHandle, DriverError> {
        let api = self.context.enter()?;
        let stream = api.create_stream(api.highest_priority()?)?;
        Ok(StreamHandle(self.streams.add(stream, &self.context)))
    }

    fn destroy_stream(&self, stream: StreamHandle) -> Result<(), DriverError> {
        self.streams.remove("cuStreamDestroy", stream.0)
    }

    fn synchronize(&self, stream: StreamHandle) -> Result<(), DriverError> {
        let stream = self.streams.get("cuStreamSynchronize", stream.0)?;
        self.context.enter()?.synchronize(stream.raw())
    }

    fn has_ended(&self, stream: StreamHandle) -> Result<bool, DriverError> {
        let stream = self.streams.get("cuStreamQuery", stream.0)?;
        self.context.enter()?.has_ended(stream.raw())
    }

    fn create_event(&self) -> Result<EventHandle, DriverError> {
        let event = self.context.enter()?.create_event()?;
        Ok(EventHandle(self.events.add(event, &self.context)))
    }

    fn destroy_event(&self, event: EventHandle) -> Result<(), DriverError> {
        self.events.remove("cuEventDestroy", event.0)
    }

    fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<(), DriverError> {
        let call = "cuEventRecord";
        let (event, stream) = (self.events.get(call, event.0)?, self.streams.get(call, stream.0)?);
        self.context.enter()?.record(event.raw(), stream.raw())
    }

    fn wait(&self, stream: StreamHandle, event: EventHandle) -> Result<(), DriverError> {
        let call = "cuStreamWaitEvent";
        let (event, stream) = (self.events.get(call, event.0)?, self.streams.get(call, stream.0)?);
        self.context.enter()?.wait(stream.raw(), event.raw())
    }

    fn is_reached(&self, event: EventHandle) -> Result<bool, DriverError> {
        let event = self.events.get("cuEventQuery", event.0)?;
        self.context.enter()?.is_reached(event.raw())
    }

    fn elapsed_ms(&self, from: EventHandle, to: EventHandle) -> Result<f32, DriverError> {
        let call = "cuEventElapsedTime";
        let (from, to) = (self.events.get(call, from.0)?, self.events.get(call, to.0)?);
        self.context.enter()?.elapsed_ms(from.raw(), to.raw())
    }

    fn load(&self, image: ModuleImage) -> Result<ModuleHandle, DriverError> {
        let call = "cuModuleLoadDataEx";
        let refused = |text: String| DriverError { call, kind: gpu::DriverErrorKind::InvalidImage, text };
        let api = self.context.enter()?;
        let module = match image {
            ModuleImage::Ptx(text) => {
                let text = CString::new(text).map_err(|_| refused("the PTX has a zero byte".into()))?;
                api.load_ptx(&text)?
            }
            ModuleImage::Cubin(bytes) => api.load_cubin(Cubin::whole(bytes).map_err(refused)?)?,
        };
        Ok(ModuleHandle(self.modules.add(module, &self.context)))
    }

    fn unload(&self, module: ModuleHandle) -> Result<(), DriverError> {
        let call = "cuModuleUnload";
        let owned = self.modules.get(call, module.0)?;
        lock(&self.kernels).retain(|_, kernel| !Arc::ptr_eq(&kernel.module, &owned));
        drop(owned);
        self.modules.remove(call, module.0)
    }

    fn function(&self, module: ModuleHandle, name: &str) -> Result<FunctionHandle, DriverError> {
        let call = "cuModuleGetFunction";
        let module = self.modules.get(call, module.0)?;
        let text = CString::new(name).map_err(|_| invalid(call, format!("{name:?} has a zero byte")))?;
        let api = self.context.enter()?;
        let raw = api.function(module.raw(), &text).map_err(|mut error| {
            error.text = format!("{:?}: {}", name, error.text);
            error
        })?;
        let parameters = api.parameters(raw)?.map(Arc::from);
        let handle = FunctionHandle(raw.0 as u64);
        lock(&self.kernels).insert(handle.0, Kernel { raw, module, parameters });
        Ok(handle)
    }

    fn function_facts(&self, function: FunctionHandle) -> Result<FunctionFacts, DriverError> {
        let kernel = self.kernel("cuFuncGetAttribute", function)?;
        self.context.enter()?.function_facts(kernel.raw)
    }

    fn allow_shared(&self, function: FunctionHandle, bytes: u32) -> Result<(), DriverError> {
        let kernel = self.kernel("cuFuncSetAttribute", function)?;
        self.context.enter()?.allow_shared(kernel.raw, bytes)
    }

    fn tensor_map(&self, tiles: &TensorTiles) -> Result<TensorMap, DriverError> {
        let call = "cuTensorMapEncodeTiled";
        tiles.check().map_err(|text| invalid(call, text))?;
        self.context.enter()?.tensor_map(tiles)
    }

    fn launch(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        shape: LaunchShape,
        arguments: &Arguments,
    ) -> Result<(), DriverError> {
        let call = "cuLaunchKernel";
        let (stream, kernel) = (self.streams.get(call, stream.0)?, self.kernel(call, function)?);
        kernel.check(arguments)?;
        self.context.enter()?.launch(stream.raw(), kernel.raw, shape, arguments)
    }

    fn begin_capture(&self, stream: StreamHandle) -> Result<(), DriverError> {
        let stream = self.streams.get("cuStreamBeginCapture", stream.0)?;
        self.context.enter()?.begin_capture(stream.raw())
    }

    fn end_capture(&self, stream: StreamHandle) -> Result<GraphHandle, DriverError> {
        let stream = self.streams.get("cuStreamEndCapture", stream.0)?;
        let graph = self.context.enter()?.end_capture(stream.raw())?;
        Ok(GraphHandle(self.graphs.add(graph, &self.context)))
    }

    fn create_graph(&self, nodes: &[KernelNode<'_>]) -> Result<GraphHandle, DriverError> {
        let call = "cuGraphAddKernelNode";
        let kernels: Vec<Kernel> = nodes.iter().map(|node| self.node_kernel(call, node)).collect::<Result<_, _>>()?;
        let (graph, kernel_graph) = KernelGraph::create(&self.context, nodes, &kernels)?;
        let number = self.graphs.add(graph, &self.context);
        self.kernel_graphs.add(number, kernel_graph);
        Ok(GraphHandle(number))
    }

    fn set_node(&self, graph: GraphHandle, place: usize, node: &KernelNode<'_>) -> Result<(), DriverError> {
        let call = "cuGraphExecKernelNodeSetParams";
        let kernel = self.node_kernel(call, node)?;
        let (executable, described) = (self.graphs.get(call, graph.0)?, self.kernel_graphs.get(call, graph.0)?);
        described.set(self.context.enter()?, executable.raw(), place, (node, &kernel))
    }

    fn launch_graph(&self, stream: StreamHandle, graph: GraphHandle) -> Result<(), DriverError> {
        let call = "cuGraphLaunch";
        let (stream, graph) = (self.streams.get(call, stream.0)?, self.graphs.get(call, graph.0)?);
        self.context.enter()?.launch_graph(stream.raw(), graph.raw())
    }

    fn destroy_graph(&self, graph: GraphHandle) -> Result<(), DriverError> {
        let removed = self.graphs.remove("cuGraphExecDestroy", graph.0);
        self.kernel_graphs.remove(graph.0);
        removed
    }
}
