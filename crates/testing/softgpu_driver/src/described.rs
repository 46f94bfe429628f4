//! Graphs that are described as nodes.

use crate::handles::Handles;
use gpu::{Arguments, FunctionHandle, KernelNode, LaunchShape};

/// Graphs that callers have described, by handle.
pub type Described = Handles<Vec<Node>>;

/// A kernel of a graph.
#[derive(Debug)]
pub struct Node {
    pub function: FunctionHandle,
    pub shape: LaunchShape,
    pub arguments: Arguments,
    pub after: Option<usize>,
}

impl Node {
    /// The node as the GPU takes it.
    pub fn as_kernel(&self) -> KernelNode<'_> {
        KernelNode { function: self.function, shape: self.shape, arguments: &self.arguments, after: self.after }
    }
}
