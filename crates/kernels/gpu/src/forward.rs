//! The methods of a GPU that is a GPU around another one.

/// Methods of [`crate::Gpu`] that are passed to the GPU in a field: `forward!(inner: free, unload)`. Groups of methods
/// have names, too: `memory`, `copies`, `streams`, `events` (without their times) and `graphs`.
#[macro_export]
macro_rules! forward {
    ($inner:tt: $($method:ident),* $(,)?) => {
        $($crate::forward!(@ $method $inner);)*
    };
    (@ $method:ident $inner:tt ($($argument:ident: $type:ty),*) -> $result:ty) => {
        fn $method(&self, $($argument: $type),*) -> Result<$result, $crate::DriverError> {
            self.$inner.$method($($argument),*)
        }
    };
    (@ memory $inner:tt) => {
        $crate::forward!(
            $inner: free_memory, allocate, free, allocate_pinned, free_pinned, write_pinned, read_pinned
        );
    };
    (@ copies $inner:tt) => { $crate::forward!($inner: upload, download, copy, fill); };
    (@ streams $inner:tt) => {
        $crate::forward!($inner: create_stream, create_urgent_stream, destroy_stream, synchronize, has_ended);
    };
    (@ events $inner:tt) => { $crate::forward!($inner: create_event, destroy_event, record, wait, is_reached); };
    (@ graphs $inner:tt) => {
        $crate::forward!($inner: begin_capture, end_capture, create_graph, set_node, launch_graph, destroy_graph);
    };
    (@ facts $inner:tt) => {
        fn facts(&self) -> &$crate::DeviceFacts {
            self.$inner.facts()
        }
    };
    (@ enter $inner:tt) => { $crate::forward!(@ enter $inner () -> ()); };
    (@ free_memory $inner:tt) => { $crate::forward!(@ free_memory $inner () -> $crate::FreeMemory); };
    (@ allocate $inner:tt) => { $crate::forward!(@ allocate $inner (bytes: usize) -> $crate::DevicePointer); };
    (@ free $inner:tt) => { $crate::forward!(@ free $inner (pointer: $crate::DevicePointer) -> ()); };
    (@ allocate_pinned $inner:tt) => {
        $crate::forward!(@ allocate_pinned $inner (bytes: usize) -> $crate::PinnedHandle);
    };
    (@ free_pinned $inner:tt) => { $crate::forward!(@ free_pinned $inner (pinned: $crate::PinnedHandle) -> ()); };
    (@ write_pinned $inner:tt) => {
        $crate::forward!(@ write_pinned $inner (pinned: $crate::PinnedHandle, offset_bytes: usize, from: &[u8]) -> ());
    };
    (@ read_pinned $inner:tt) => {
        $crate::forward!(@ read_pinned $inner (pinned: $crate::PinnedHandle, offset_bytes: usize, to: &mut [u8]) -> ());
    };
    (@ upload $inner:tt) => {
        $crate::forward!(@ upload $inner (
            stream: $crate::StreamHandle,
            to: $crate::DevicePointer,
            pinned: $crate::PinnedHandle,
            offset_bytes: usize,
            bytes: usize
        ) -> ());
    };
    (@ download $inner:tt) => {
        $crate::forward!(@ download $inner (
            stream: $crate::StreamHandle,
            pinned: $crate::PinnedHandle,
            offset_bytes: usize,
            from: $crate::DevicePointer,
            bytes: usize
        ) -> ());
    };
    (@ copy $inner:tt) => {
        $crate::forward!(@ copy $inner (
            stream: $crate::StreamHandle,
            to: $crate::DevicePointer,
            from: $crate::DevicePointer,
            bytes: usize
        ) -> ());
    };
    (@ fill $inner:tt) => {
        $crate::forward!(@ fill $inner (
            stream: $crate::StreamHandle,
            to: $crate::DevicePointer,
            value: u8,
            bytes: usize
        ) -> ());
    };
    (@ create_stream $inner:tt) => { $crate::forward!(@ create_stream $inner () -> $crate::StreamHandle); };
    (@ create_urgent_stream $inner:tt) => {
        $crate::forward!(@ create_urgent_stream $inner () -> $crate::StreamHandle);
    };
    (@ destroy_stream $inner:tt) => {
        $crate::forward!(@ destroy_stream $inner (stream: $crate::StreamHandle) -> ());
    };
    (@ synchronize $inner:tt) => { $crate::forward!(@ synchronize $inner (stream: $crate::StreamHandle) -> ()); };
    (@ has_ended $inner:tt) => { $crate::forward!(@ has_ended $inner (stream: $crate::StreamHandle) -> bool); };
    (@ create_event $inner:tt) => { $crate::forward!(@ create_event $inner () -> $crate::EventHandle); };
    (@ destroy_event $inner:tt) => { $crate::forward!(@ destroy_event $inner (event: $crate::EventHandle) -> ()); };
    (@ record $inner:tt) => {
        $crate::forward!(@ record $inner (event: $crate::EventHandle, stream: $crate::StreamHandle) -> ());
    };
    (@ wait $inner:tt) => {
        $crate::forward!(@ wait $inner (stream: $crate::StreamHandle, event: $crate::EventHandle) -> ());
    };
    (@ is_reached $inner:tt) => { $crate::forward!(@ is_reached $inner (event: $crate::EventHandle) -> bool); };
    (@ elapsed_ms $inner:tt) => {
        $crate::forward!(@ elapsed_ms $inner (from: $crate::EventHandle, to: $crate::EventHandle) -> f32);
    };
    (@ load $inner:tt) => { $crate::forward!(@ load $inner (image: $crate::ModuleImage<'_>) -> $crate::ModuleHandle); };
    (@ unload $inner:tt) => { $crate::forward!(@ unload $inner (module: $crate::ModuleHandle) -> ()); };
    (@ function $inner:tt) => {
        $crate::forward!(@ function $inner (module: $crate::ModuleHandle, name: &str) -> $crate::FunctionHandle);
    };
    (@ function_facts $inner:tt) => {
        $crate::forward!(@ function_facts $inner (function: $crate::FunctionHandle) -> $crate::FunctionFacts);
    };
    (@ allow_shared $inner:tt) => {
        $crate::forward!(@ allow_shared $inner (function: $crate::FunctionHandle, bytes: u32) -> ());
    };
    (@ tensor_map $inner:tt) => {
        $crate::forward!(@ tensor_map $inner (tiles: &$crate::TensorTiles) -> $crate::TensorMap);
    };
    (@ launch $inner:tt) => {
        $crate::forward!(@ launch $inner (
            stream: $crate::StreamHandle,
            function: $crate::FunctionHandle,
            shape: $crate::LaunchShape,
            arguments: &$crate::Arguments
        ) -> ());
    };
    (@ begin_capture $inner:tt) => { $crate::forward!(@ begin_capture $inner (stream: $crate::StreamHandle) -> ()); };
    (@ end_capture $inner:tt) => {
        $crate::forward!(@ end_capture $inner (stream: $crate::StreamHandle) -> $crate::GraphHandle);
    };
    (@ create_graph $inner:tt) => {
        $crate::forward!(@ create_graph $inner (nodes: &[$crate::KernelNode<'_>]) -> $crate::GraphHandle);
    };
    (@ set_node $inner:tt) => {
        $crate::forward!(@ set_node $inner (
            graph: $crate::GraphHandle,
            place: usize,
            node: &$crate::KernelNode<'_>
        ) -> ());
    };
    (@ launch_graph $inner:tt) => {
        $crate::forward!(@ launch_graph $inner (stream: $crate::StreamHandle, graph: $crate::GraphHandle) -> ());
    };
    (@ destroy_graph $inner:tt) => { $crate::forward!(@ destroy_graph $inner (graph: $crate::GraphHandle) -> ()); };
}
