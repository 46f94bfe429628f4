//! Operations that stand for two others, which a device may compute in one kernel.

use crate::op::{Op, Orientation, Write};

impl Op {
    /// The operations with whose bits a fused one is computed, in order; the operation itself where it is not fused.
    pub fn unfused(&self) -> impl Iterator<Item = Op> + use<> {
        let [first, second] = match *self {
            Op::MatMulActivation { a, b, bias, activation, x, y } => {
                let (orientation, write) = (Orientation::Nt, Write::Assign);
                let product = Op::MatMul { orientation, a, b, bias, out: x, write };
                [product, Op::Activation { activation, x, y }].map(Some)
            }
            Op::MatMulActivationBackward { a, b, activation, dy, x, dx, y } => {
                let (orientation, write) = (Orientation::Nn, Write::Assign);
                let product = Op::MatMul { orientation, a, b, bias: None, out: dy, write };
                [product, Op::ActivationBackward { activation, x, dy, dx, y }].map(Some)
            }
            Op::MatMul { .. }
            | Op::ColumnSum { .. }
            | Op::Norm { .. }
            | Op::NormBackwardInput { .. }
            | Op::NormBackwardWeight { .. }
            | Op::RotaryTable { .. }
            | Op::Rotary { .. }
            | Op::Attention { .. }
            | Op::AttentionBackward { .. }
            | Op::JoinAttention { .. }
            | Op::Activation { .. }
            | Op::ActivationBackward { .. }
            | Op::DropoutAdd { .. }
            | Op::DropoutBackward { .. }
            | Op::EmbeddingLookup { .. }
            | Op::EmbeddingBackward { .. }
            | Op::SoftCap { .. }
            | Op::SoftCapBackward { .. }
            | Op::RowMax { .. }
            | Op::SumExp { .. }
            | Op::CrossEntropy { .. }
            | Op::AddRounded { .. }
            | Op::RoundedToSingle { .. }
            | Op::Accumulate { .. }
            | Op::ScaledSum { .. }
            | Op::Fill { .. }
            | Op::Copy { .. }
            | Op::InitializeNormal { .. }
            | Op::SquaredSum { .. }
            | Op::LossSum { .. }
            | Op::ClipCoefficient { .. }
            | Op::AdamW { .. } => [Some(*self), None],
        };
        first.into_iter().chain(second)
    }
}
