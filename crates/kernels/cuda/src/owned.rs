//! Resources of a rank on a GPU, released when nobody has it any more.

use std::sync::Arc;

use gpu::{
    DevicePointer, DriverError, EventHandle, Gpu, GraphHandle, ModuleHandle, ModuleImage, PinnedHandle, StreamHandle,
};

/// Memory, a stream, an event, code or a graph of a GPU. Work that uses it has ended before it is dropped.
pub(crate) struct Owned<H: Copy> {
    gpu: Arc<dyn Gpu>,
    handle: H,
    release: fn(&(dyn Gpu + 'static), H) -> Result<(), DriverError>,
}

impl<H: Copy> Owned<H> {
    /// As the driver takes it.
    pub fn handle(&self) -> H {
        self.handle
    }
}

impl<H: Copy> Drop for Owned<H> {
    fn drop(&mut self) {
        // There is nobody to tell of an error: the rank ends, or fails already.
        let _ = (self.release)(&*self.gpu, self.handle);
    }
}

/// Zeroed memory of the GPU.
pub(crate) fn allocate(gpu: &Arc<dyn Gpu>, bytes: usize) -> Result<Owned<DevicePointer>, DriverError> {
    let handle = gpu.allocate(bytes)?;
    Ok(Owned { gpu: Arc::clone(gpu), handle, release: <dyn Gpu>::free })
}

/// Pinned memory of the host.
pub(crate) fn allocate_pinned(gpu: &Arc<dyn Gpu>, bytes: usize) -> Result<Owned<PinnedHandle>, DriverError> {
    let handle = gpu.allocate_pinned(bytes)?;
    Ok(Owned { gpu: Arc::clone(gpu), handle, release: <dyn Gpu>::free_pinned })
}

pub(crate) fn create_stream(gpu: &Arc<dyn Gpu>) -> Result<Owned<StreamHandle>, DriverError> {
    let handle = gpu.create_stream()?;
    Ok(Owned { gpu: Arc::clone(gpu), handle, release: <dyn Gpu>::destroy_stream })
}

/// A stream whose kernels come before those of usual ones.
pub(crate) fn create_urgent_stream(gpu: &Arc<dyn Gpu>) -> Result<Owned<StreamHandle>, DriverError> {
    let handle = gpu.create_urgent_stream()?;
    Ok(Owned { gpu: Arc::clone(gpu), handle, release: <dyn Gpu>::destroy_stream })
}

pub(crate) fn create_event(gpu: &Arc<dyn Gpu>) -> Result<Owned<EventHandle>, DriverError> {
    let handle = gpu.create_event()?;
    Ok(Owned { gpu: Arc::clone(gpu), handle, release: <dyn Gpu>::destroy_event })
}

/// Loaded code.
pub(crate) fn load(gpu: &Arc<dyn Gpu>, image: ModuleImage<'_>) -> Result<Owned<ModuleHandle>, DriverError> {
    let handle = gpu.load(image)?;
    Ok(Owned { gpu: Arc::clone(gpu), handle, release: <dyn Gpu>::unload })
}

/// A graph that was made.
pub(crate) fn own_graph(gpu: &Arc<dyn Gpu>, handle: GraphHandle) -> Owned<GraphHandle> {
    Owned { gpu: Arc::clone(gpu), handle, release: <dyn Gpu>::destroy_graph }
}
