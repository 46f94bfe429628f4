//! The tensors of an operation.

use crate::Tensor;

/// The tensors of an operation. A tensor that is read and written is in both lists.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Operands {
    reads: [Option<Tensor>; 8],
    writes: [Option<Tensor>; 4],
}

impl Operands {
    /// Tensors that the operation reads.
    pub fn reads(&self) -> impl Iterator<Item = Tensor> + '_ {
        self.reads.iter().flatten().copied()
    }

    /// Tensors that the operation writes, or may use as it likes.
    pub fn writes(&self) -> impl Iterator<Item = Tensor> + '_ {
        self.writes.iter().flatten().copied()
    }

    pub(crate) fn new<const R: usize, const W: usize>(
        reads: [Option<Tensor>; R],
        writes: [Option<Tensor>; W],
    ) -> Operands {
        let mut operands = Operands::default();
        operands.reads[..R].copy_from_slice(&reads);
        operands.writes[..W].copy_from_slice(&writes);
        operands
    }
}
