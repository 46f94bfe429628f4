//! Graphs of kernels: the description of each, whose nodes name what is changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gpu::{DriverError, KernelNode};
use sync::lock;

use super::arguments::invalid;
use super::calls::entry::Api;
use super::calls::graphs::Kernel as NodeKernel;
use super::context::Context;
use super::functions::{ExecutableGraph, Graph, GraphNode};
use super::open_gpu::Kernel;
use super::owned::{Owned, Registry};

/// A graph of kernels as it was described. It lives as long as the graph that is launched: its nodes name those of
/// that one.
pub(super) struct KernelGraph {
    _description: Arc<Owned<Graph>>,
    nodes: Vec<GraphNode>,
}

impl KernelGraph {
    /// A graph of `nodes`, whose kernels were looked up, ready for launches.
    pub(super) fn create(
        context: &Arc<Context>,
        nodes: &[KernelNode<'_>],
        kernels: &[Kernel],
    ) -> Result<(ExecutableGraph, KernelGraph), DriverError> {
        let api = context.enter()?;
        // Destroys the description where a later call fails.
        let registry = Registry::default();
        let number = registry.add(api.create_graph()?, context);
        let description = registry.get("cuGraphCreate", number)?;
        let mut added: Vec<GraphNode> = Vec::with_capacity(nodes.len());
        for (place, (node, kernel)) in nodes.iter().zip(kernels).enumerate() {
            let after = match node.after {
                None => None,
                Some(after) => Some(*added.get(after).ok_or_else(|| {
                    let text = format!("node {place} comes after node {after}, which must be an earlier one");
                    invalid("cuGraphAddKernelNode", text)
                })?),
            };
            added.push(api.add_kernel(description.raw(), &node_kernel(node, kernel, after))?);
        }
        let executable = api.instantiate(description.raw())?;
        Ok((executable, KernelGraph { _description: description, nodes: added }))
    }

    /// Gives a node of `executable`, which was made from this description, other arguments.
    pub(super) fn set(
        &self,
        api: &Api,
        executable: ExecutableGraph,
        place: usize,
        (node, kernel): (&KernelNode<'_>, &Kernel),
    ) -> Result<(), DriverError> {
        let Some(changed) = self.nodes.get(place) else {
            let text = format!("node {place} does not exist; the graph has {}", self.nodes.len());
            return Err(invalid("cuGraphExecKernelNodeSetParams", text));
        };
        api.set_kernel(executable, *changed, &node_kernel(node, kernel, None))
    }
}

fn node_kernel<'a>(node: &KernelNode<'a>, kernel: &Kernel, after: Option<GraphNode>) -> NodeKernel<'a> {
    NodeKernel { function: kernel.raw, shape: node.shape, arguments: node.arguments, after }
}

/// All graphs of kernels, by the numbers of those that are launched.
#[derive(Default)]
pub(super) struct KernelGraphs(Mutex<BTreeMap<u64, Arc<KernelGraph>>>);

impl KernelGraphs {
    pub(super) fn add(&self, number: u64, graph: KernelGraph) {
        lock(&self.0).insert(number, Arc::new(graph));
    }

    pub(super) fn get(&self, call: &'static str, number: u64) -> Result<Arc<KernelGraph>, DriverError> {
        let found = lock(&self.0).get(&number).cloned();
        found.ok_or_else(|| invalid(call, format!("graph {number:#x} is not a graph of kernels that exists here")))
    }

    pub(super) fn remove(&self, number: u64) {
        lock(&self.0).remove(&number);
    }
}
