//! Causal attention by a library for one GPU, as a trait.

use crate::{DevicePointer, DriverError, MatrixElement, StreamHandle};

/// Elements from a token to the next, in the tensors of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionStrides {
    /// Queries, keys, values and outputs.
    pub inputs: [u64; 4],
    /// Log-sum-exps.
    pub log_sum_exp: u64,
}

/// Elements from a token to the next, in the gradients of a backward pass: of the output, queries, keys and values.
pub type GradientStrides = [u64; 4];

/// The pass that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionPass {
    /// Outputs and log-sum-exps.
    Forward,
    /// Gradients of queries, keys and values.
    Backward(GradientStrides),
}

/// Attention of whole sequences in which a query sees the keys up to its own. A token has its heads side by side, each
/// of `head_dim` channels; sequences follow one another. `heads / kv_heads` query heads in a row share a key head.
///
/// Forward: `out = softmax(scale q k) v`, and the log-sum-exp of each query's scaled scores. Backward: the gradients of
/// that, from the outputs and log-sum-exps of any forward pass of the same function. Sums are of single precision;
/// probabilities and the gradients of scores may be rounded to the elements' type before they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CausalAttention {
    pub pass: AttentionPass,
    /// The type of all tensors but the log-sum-exps, which are fp32: bf16 or fp16.
    pub element: MatrixElement,
    pub sequences: u64,
    /// Tokens of a sequence.
    pub length: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    pub strides: AttentionStrides,
}

impl CausalAttention {
    /// The power of two that addresses, and bytes from one token to the next, are multiples of, but for log-sum-exps.
    pub const ALIGNMENT: u32 = 16;

    /// The same attention of some of the sequences and of some of the key heads with their queries.
    #[must_use]
    pub fn of_part(self, sequences: u64, kv_heads: u64) -> CausalAttention {
        CausalAttention { sequences, heads: self.heads / self.kv_heads * kv_heads, kv_heads, ..self }
    }
}

/// Addresses of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionPlaces {
    /// Queries, keys, values and outputs.
    pub inputs: [DevicePointer; 4],
    pub log_sum_exp: DevicePointer,
    /// Gradients of the output, queries, keys and values; not used by a forward pass.
    pub gradients: [DevicePointer; 4],
}

/// A library that computes causal attention on one GPU. Any thread may call it.
pub trait AttentionLibrary: Send + Sync {
    /// Its name and version: `cuDNN 9.28.1`.
    fn name(&self) -> String;

    /// Bytes of memory that the library needs besides the tensors: the same at every call. None where it does not have
    /// the attention, or not with the same bits at every call.
    ///
    /// # Errors
    /// A library that fails.
    fn workspace_bytes(&self, attention: &CausalAttention) -> Result<Option<usize>, DriverError>;

    /// Computes as work of `stream`. No other stream uses the workspace at the same time. The same attention has the
    /// same bits at every call.
    ///
    /// # Errors
    /// Attention that the library does not have; a stream or memory that does not exist.
    fn attend(
        &self,
        stream: StreamHandle,
        attention: &CausalAttention,
        scale: f32,
        places: &AttentionPlaces,
        workspace: DevicePointer,
    ) -> Result<(), DriverError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_queries_of_its_keys() {
        let strides = AttentionStrides { inputs: [768; 4], log_sum_exp: 12 };
        let (pass, element) = (AttentionPass::Forward, MatrixElement::Bf16);
        let (sequences, length, heads, kv_heads, head_dim) = (16, 1024, 12, 4, 64);
        let whole = CausalAttention { pass, element, sequences, length, heads, kv_heads, head_dim, strides };
        let part = whole.of_part(2, 1);
        assert_eq!((part.sequences, part.heads, part.kv_heads, part.strides), (2, 3, 1, strides));
    }
}
