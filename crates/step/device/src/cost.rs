//! The cost of an operation: multiply-adds of its matrix products and bytes that it moves.

use crate::op::{Family, Op, Orientation};

/// See the fields. The kernels count the same multiply-adds in their own loops; a test holds the two equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Multiply-adds of matrix products and attention; one is two floating-point operations.
    pub multiply_adds: u64,
    /// Bytes of all tensors read and written, each once.
    pub moved_bytes: u64,
}

impl Op {
    /// Multiply-adds and bytes. Attention counts the pairs of a causal mask and its windows; documents need fewer.
    /// Experts count the rows that they have where routing is balanced.
    pub fn cost(&self) -> Cost {
        let operands = if let Op::Experts(op) = self { op.on_expected_rows().operands() } else { self.operands() };
        let moved_bytes = operands.reads().chain(operands.writes()).map(|tensor| tensor.size_bytes() as u64).sum();
        Cost { multiply_adds: self.multiply_adds(), moved_bytes }
    }

    fn multiply_adds(&self) -> u64 {
        match self.family() {
            Family::Product { orientation, a, out, .. } => {
                let depth = match orientation {
                    Orientation::Nt | Orientation::Nn => a.cols,
                    Orientation::Tn => a.rows,
                };
                depth as u64 * out.len() as u64
            }
            Family::GroupedProduct { groups, orientation, a, b, .. } => {
                let columns = match orientation {
                    Orientation::Nt => b.rows / groups,
                    Orientation::Nn | Orientation::Tn => b.cols,
                };
                a.len() as u64 * columns as u64
            }
            Family::Attention { operands } => 2 * operands.causal_multiply_adds(),
            Family::AttentionBackward { operands } => 5 * operands.causal_multiply_adds(),
            Family::Fused(ops) => ops.iter().map(Op::multiply_adds).sum(),
            Family::Norm { .. } | Family::NormBackward { .. } | Family::Rotary { .. } | Family::Activation { .. } => 0,
            Family::ActivationBackward { .. } | Family::Lookup { .. } | Family::LookupBackward { .. } => 0,
            Family::Memory => 0,
        }
    }
}
