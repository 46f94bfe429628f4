//! A GPU that computes nothing and whose memory is zero: the calls of a rank with a model of any size are counted in
//! seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpu::{
    Arguments, DeviceFacts, DevicePointer, Driver, DriverError, EventHandle, FreeMemory, FunctionFacts, FunctionHandle,
    Gpu, GraphHandle, KernelNode, LaunchShape, ModuleHandle, ModuleImage, PinnedHandle, StreamHandle, TensorMap,
    TensorTiles,
};
use softgpu::Settings;

/// The driver of one idle GPU.
pub struct IdleDriver;

/// See the top of the file.
struct IdleGpu {
    facts: DeviceFacts,
    handles: AtomicU64,
}

impl IdleGpu {
    /// A number that no handle had, with addresses far apart.
    fn handle(&self) -> u64 {
        self.handles.fetch_add(1 << 40, Ordering::Relaxed)
    }
}

impl Driver for IdleDriver {
    fn version(&self) -> Result<u32, DriverError> {
        Ok(13_000)
    }

    fn devices(&self) -> Result<Vec<DeviceFacts>, DriverError> {
        softgpu::SoftDriver::new(1, Settings { memory_bytes: 80 << 30, ..Settings::default() }).devices()
    }

    fn open(&self, _: usize) -> Result<Arc<dyn Gpu>, DriverError> {
        let facts = self.devices()?.remove(0);
        Ok(Arc::new(IdleGpu { facts, handles: AtomicU64::new(1 << 40) }))
    }
}

/// Methods that do nothing.
macro_rules! nothing {
    ($($method:ident($($argument:ty),*);)*) => {
        $(fn $method(&self, $(_: $argument),*) -> Result<(), DriverError> {
            Ok(())
        })*
    };
}

impl Gpu for IdleGpu {
    nothing! {
        enter();
        free(DevicePointer);
        free_pinned(PinnedHandle);
        write_pinned(PinnedHandle, usize, &[u8]);
        upload(StreamHandle, DevicePointer, PinnedHandle, usize, usize);
        download(StreamHandle, PinnedHandle, usize, DevicePointer, usize);
        copy(StreamHandle, DevicePointer, DevicePointer, usize);
        fill(StreamHandle, DevicePointer, u8, usize);
        destroy_stream(StreamHandle);
        synchronize(StreamHandle);
        destroy_event(EventHandle);
        record(EventHandle, StreamHandle);
        wait(StreamHandle, EventHandle);
        unload(ModuleHandle);
        allow_shared(FunctionHandle, u32);
        launch(StreamHandle, FunctionHandle, LaunchShape, &Arguments);
        begin_capture(StreamHandle);
        set_node(GraphHandle, usize, &KernelNode<'_>);
        launch_graph(StreamHandle, GraphHandle);
        destroy_graph(GraphHandle);
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn free_memory(&self) -> Result<FreeMemory, DriverError> {
        Ok(FreeMemory { free_bytes: self.facts.memory_bytes, total_bytes: self.facts.memory_bytes })
    }

    fn allocate(&self, _: usize) -> Result<DevicePointer, DriverError> {
        Ok(DevicePointer(self.handle()))
    }

    fn allocate_pinned(&self, _: usize) -> Result<PinnedHandle, DriverError> {
        Ok(PinnedHandle(self.handle()))
    }

    fn read_pinned(&self, _: PinnedHandle, _: usize, to: &mut [u8]) -> Result<(), DriverError> {
        to.fill(0);
        Ok(())
    }

    fn create_stream(&self) -> Result<StreamHandle, DriverError> {
        Ok(StreamHandle(self.handle()))
    }

    fn create_urgent_stream(&self) -> Result<StreamHandle, DriverError> {
        self.create_stream()
    }

    fn has_ended(&self, _: StreamHandle) -> Result<bool, DriverError> {
        Ok(true)
    }

    fn create_event(&self) -> Result<EventHandle, DriverError> {
        Ok(EventHandle(self.handle()))
    }

    fn is_reached(&self, _: EventHandle) -> Result<bool, DriverError> {
        Ok(true)
    }

    fn elapsed_ms(&self, _: EventHandle, _: EventHandle) -> Result<f32, DriverError> {
        Ok(0.0)
    }

    fn load(&self, _: ModuleImage) -> Result<ModuleHandle, DriverError> {
        Ok(ModuleHandle(self.handle()))
    }

    fn function(&self, _: ModuleHandle, _: &str) -> Result<FunctionHandle, DriverError> {
        Ok(FunctionHandle(self.handle()))
    }

    fn function_facts(&self, _: FunctionHandle) -> Result<FunctionFacts, DriverError> {
        Ok(FunctionFacts { registers: 32, shared_bytes: 0, local_bytes: 0, max_threads_per_block: 1024 })
    }

    fn tensor_map(&self, tiles: &TensorTiles) -> Result<TensorMap, DriverError> {
        let mut bytes = [0; TensorMap::BYTES];
        bytes[..8].copy_from_slice(&tiles.address.0.to_le_bytes());
        Ok(TensorMap::from_bytes(bytes))
    }

    fn end_capture(&self, _: StreamHandle) -> Result<GraphHandle, DriverError> {
        Ok(GraphHandle(self.handle()))
    }

    fn create_graph(&self, _: &[KernelNode<'_>]) -> Result<GraphHandle, DriverError> {
        Ok(GraphHandle(self.handle()))
    }
}
