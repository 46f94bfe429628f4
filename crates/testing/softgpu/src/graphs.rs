//! Graphs of kernels, and the work of one launch.

use std::sync::Arc;

use gpu::{Arguments, DriverError, FunctionHandle, GraphHandle, KernelNode, LaunchShape};

use crate::modules::parameters;
use crate::soft_gpu::SoftGpu;
use crate::state::invalid;
use crate::streams::{Graph, LaunchWork, Work};

impl SoftGpu {
    /// The work of a launch, whose shape and arguments are checked.
    pub(crate) fn launch_work(
        &self,
        function: FunctionHandle,
        shape: LaunchShape,
        arguments: &Arguments,
    ) -> Result<LaunchWork, DriverError> {
        let function = sync::lock(&self.state).functions.get(&function).cloned();
        let function = function.ok_or_else(|| invalid("launch", "the kernel does not exist"))?;
        self.check_shape(&function, shape)?;
        let parameters = parameters(&function.kernel, arguments.values()).map_err(|text| invalid("launch", text))?;
        Ok(LaunchWork { kernel: function.kernel, shape, parameters, ranges: None })
    }

    /// See [`gpu::Gpu::create_graph`].
    pub(crate) fn graph_of(&self, nodes: &[KernelNode<'_>]) -> Result<GraphHandle, DriverError> {
        let mut graph = Graph::default();
        for (place, KernelNode { function, shape, arguments, after }) in nodes.iter().enumerate() {
            if after.is_some_and(|after| after >= place) {
                let text = format!("node {place} comes after node {after:?}, which must be an earlier one");
                return Err(invalid("create_graph", text));
            }
            let work = self.launch_work(*function, *shape, arguments)?;
            graph.add(Work::Launch(Arc::new(work)), after.iter().copied().collect());
        }
        let mut state = sync::lock(&self.state);
        state.check("create_graph")?;
        let handle = GraphHandle(state.handle());
        state.graphs.insert(handle, Arc::new(graph));
        Ok(handle)
    }

    /// See [`gpu::Gpu::set_node`].
    pub(crate) fn change_node(
        &self,
        graph: GraphHandle,
        place: usize,
        node: &KernelNode<'_>,
    ) -> Result<(), DriverError> {
        let work = self.launch_work(node.function, node.shape, node.arguments)?;
        let mut state = sync::lock(&self.state);
        state.check("set_node")?;
        let Some(changed) = state.graphs.get_mut(&graph) else {
            return Err(invalid("set_node", format!("graph {} does not exist", graph.0)));
        };
        // Launches that have not ended hold the graph as it was.
        if Arc::make_mut(changed).replace(place, Work::Launch(Arc::new(work))) {
            return Ok(());
        }
        Err(invalid("set_node", format!("node {place} of graph {} does not exist", graph.0)))
    }
}
