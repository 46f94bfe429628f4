//! The launch of a kernel: its shape and its arguments; and kernels as nodes of a graph.

use crate::FunctionHandle;

/// Blocks and threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchShape {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl LaunchShape {
    /// `blocks` blocks of `threads` threads without dynamic shared memory.
    pub fn linear(blocks: u32, threads: u32) -> LaunchShape {
        LaunchShape { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }
}

/// The arguments of a kernel in the order of its parameters, each as the bytes of its type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    values: Vec<Vec<u8>>,
}

impl Arguments {
    /// No arguments yet.
    pub fn new() -> Arguments {
        Arguments::default()
    }

    /// The same arguments, followed by the bytes of one: little-endian, of exactly its type's size.
    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Arguments {
        self.values.push(bytes.to_vec());
        self
    }

    /// The bytes of each argument.
    pub fn values(&self) -> &[Vec<u8>] {
        &self.values
    }
}

/// A kernel of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelNode<'a> {
    pub function: FunctionHandle,
    pub shape: LaunchShape,
    pub arguments: &'a Arguments,
    /// The earlier node, by its place, that it begins after. Nodes without one begin with the graph, in any order.
    pub after: Option<usize>,
}
