//! A GPU in software on which a kernel may use no memory but that of its operation's tensors.

use std::sync::{Arc, Mutex};

use device::{Op, Operands, Tensor};
use gpu::{Arguments, DevicePointer, DriverError, FunctionHandle, Gpu, LaunchShape, StreamHandle};
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
        let place = |tensor: Tensor| (arena.offset(tensor.offset_bytes), tensor.span_bytes());
        // `Op::operands` counts for costs, where a lookup reads as many rows as it writes; its table is added
        // here and nowhere else.
        let table = if let Op::EmbeddingLookup { table, .. } = op { Some(*table) } else { None };
        // The second of two reads what the first has written.
        let operands: Vec<Operands> = op.unfused().map(|op| op.operands()).collect();
        let reads: Vec<_> = operands.iter().flat_map(Operands::reads).chain(table).map(place).collect();
        let writes: Vec<_> = operands.iter().flat_map(Operands::writes).map(place).collect();
        *self.ranges.lock().expect("no panic") = AccessRanges::new(&reads, &writes);
    }
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

    gpu::forward!(
        soft: facts, enter, memory, copies, streams, events, elapsed_ms, load, unload, function, function_facts,
        allow_shared, tensor_map, graphs
    );
}
