//! The GPU in software.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpu::{
    Arguments, DeviceFacts, DevicePointer, DriverError, DriverErrorKind, EventHandle, FreeMemory, FunctionFacts,
    FunctionHandle, Gpu, GraphHandle, KernelNode, LaunchShape, ModuleHandle, ModuleImage, PinnedHandle, StreamHandle,
    TensorMap, TensorTiles,
};

use crate::checks::AccessRanges;
use crate::counters::Counters;
use crate::modules::{Decoded, SharedCode};
use crate::settings::Settings;
use crate::state::{Function, State, invalid};
use crate::streams::{Capture, Deal, GraphRun, Item, LaunchWork, Queue, Work, WorkLog};
use crate::tensor_maps::encode;

/// A GPU in software.
#[derive(Debug)]
pub struct SoftGpu {
    facts: DeviceFacts,
    settings: Settings,
    /// Of GPUs that share it; others decode each text that they load.
    code: Option<SharedCode>,
    pub(crate) state: Mutex<State>,
}

/// The most threads of a block.
const MAX_THREADS: u32 = 1024;
/// Dynamic shared memory that a launch may have without permission.
const PLAIN_SHARED: u32 = 48 << 10;
/// The time between two looks at a stream that waits for another thread.
const PAUSE: Duration = Duration::from_micros(50);
/// Pieces of work that a question about a stream runs.
const WORK_OF_A_QUERY: usize = 2;

impl SoftGpu {
    /// The GPU of a number.
    pub fn new(ordinal: usize, settings: Settings) -> SoftGpu {
        let state = Mutex::new(State::new(&settings));
        SoftGpu { facts: settings.facts(ordinal), settings, code: None, state }
    }

    /// The GPU of a number, which decodes no text that is in `code` already.
    pub fn with_code(ordinal: usize, settings: Settings, code: SharedCode) -> SoftGpu {
        SoftGpu { code: Some(code), ..SoftGpu::new(ordinal, settings) }
    }

    /// Logs from now on which work uses the memory of which.
    pub fn log_work(&self, log: &WorkLog) {
        sync::lock(&self.state).log_work(self.facts.ordinal, log);
    }

    /// Declares the memory that the next launch on `stream` may read and write; an access elsewhere is a fault.
    pub fn expect_access(&self, stream: StreamHandle, ranges: AccessRanges) {
        sync::lock(&self.state).expected.insert(stream, ranges);
    }

    /// Takes a range of addresses, a multiple of 2 MiB, without memory.
    pub fn reserve_addresses(&self, bytes: usize) -> DevicePointer {
        DevicePointer(sync::lock(&self.state).global.reserve(bytes))
    }

    /// Backs reserved addresses with zeroed memory.
    ///
    /// # Errors
    /// [`DriverErrorKind::OutOfMemory`]; addresses that have memory.
    pub fn back_addresses(&self, start: DevicePointer, bytes: usize) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        if state.global.find(start.0, 1).is_some() {
            return Err(invalid("back_addresses", format!("{:#x} has memory", start.0)));
        }
        self.check_free(&mut state, "back_addresses", bytes)?;
        state.global.back(start.0, bytes);
        Ok(())
    }

    pub(crate) fn free_bytes(&self, state: &State) -> u64 {
        self.settings.memory_bytes.saturating_sub(state.global.used_bytes() + state.taken_bytes)
    }

    fn check_free(&self, state: &mut State, call: &'static str, bytes: usize) -> Result<(), DriverError> {
        let free = self.free_bytes(state);
        let out_of_memory = |text: String| Err(DriverError { call, kind: DriverErrorKind::OutOfMemory, text });
        if state.is_planned_out_of_memory() {
            return out_of_memory(format!("planned; {free} bytes are free"));
        }
        if bytes as u64 > free {
            return out_of_memory(format!("{bytes} bytes; {free} of {} are free", self.settings.memory_bytes));
        }
        Ok(())
    }

    /// The bytes of a parameter among all parameters of a kernel; `None` past the last one.
    pub fn parameter(&self, function: FunctionHandle, index: usize) -> Option<std::ops::Range<usize>> {
        let state = sync::lock(&self.state);
        let parameter = state.functions.get(&function)?.kernel.parameters.get(index)?;
        Some(parameter.offset..parameter.offset + parameter.bytes)
    }

    /// The instructions that have run so far.
    pub fn counters(&self) -> Counters {
        sync::lock(&self.state).counts.counters()
    }

    pub(crate) fn submit(&self, call: &'static str, stream: StreamHandle, work: Work) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        state.submit(call, stream, work)?;
        self.hold_backlog(&mut state);
        Ok(())
    }

    /// Runs work while more is waiting than may wait.
    fn hold_backlog(&self, state: &mut State) {
        while state.backlog() > self.settings.max_backlog && state.run_any() {}
    }

    pub(crate) fn check_shape(&self, function: &Function, shape: LaunchShape) -> Result<(), DriverError> {
        let kernel = &function.kernel;
        let refuse = |text: String| Err(invalid("launch", format!("{}: {text}", kernel.name)));
        let [x, y, z] = shape.block;
        let threads = u64::from(x) * u64::from(y) * u64::from(z);
        let most = kernel.max_threads.unwrap_or(MAX_THREADS).min(MAX_THREADS);
        if threads == 0 || threads > u64::from(most) || z > 64 {
            return refuse(format!("a block of {x} x {y} x {z} threads; the kernel takes 1 to {most}, 64 along z"));
        }
        if kernel.exact_threads.is_some_and(|exact| exact != shape.block) {
            return refuse(format!("a block of {x} x {y} x {z} threads; it must have {:?}", kernel.exact_threads));
        }
        let [grid_x, grid_y, grid_z] = shape.grid;
        if shape.grid.contains(&0) || grid_x > i32::MAX as u32 || grid_y > 65535 || grid_z > 65535 {
            return refuse(format!(
                "a grid of {grid_x} x {grid_y} x {grid_z} blocks; at most 2147483647 x 65535 x 65535"
            ));
        }
        let all = kernel.shared_bytes as u64 + u64::from(shape.shared_bytes);
        if shape.shared_bytes > function.allowed_shared || all > u64::from(self.settings.max_shared_bytes) {
            let (allowed, most) = (function.allowed_shared, self.settings.max_shared_bytes);
            return refuse(format!(
                "{all} bytes of shared memory, {} of them dynamic; {allowed} dynamic are allowed, and {most} in all",
                shape.shared_bytes
            ));
        }
        Ok(())
    }

    pub(crate) fn check_range(
        state: &State,
        call: &'static str,
        pointer: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError> {
        match state.global.find(pointer.0, bytes) {
            Some(_) => Ok(()),
            None => {
                let nearest = state.global.nearest(pointer.0);
                Err(invalid(call, format!("{bytes} bytes at {:#x} are not allocated: {nearest}", pointer.0)))
            }
        }
    }

    fn check_pinned(
        state: &State,
        call: &'static str,
        pinned: PinnedHandle,
        offset: usize,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let Some(memory) = state.pinned.get(&pinned) else {
            return Err(invalid(call, format!("pinned memory {} does not exist", pinned.0)));
        };
        if offset.checked_add(bytes).is_none_or(|end| end > memory.len()) {
            let size = memory.len();
            return Err(invalid(call, format!("{bytes} bytes from {offset} on; the pinned memory has {size}")));
        }
        Ok(())
    }
}

impl Gpu for SoftGpu {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Threads have no GPU of their own here.
    fn enter(&self) -> Result<(), DriverError> {
        sync::lock(&self.state).check("enter")
    }

    fn free_memory(&self) -> Result<FreeMemory, DriverError> {
        let mut state = sync::lock(&self.state);
        state.check("free_memory")?;
        let total_bytes = self.settings.memory_bytes;
        Ok(FreeMemory { free_bytes: self.free_bytes(&state), total_bytes })
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePointer, DriverError> {
        let mut state = sync::lock(&self.state);
        state.check("allocate")?;
        self.check_free(&mut state, "allocate", bytes)?;
        Ok(DevicePointer(state.global.allocate(bytes)))
    }

    fn free(&self, pointer: DevicePointer) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        if state.global.free(pointer.0) {
            return Ok(());
        }
        Err(invalid("free", format!("{:#x} was not returned by allocate, or was freed before", pointer.0)))
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<PinnedHandle, DriverError> {
        let mut state = sync::lock(&self.state);
        state.check("allocate_pinned")?;
        let handle = PinnedHandle(state.handle());
        state.pinned.insert(handle, vec![0; bytes]);
        Ok(handle)
    }

    fn free_pinned(&self, pinned: PinnedHandle) -> Result<(), DriverError> {
        let removed = sync::lock(&self.state).pinned.remove(&pinned);
        removed.map(|_| ()).ok_or_else(|| invalid("free_pinned", format!("pinned memory {} does not exist", pinned.0)))
    }

    fn write_pinned(&self, pinned: PinnedHandle, offset_bytes: usize, from: &[u8]) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        SoftGpu::check_pinned(&state, "write_pinned", pinned, offset_bytes, from.len())?;
        if let Some(memory) = state.pinned.get_mut(&pinned) {
            memory[offset_bytes..offset_bytes + from.len()].copy_from_slice(from);
        }
        Ok(())
    }

    fn read_pinned(&self, pinned: PinnedHandle, offset_bytes: usize, to: &mut [u8]) -> Result<(), DriverError> {
        let state = sync::lock(&self.state);
        SoftGpu::check_pinned(&state, "read_pinned", pinned, offset_bytes, to.len())?;
        if let Some(memory) = state.pinned.get(&pinned) {
            to.copy_from_slice(&memory[offset_bytes..offset_bytes + to.len()]);
        }
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
        {
            let state = sync::lock(&self.state);
            SoftGpu::check_pinned(&state, "upload", pinned, offset_bytes, bytes)?;
            SoftGpu::check_range(&state, "upload", to, bytes)?;
        }
        self.submit("upload", stream, Work::Upload { to, pinned, offset_bytes, bytes })
    }

    fn download(
        &self,
        stream: StreamHandle,
        pinned: PinnedHandle,
        offset_bytes: usize,
        from: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError> {
        {
            let state = sync::lock(&self.state);
            SoftGpu::check_pinned(&state, "download", pinned, offset_bytes, bytes)?;
            SoftGpu::check_range(&state, "download", from, bytes)?;
        }
        self.submit("download", stream, Work::Download { pinned, offset_bytes, from, bytes })
    }

    fn copy(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        from: DevicePointer,
        bytes: usize,
    ) -> Result<(), DriverError> {
        {
            let state = sync::lock(&self.state);
            SoftGpu::check_range(&state, "copy", to, bytes)?;
            SoftGpu::check_range(&state, "copy", from, bytes)?;
        }
        if to.0.abs_diff(from.0) < bytes as u64 {
            return Err(invalid("copy", format!("{bytes} bytes from {:#x} to {:#x} overlap", from.0, to.0)));
        }
        self.submit("copy", stream, Work::Copy { to, from, bytes })
    }

    fn fill(&self, stream: StreamHandle, to: DevicePointer, value: u8, bytes: usize) -> Result<(), DriverError> {
        SoftGpu::check_range(&sync::lock(&self.state), "fill", to, bytes)?;
        self.submit("fill", stream, Work::Fill { to, value, bytes })
    }

    fn create_stream(&self) -> Result<StreamHandle, DriverError> {
        let mut state = sync::lock(&self.state);
        state.check("create_stream")?;
        let handle = StreamHandle(state.handle());
        state.streams.insert(handle, Queue::default());
        state.dealt.deal(handle, Deal::AtCreation);
        Ok(handle)
    }

    /// The order of streams is the seed's, whatever they are.
    fn create_urgent_stream(&self) -> Result<StreamHandle, DriverError> {
        self.create_stream()
    }

    fn destroy_stream(&self, stream: StreamHandle) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        let is_empty = state.queue("destroy_stream", stream)?.is_empty();
        if !is_empty && state.failure.is_none() {
            return Err(invalid("destroy_stream", format!("stream {} has work that has not ended", stream.0)));
        }
        state.streams.remove(&stream);
        Ok(())
    }

    fn synchronize(&self, stream: StreamHandle) -> Result<(), DriverError> {
        loop {
            // The lock is let go between pieces of work, so that other threads submit theirs.
            let mut state = sync::lock(&self.state);
            if state.captures.iter().any(|capture| capture.has_stream(stream)) {
                return Err(invalid("synchronize", format!("stream {} is being captured", stream.0)));
            }
            if state.queue("synchronize", stream)?.is_empty() || state.failure.is_some() {
                state.host_saw_stream(stream);
                return state.check("synchronize");
            }
            if !state.run_any() {
                if !state.promised.is_empty() {
                    // Another thread records what this stream waits for.
                    drop(state);
                    std::thread::sleep(PAUSE);
                    continue;
                }
                let text = format!("stream {} waits for an event that no stream reaches", stream.0);
                return Err(DriverError { call: "synchronize", kind: DriverErrorKind::Timeout, text });
            }
        }
    }

    fn has_ended(&self, stream: StreamHandle) -> Result<bool, DriverError> {
        let mut state = sync::lock(&self.state);
        for _ in 0..WORK_OF_A_QUERY {
            state.run_any();
        }
        state.check("has_ended")?;
        let has_ended = state.queue("has_ended", stream)?.is_empty();
        if has_ended {
            state.host_saw_stream(stream);
        }
        Ok(has_ended)
    }

    fn create_event(&self) -> Result<EventHandle, DriverError> {
        let mut state = sync::lock(&self.state);
        state.check("create_event")?;
        let handle = EventHandle(state.handle());
        state.events.insert(handle, None);
        Ok(handle)
    }

    fn destroy_event(&self, event: EventHandle) -> Result<(), DriverError> {
        let removed = sync::lock(&self.state).events.remove(&event);
        removed.map(|_| ()).ok_or_else(|| invalid("destroy_event", format!("event {} does not exist", event.0)))
    }

    fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        if !state.events.contains_key(&event) {
            return Err(invalid("record", format!("event {} does not exist", event.0)));
        }
        if let Some(capture) = state.captures.iter_mut().find(|capture| capture.has_stream(stream)) {
            capture.record(event, stream);
            return Ok(());
        }
        let point = state.points.add();
        state.submit("record", stream, Work::Record(point))?;
        state.events.insert(event, Some(point));
        Ok(())
    }

    fn wait(&self, stream: StreamHandle, event: EventHandle) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        let Some(point) = state.events.get(&event).copied() else {
            return Err(invalid("wait", format!("event {} does not exist", event.0)));
        };
        if let Some(capture) = state.captures.iter_mut().find(|capture| capture.has_event(event)) {
            capture.wait(stream, event);
            return Ok(());
        }
        if state.captures.iter().any(|capture| capture.has_stream(stream)) {
            let text = format!("event {} was recorded outside of the capture of stream {}", event.0, stream.0);
            return Err(invalid("wait", text));
        }
        match point {
            Some(point) => state.submit("wait", stream, Work::Wait(point)),
            // An event that was never recorded orders nothing.
            None => state.queue("wait", stream).map(|_| ()),
        }
    }

    fn is_reached(&self, event: EventHandle) -> Result<bool, DriverError> {
        let mut state = sync::lock(&self.state);
        for _ in 0..WORK_OF_A_QUERY {
            state.run_any();
        }
        state.check("is_reached")?;
        match state.events.get(&event).copied() {
            Some(None) => Ok(true),
            Some(Some(point)) => {
                let is_reached = state.points.reached(point).is_some();
                state.host_saw_point(point);
                Ok(is_reached)
            }
            None => Err(invalid("is_reached", format!("event {} does not exist", event.0))),
        }
    }

    fn elapsed_ms(&self, from: EventHandle, to: EventHandle) -> Result<f32, DriverError> {
        let state = sync::lock(&self.state);
        let mut times = [None, None];
        for (time, event) in times.iter_mut().zip([from, to]) {
            let Some(point) = state.events.get(&event) else {
                return Err(invalid("elapsed_ms", format!("event {} does not exist", event.0)));
            };
            *time = point.and_then(|point| state.points.reached(point));
        }
        match times {
            [Some(from), Some(to)] => Ok(to.saturating_duration_since(from).as_secs_f32() * 1e3),
            _ => Err(DriverError {
                call: "elapsed_ms",
                kind: DriverErrorKind::NotReady,
                text: format!("event {} or {} is not reached", from.0, to.0),
            }),
        }
    }

    fn load(&self, image: ModuleImage) -> Result<ModuleHandle, DriverError> {
        let refuse = |text: String| DriverError { call: "load", kind: DriverErrorKind::InvalidImage, text };
        let text = match image {
            ModuleImage::Ptx(text) => text,
            ModuleImage::Cubin(_) => return Err(refuse("this GPU runs PTX; got a CUBIN".into())),
        };
        let mut state = sync::lock(&self.state);
        state.check("load")?;
        let decoded = self.code.as_ref().map_or_else(|| Decoded::of(text).map(Arc::new), |code| code.decoded(text));
        let module = decoded.and_then(|decoded| decoded.load(&mut state.global));
        let module = module.map_err(|error| refuse(error.to_string()))?;
        let handle = ModuleHandle(state.handle());
        state.modules.insert(handle, module);
        Ok(handle)
    }

    fn unload(&self, module: ModuleHandle) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        let Some(removed) = state.modules.remove(&module) else {
            return Err(invalid("unload", format!("module {} does not exist", module.0)));
        };
        for start in removed.allocations {
            state.global.free(start);
        }
        state.functions.retain(|_, function| function.module != module);
        Ok(())
    }

    fn function(&self, module: ModuleHandle, name: &str) -> Result<FunctionHandle, DriverError> {
        let mut state = sync::lock(&self.state);
        let Some(loaded) = state.modules.get(&module) else {
            return Err(invalid("function", format!("module {} does not exist", module.0)));
        };
        let Some(kernel) = loaded.kernels.get(name).cloned() else {
            let mut names: Vec<&str> = loaded.kernels.keys().map(String::as_str).collect();
            names.sort_unstable();
            return Err(invalid("function", format!("there is no kernel {name}; there are {}", names.join(", "))));
        };
        let handle = FunctionHandle(state.handle());
        state.functions.insert(handle, Function { kernel, module, allowed_shared: PLAIN_SHARED });
        Ok(handle)
    }

    fn function_facts(&self, function: FunctionHandle) -> Result<FunctionFacts, DriverError> {
        let state = sync::lock(&self.state);
        let Some(function) = state.functions.get(&function) else {
            return Err(invalid("function_facts", format!("kernel {} does not exist", function.0)));
        };
        let kernel = &function.kernel;
        Ok(FunctionFacts {
            registers: (kernel.small + 2 * kernel.wide) as u32,
            shared_bytes: kernel.shared_bytes as u32,
            local_bytes: kernel.local_bytes as u32,
            max_threads_per_block: kernel.max_threads.unwrap_or(MAX_THREADS).min(MAX_THREADS),
        })
    }

    fn allow_shared(&self, function: FunctionHandle, bytes: u32) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        let most = self.settings.max_shared_bytes;
        let Some(function) = state.functions.get_mut(&function) else {
            return Err(invalid("allow_shared", format!("kernel {} does not exist", function.0)));
        };
        if u64::from(bytes) + function.kernel.shared_bytes as u64 > u64::from(most) {
            let fixed = function.kernel.shared_bytes;
            return Err(invalid(
                "allow_shared",
                format!("{bytes} bytes with {fixed} static; a block has at most {most}"),
            ));
        }
        function.allowed_shared = bytes;
        Ok(())
    }

    fn tensor_map(&self, tiles: &TensorTiles) -> Result<TensorMap, DriverError> {
        sync::lock(&self.state).check("tensor_map")?;
        if self.settings.capability.major < 9 {
            let text = format!("tensor maps need sm_90 or later; got {}", self.settings.capability);
            return Err(invalid("tensor_map", text));
        }
        tiles.check().map_err(|text| invalid("tensor_map", text))?;
        Ok(encode(tiles))
    }

    fn launch(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        shape: LaunchShape,
        arguments: &Arguments,
    ) -> Result<(), DriverError> {
        let work = self.launch_work(function, shape, arguments)?;
        let ranges = sync::lock(&self.state).expected.remove(&stream);
        self.submit("launch", stream, Work::Launch(Arc::new(LaunchWork { ranges, ..work })))
    }

    fn begin_capture(&self, stream: StreamHandle) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        state.queue("begin_capture", stream)?;
        if state.captures.iter().any(|capture| capture.has_stream(stream)) {
            return Err(invalid("begin_capture", format!("stream {} is being captured", stream.0)));
        }
        state.captures.push(Capture::new(stream));
        Ok(())
    }

    fn end_capture(&self, stream: StreamHandle) -> Result<GraphHandle, DriverError> {
        let mut state = sync::lock(&self.state);
        let Some(place) = state.captures.iter().position(|capture| capture.origin() == stream) else {
            return Err(invalid("end_capture", format!("no capture began on stream {}", stream.0)));
        };
        let graph = state.captures.remove(place).end().map_err(|missing| {
            invalid("end_capture", format!("{missing} pieces of work of other streams were not joined"))
        })?;
        let handle = GraphHandle(state.handle());
        state.graphs.insert(handle, Arc::new(graph));
        Ok(handle)
    }

    fn create_graph(&self, nodes: &[KernelNode<'_>]) -> Result<GraphHandle, DriverError> {
        self.graph_of(nodes)
    }

    fn set_node(&self, graph: GraphHandle, place: usize, node: &KernelNode<'_>) -> Result<(), DriverError> {
        self.change_node(graph, place, node)
    }

    fn launch_graph(&self, stream: StreamHandle, graph: GraphHandle) -> Result<(), DriverError> {
        let mut state = sync::lock(&self.state);
        state.check("launch_graph")?;
        let Some(graph) = state.graphs.get(&graph).cloned() else {
            return Err(invalid("launch_graph", format!("graph {} does not exist", graph.0)));
        };
        state.push("launch_graph", stream, Item::Graph(GraphRun::new(graph)))?;
        self.hold_backlog(&mut state);
        Ok(())
    }

    fn destroy_graph(&self, graph: GraphHandle) -> Result<(), DriverError> {
        let removed = sync::lock(&self.state).graphs.remove(&graph);
        removed.map(|_| ()).ok_or_else(|| invalid("destroy_graph", format!("graph {} does not exist", graph.0)))
    }
}
