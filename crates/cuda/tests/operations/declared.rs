//! A GPU in software on which a kernel may use no memory but that of its operation's tensors.

use std::sync::{Arc, Mutex};

use device::{Op, Tensor};
use gpu::{
    Arguments, DeviceFacts, DevicePointer, DriverError, EventHandle, FreeMemory, FunctionFacts, FunctionHandle, Gpu,
    GraphHandle, LaunchShape, ModuleHandle, ModuleImage, PinnedHandle, StreamHandle,
};
use softgpu::{AccessRanges, Settings, SoftGpu};

pub struct Declared {
    soft: SoftGpu,
    /// Of every launch until the next operation.
    ranges: Mutex<AccessRanges>,
}

impl Declared {
    pub fn new(settings: Settings) -> Arc<Declared> {
        Arc::new(Declared { soft: SoftGpu::new(0, settings), ranges: Mutex::default() })
    }

    /// From here on, launches use the tensors of `op` in the arena at `arena`.
    pub fn expect(&self, op: &Op, arena: DevicePointer) {
        let operands = op.operands();
        let place = |tensor: Tensor| (arena.offset(tensor.offset_bytes), tensor.span_bytes());
        // `Op::operands` counts for costs, where a lookup reads as many rows as it writes; its table is added
        // here and nowhere else.
        let table = if let Op::EmbeddingLookup { table, .. } = op { Some(*table) } else { None };
        let reads: Vec<_> = operands.reads().chain(table).map(place).collect();
        let writes: Vec<_> = operands.writes().map(place).collect();
        *self.ranges.lock().expect("no panic") = AccessRanges::new(&reads, &writes);
    }
}

macro_rules! forwarded {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $result {
            self.soft.$name($($argument),*)
        })*
    };
}

impl Gpu for Declared {
    fn launch(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        shape: LaunchShape,
        arguments: &Arguments,
    ) -> Result<(), DriverError> {
        self.soft.expect_access(stream, self.ranges.lock().expect("no panic").clone());
        self.soft.launch(stream, function, shape, arguments)
    }

    forwarded! {
        fn facts() -> &DeviceFacts;
        fn free_memory() -> Result<FreeMemory, DriverError>;
        fn allocate(bytes: usize) -> Result<DevicePointer, DriverError>;
        fn free(pointer: DevicePointer) -> Result<(), DriverError>;
        fn allocate_pinned(bytes: usize) -> Result<PinnedHandle, DriverError>;
        fn free_pinned(pinned: PinnedHandle) -> Result<(), DriverError>;
        fn write_pinned(pinned: PinnedHandle, offset_bytes: usize, from: &[u8]) -> Result<(), DriverError>;
        fn read_pinned(pinned: PinnedHandle, offset_bytes: usize, to: &mut [u8]) -> Result<(), DriverError>;
        fn upload(
            stream: StreamHandle,
            to: DevicePointer,
            pinned: PinnedHandle,
            offset_bytes: usize,
            bytes: usize
        ) -> Result<(), DriverError>;
        fn download(
            stream: StreamHandle,
            pinned: PinnedHandle,
            offset_bytes: usize,
            from: DevicePointer,
            bytes: usize
        ) -> Result<(), DriverError>;
        fn copy(stream: StreamHandle, to: DevicePointer, from: DevicePointer, bytes: usize) -> Result<(), DriverError>;
        fn fill(stream: StreamHandle, to: DevicePointer, value: u8, bytes: usize) -> Result<(), DriverError>;
        fn create_stream() -> Result<StreamHandle, DriverError>;
        fn destroy_stream(stream: StreamHandle) -> Result<(), DriverError>;
        fn synchronize(stream: StreamHandle) -> Result<(), DriverError>;
        fn has_ended(stream: StreamHandle) -> Result<bool, DriverError>;
        fn create_event() -> Result<EventHandle, DriverError>;
        fn destroy_event(event: EventHandle) -> Result<(), DriverError>;
        fn record(event: EventHandle, stream: StreamHandle) -> Result<(), DriverError>;
        fn wait(stream: StreamHandle, event: EventHandle) -> Result<(), DriverError>;
        fn is_reached(event: EventHandle) -> Result<bool, DriverError>;
        fn elapsed_ms(from: EventHandle, to: EventHandle) -> Result<f32, DriverError>;
        fn load(image: ModuleImage<'_>) -> Result<ModuleHandle, DriverError>;
        fn unload(module: ModuleHandle) -> Result<(), DriverError>;
        fn function(module: ModuleHandle, name: &str) -> Result<FunctionHandle, DriverError>;
        fn function_facts(function: FunctionHandle) -> Result<FunctionFacts, DriverError>;
        fn allow_shared(function: FunctionHandle, bytes: u32) -> Result<(), DriverError>;
        fn begin_capture(stream: StreamHandle) -> Result<(), DriverError>;
        fn end_capture(stream: StreamHandle) -> Result<GraphHandle, DriverError>;
        fn launch_graph(stream: StreamHandle, graph: GraphHandle) -> Result<(), DriverError>;
        fn destroy_graph(graph: GraphHandle) -> Result<(), DriverError>;
    }
}
