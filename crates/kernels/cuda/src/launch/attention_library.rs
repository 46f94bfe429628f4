//! Attention as a library takes it.

use device::{AttentionGradients, AttentionOperands, AttentionShape, DeviceError, Dtype, Op, Tensor};
use gpu::{AttentionPass, AttentionPlaces, AttentionStrides, CausalAttention, DevicePointer, MatrixElement};

use super::attention::Pass;
use super::{Place, Site};

/// Bytes of a number.
const NARROW_BYTES: usize = 2;

/// Attention with its places and the factor of its scores, as all sequences and heads together are given.
pub(crate) struct LibraryAttention {
    pub attention: CausalAttention,
    pub scale: f32,
    pub places: AttentionPlaces,
}

/// The attention of an operation whose queries see the keys up to their own, in a run whose intervals say so; `None`
/// for other operations and other attention, which is computed by pleach's kernels.
///
/// # Errors
/// The errors of [`super::launches`].
pub(crate) fn library_attention(op: &Op, site: &Site) -> Result<Option<LibraryAttention>, DeviceError> {
    if let Op::Attention { operands } = op {
        return of_pass("attention", site, operands, None);
    }
    let Op::AttentionBackward { operands, gradients } = op else { return Ok(None) };
    of_pass("attention_backward", site, operands, Some(gradients))
}

/// The type of all tensors but the log-sum-exps; `None` for fp32.
fn element(tensor: Tensor) -> Option<MatrixElement> {
    match tensor.dtype {
        Dtype::Bf16 => Some(MatrixElement::Bf16),
        Dtype::F16 => Some(MatrixElement::F16),
        Dtype::F32 | Dtype::I32 | Dtype::I64 => None,
    }
}

/// Whether only the place in its sequence decides which keys a query sees, and scores become probabilities by their
/// factor alone. A cache has more keys than there are queries.
fn is_plain(o: &AttentionOperands) -> bool {
    let has_own = o.places.is_some() || o.window.is_some() || o.soft_cap.is_some();
    !has_own && o.alibi.is_none() && o.dropout.is_none() && o.k.rows == o.q.rows
}

fn of_pass(
    name: &'static str,
    site: &Site,
    o: &AttentionOperands,
    gradients: Option<&AttentionGradients>,
) -> Result<Option<LibraryAttention>, DeviceError> {
    let Some(element) = element(o.q).filter(|_| is_plain(o)) else { return Ok(None) };
    let pass = Pass::new(name, site, o)?;
    let dtype = pass.stored.dtype;
    let AttentionShape { sequences, sequence_length, heads, kv_heads, head_dim } = o.shape;
    if pass.tokens == 0 {
        return Ok(None);
    }
    let matrix = |tensor: Tensor| site.matrix(tensor, dtype);
    let inputs = [matrix(o.q)?, matrix(o.k)?, matrix(o.v)?, matrix(o.out)?];
    let log_sum_exp = site.matrix(o.log_sum_exp, Dtype::F32)?;
    let of_gradients = match gradients {
        None => None,
        Some(g) => {
            pass.check_gradients(g)?;
            Some([matrix(g.dout)?, matrix(g.dq)?, matrix(g.dk)?, matrix(g.dv)?])
        }
    };
    let mut narrow = inputs.iter().chain(of_gradients.iter().flatten());
    if !narrow.all(|place| place.has_rows_at_multiples(CausalAttention::ALIGNMENT as usize, NARROW_BYTES)) {
        return Ok(None);
    }
    let strides = |places: [Place; 4]| places.map(|place| place.stride() as u64);
    let attention = CausalAttention {
        pass: of_gradients.map_or(AttentionPass::Forward, |places| AttentionPass::Backward(strides(places))),
        element,
        sequences: sequences as u64,
        length: sequence_length as u64,
        heads: heads as u64,
        kv_heads: kv_heads as u64,
        head_dim: head_dim as u64,
        strides: AttentionStrides { inputs: strides(inputs), log_sum_exp: log_sum_exp.stride() as u64 },
    };
    let addresses = |places: [Place; 4]| places.map(|place| place.address());
    let places = AttentionPlaces {
        inputs: addresses(inputs),
        log_sum_exp: log_sum_exp.address(),
        gradients: of_gradients.map_or([DevicePointer(0); 4], addresses),
    };
    Ok(Some(LibraryAttention { attention, scale: o.scale, places }))
}
