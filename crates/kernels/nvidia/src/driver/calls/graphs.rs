//! Graphs: work that was captured, and kernels one after the other.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use gpu::{Arguments, DriverError, DriverErrorKind, LaunchShape};

use super::super::constants::RELAXED;
use super::super::functions::{Context, ExecutableGraph, Function, Graph, GraphNode, Graphs, LibraryKernel, Stream};
use super::super::structs::KernelNodeParameters;
use super::entry::Api;

/// A kernel of a graph, with the earlier node that it comes after. Its parameters have the arguments' sizes.
pub(in crate::driver) struct Kernel<'a> {
    pub(in crate::driver) function: Function,
    pub(in crate::driver) shape: LaunchShape,
    pub(in crate::driver) arguments: &'a Arguments,
    pub(in crate::driver) after: Option<GraphNode>,
}

impl Kernel<'_> {
    /// Calls the driver with the parameters, whose arguments live during the call.
    fn with_parameters<T>(&self, call: impl FnOnce(&KernelNodeParameters) -> T) -> T {
        let mut places: Vec<*mut c_void> =
            self.arguments.values().iter().map(|value| value.as_ptr().cast_mut().cast()).collect();
        let LaunchShape { grid, block, shared_bytes } = self.shape;
        call(&KernelNodeParameters {
            function: self.function,
            grid,
            block,
            shared_bytes,
            arguments: places.as_mut_ptr(),
            extra: null_mut(),
            kernel: LibraryKernel(null_mut()),
            context: Context(null_mut()),
        })
    }
}

impl Api {
    /// The functions of graphs.
    fn graphs(&self, call: &'static str) -> Result<&Graphs, DriverError> {
        self.graphs.as_ref().ok_or_else(|| {
            let text = "this driver lacks a function of graphs; install or update the driver of the GPU".into();
            DriverError { call, kind: DriverErrorKind::Unavailable, text }
        })
    }

    /// A graph without nodes, which is not launched itself.
    pub(in crate::driver) fn create_graph(&self) -> Result<Graph, DriverError> {
        let graphs = self.graphs("cuGraphCreate")?;
        let mut graph = Graph(null_mut());
        // SAFETY: see the module; the call writes one address, and flags must be 0.
        self.checked("cuGraphCreate", unsafe { (graphs.create)(&mut graph, 0) })?;
        Ok(graph)
    }

    /// Adds a node to a graph.
    pub(in crate::driver) fn add_kernel(&self, graph: Graph, kernel: &Kernel<'_>) -> Result<GraphNode, DriverError> {
        let graphs = self.graphs("cuGraphAddKernelNode")?;
        let mut node = GraphNode(null_mut());
        let (after, count) = kernel.after.as_ref().map_or((null(), 0), |after| (std::ptr::from_ref(after), 1));
        // SAFETY: see the module; the driver reads `count` nodes, copies each argument by its parameter's size during
        // the call, writes none, and writes one address.
        let status =
            kernel.with_parameters(|kernel| unsafe { (graphs.add_kernel)(&mut node, graph, after, count, kernel) });
        self.checked("cuGraphAddKernelNode", status)?;
        Ok(node)
    }

    /// Makes a graph ready for launches.
    pub(in crate::driver) fn instantiate(&self, graph: Graph) -> Result<ExecutableGraph, DriverError> {
        let graphs = self.graphs("cuGraphInstantiateWithFlags")?;
        let mut executable = ExecutableGraph(null_mut());
        // SAFETY: see the module; the call writes one address.
        let status = unsafe { (graphs.instantiate)(&mut executable, graph, 0) };
        self.checked("cuGraphInstantiateWithFlags", status)?;
        Ok(executable)
    }

    /// Other arguments for a node of launches to come.
    pub(in crate::driver) fn set_kernel(
        &self,
        executable: ExecutableGraph,
        node: GraphNode,
        kernel: &Kernel<'_>,
    ) -> Result<(), DriverError> {
        let graphs = self.graphs("cuGraphExecKernelNodeSetParams")?;
        // SAFETY: as in `add_kernel`; the graph of the node lives as long as `executable`.
        let status = kernel.with_parameters(|kernel| unsafe { (graphs.set_kernel)(executable, node, kernel) });
        self.checked("cuGraphExecKernelNodeSetParams", status)
    }

    /// Destroys the graph that launches were made from.
    pub(in crate::driver) fn destroy_original(&self, graph: Graph) -> Result<(), DriverError> {
        let graphs = self.graphs("cuGraphDestroy")?;
        // SAFETY: see the module; it is used no more.
        self.checked("cuGraphDestroy", unsafe { (graphs.destroy_graph)(graph) })
    }

    pub(in crate::driver) fn begin_capture(&self, stream: Stream) -> Result<(), DriverError> {
        let graphs = self.graphs("cuStreamBeginCapture")?;
        // SAFETY: see the module.
        self.checked("cuStreamBeginCapture", unsafe { (graphs.begin_capture)(stream, RELAXED) })
    }

    /// Ends a capture. The captured graph itself is destroyed at once.
    pub(in crate::driver) fn end_capture(&self, stream: Stream) -> Result<ExecutableGraph, DriverError> {
        let graphs = self.graphs("cuStreamEndCapture")?;
        let mut graph = Graph(null_mut());
        // SAFETY: see the module; the call writes one address, which is null where it fails.
        self.checked("cuStreamEndCapture", unsafe { (graphs.end_capture)(stream, &mut graph) })?;
        let instantiated = self.instantiate(graph);
        let destroyed = self.destroy_original(graph);
        let executable = instantiated?;
        destroyed?;
        Ok(executable)
    }

    pub(in crate::driver) fn launch_graph(&self, stream: Stream, graph: ExecutableGraph) -> Result<(), DriverError> {
        let graphs = self.graphs("cuGraphLaunch")?;
        // SAFETY: see the module.
        self.checked("cuGraphLaunch", unsafe { (graphs.launch_graph)(graph, stream) })
    }

    pub(in crate::driver) fn destroy_graph(&self, graph: ExecutableGraph) -> Result<(), DriverError> {
        let graphs = self.graphs("cuGraphExecDestroy")?;
        // SAFETY: see the module; it is used no more.
        self.checked("cuGraphExecDestroy", unsafe { (graphs.destroy_executable)(graph) })
    }
}
