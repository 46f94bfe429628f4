//! The graphs of both passes of attention. The library recognizes attention by the order of the operations: scores,
//! their factor, the mask of keys after the query, the softmax, the product with values. Backward it begins with the
//! sums of `dout . out` of the queries.

use std::sync::Arc;

use gpu::{AttentionPass, CausalAttention, GradientStrides, MatrixElement};

use super::descriptor::Descriptor;
use super::error::AttentionError;
use super::functions::{
    ADD, AT_LEAST, BF16, Choice, DIVIDE, EXP, F16, F32, FLAG, Functions, I32, INDEX, LOG, MAXIMUM, MULTIPLY, SELECT,
    SUBTRACT, SUM,
};
use super::graph::{Axis, Form, Graph, Node};

/// Names of tensors in memory, as graphs and packs of addresses have them.
pub(super) const INPUTS: [i64; 4] = [1, 2, 3, 4];
pub(super) const LOG_SUM_EXP: i64 = 5;
pub(super) const GRADIENTS: [i64; 4] = [6, 7, 8, 9];
/// The sums of `dout . out`, `[sequences, heads, tokens]` in single precision.
pub(super) const DELTAS: i64 = 10;
/// Names of numbers: the factor of scores, the score of a hidden key, and 1.
pub(super) const SCALE: i64 = 11;
pub(super) const HIDDEN: i64 = 12;
pub(super) const ONE: i64 = 13;

/// Bytes at whose multiples log-sum-exps begin.
const SINGLE_ALIGNMENT: i64 = 4;

/// Sizes as the library takes them.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    sequences: i64,
    heads: i64,
    kv_heads: i64,
    length: i64,
    head_dim: i64,
    element: Choice,
}

impl Sizes {
    fn of(attention: &CausalAttention) -> Sizes {
        let CausalAttention { sequences, length, heads, kv_heads, head_dim, element, .. } = *attention;
        let size = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
        Sizes {
            sequences: size(sequences),
            heads: size(heads),
            kv_heads: size(kv_heads),
            length: size(length),
            head_dim: size(head_dim),
            element: match element {
                MatrixElement::F32 => F32,
                MatrixElement::Bf16 => BF16,
                MatrixElement::F16 => F16,
            },
        }
    }

    /// A tensor with `heads` heads of a width side by side in each token.
    fn tokens(&self, heads: i64, head_dim: i64, stride: u64) -> Form {
        let stride = i64::try_from(stride).unwrap_or(i64::MAX);
        let dims = [self.sequences, heads, self.length, head_dim];
        Form { dims, strides: [self.length * stride, head_dim, stride, 1] }
    }

    /// One number for each query.
    fn queries(&self) -> Form {
        Form::dense([self.sequences, self.heads, self.length, 1])
    }

    /// One number for each pair of a query and a key.
    fn pairs(&self) -> Form {
        Form::dense([self.sequences, self.heads, self.length, self.length])
    }
}

/// The graph of a pass, with all that it names.
pub(super) fn graph(
    functions: &Arc<Functions>,
    attention: &CausalAttention,
) -> Result<Vec<Descriptor>, AttentionError> {
    let (sizes, mut graph) = (Sizes::of(attention), Graph::new(functions));
    match attention.pass {
        AttentionPass::Forward => forward(&mut graph, sizes, attention)?,
        AttentionPass::Backward(strides) => backward(&mut graph, sizes, attention, strides)?,
    }
    graph.finish()
}

/// Bytes of the sums that a backward pass keeps in addition to the library's own memory.
pub(super) fn delta_bytes(attention: &CausalAttention) -> usize {
    match attention.pass {
        AttentionPass::Forward => 0,
        AttentionPass::Backward(_) => {
            (attention.sequences * attention.heads * attention.length) as usize * MatrixElement::F32.bytes()
        }
    }
}

/// A tensor of a pass in memory.
fn given(graph: &mut Graph, sizes: Sizes, id: i64, form: Form) -> Result<Node, AttentionError> {
    graph.memory(id, form, sizes.element, CausalAttention::ALIGNMENT.into())
}

fn log_sum_exp(graph: &mut Graph, sizes: Sizes, attention: &CausalAttention) -> Result<Node, AttentionError> {
    let form = sizes.tokens(sizes.heads, 1, attention.strides.log_sum_exp);
    graph.memory(LOG_SUM_EXP, form, F32, SINGLE_ALIGNMENT)
}

/// Scores with those of keys after their query in place of `HIDDEN`.
fn masked(graph: &mut Graph, scores: Node) -> Result<Node, AttentionError> {
    let query = graph.places(INDEX, I32, scores, Axis::Queries)?;
    let key = graph.places(INDEX, I32, scores, Axis::Keys)?;
    let is_seen = graph.map_in(AT_LEAST, FLAG, query, &[key])?;
    let hidden = graph.number(HIDDEN)?;
    graph.map(SELECT, scores, &[hidden, is_seen])
}

fn forward(graph: &mut Graph, sizes: Sizes, attention: &CausalAttention) -> Result<(), AttentionError> {
    let Sizes { heads, kv_heads, head_dim, .. } = sizes;
    let [q, k, v, out] = attention.strides.inputs;
    let of = |heads, stride| sizes.tokens(heads, head_dim, stride);
    let q = given(graph, sizes, INPUTS[0], of(heads, q))?;
    let k = given(graph, sizes, INPUTS[1], of(kv_heads, k).transposed())?;
    let v = given(graph, sizes, INPUTS[2], of(kv_heads, v))?;
    let out = given(graph, sizes, INPUTS[3], of(heads, out))?;
    let logs = log_sum_exp(graph, sizes, attention)?;
    let scores = graph.inner(sizes.pairs(), F32)?;
    graph.multiply(q, k, scores)?;
    let scale = graph.number(SCALE)?;
    let scores = graph.map(MULTIPLY, scores, &[scale])?;
    let scores = masked(graph, scores)?;
    let max = graph.inner(sizes.queries(), F32)?;
    graph.reduce(MAXIMUM, scores, max)?;
    let depths = graph.map(SUBTRACT, scores, &[max])?;
    let shares = graph.map(EXP, depths, &[])?;
    let sum = graph.inner(sizes.queries(), F32)?;
    graph.reduce(SUM, shares, sum)?;
    let log = graph.map(LOG, sum, &[])?;
    graph.map_into(ADD, max, &[log], logs)?;
    let probabilities = graph.inner(sizes.pairs(), sizes.element)?;
    graph.map_into(DIVIDE, shares, &[sum], probabilities)?;
    graph.multiply(probabilities, v, out)?;
    Ok(())
}

/// Gradients of queries are one product over all keys, not sums that blocks of the GPU add to: the library then keeps
/// the gradients of scores in its workspace, and has the same bits at every call.
fn backward(
    graph: &mut Graph,
    sizes: Sizes,
    attention: &CausalAttention,
    strides: GradientStrides,
) -> Result<(), AttentionError> {
    let Sizes { heads, kv_heads, head_dim, element, .. } = sizes;
    let [q, k, v, out] = attention.strides.inputs;
    let of = |heads, stride| sizes.tokens(heads, head_dim, stride);
    let keys = of(kv_heads, k);
    let q = given(graph, sizes, INPUTS[0], of(heads, q))?;
    let k = given(graph, sizes, INPUTS[1], keys.transposed())?;
    let v = given(graph, sizes, INPUTS[2], of(kv_heads, v).transposed())?;
    let out = given(graph, sizes, INPUTS[3], of(heads, out))?;
    let logs = log_sum_exp(graph, sizes, attention)?;
    let [dout, dq, dk, dv] = strides;
    let dout = given(graph, sizes, GRADIENTS[0], of(heads, dout))?;
    let dq = given(graph, sizes, GRADIENTS[1], of(heads, dq))?;
    let dk = given(graph, sizes, GRADIENTS[2], of(kv_heads, dk))?;
    let dv = given(graph, sizes, GRADIENTS[3], of(kv_heads, dv))?;
    let deltas = deltas(graph, sizes, dout, out)?;
    let scores = graph.inner(sizes.pairs(), F32)?;
    graph.multiply(q, k, scores)?;
    let scale = graph.number(SCALE)?;
    let scores = graph.map(MULTIPLY, scores, &[scale])?;
    let depths = graph.map(SUBTRACT, scores, &[logs])?;
    let depths = masked(graph, depths)?;
    let shares = graph.map(EXP, depths, &[])?;
    let of_keys = graph.transpose(shares, element)?;
    summed_over_group(graph, sizes, [of_keys, dout, dv])?;
    let of_shares = graph.inner(sizes.pairs(), F32)?;
    graph.multiply(dout, v, of_shares)?;
    let apart = graph.map(SUBTRACT, of_shares, &[deltas])?;
    let weighed = graph.map(MULTIPLY, apart, &[shares])?;
    let of_scores = graph.map(MULTIPLY, weighed, &[scale])?;
    let of_keys = graph.transpose(of_scores, element)?;
    summed_over_group(graph, sizes, [of_keys, q, dk])?;
    let k = graph.transpose(k, element)?;
    graph.multiply(of_scores, k, dq)?;
    Ok(())
}

/// The sum of `dout . out` of each query, in memory. The library wants the factor of a dropout.
fn deltas(graph: &mut Graph, sizes: Sizes, dout: Node, out: Node) -> Result<Node, AttentionError> {
    let products = graph.inner(Form::dense([sizes.sequences, sizes.heads, sizes.length, sizes.head_dim]), F32)?;
    graph.map_into(MULTIPLY, dout, &[out], products)?;
    let sums = graph.inner(sizes.queries(), F32)?;
    graph.reduce(SUM, products, sums)?;
    let one = graph.number(ONE)?;
    let deltas = graph.memory(DELTAS, sizes.queries(), F32, 16)?;
    graph.map_into(MULTIPLY, sums, &[one], deltas)
}

/// `to = a b`, of which heads that share a key are added; their products are kept in single precision.
fn summed_over_group(graph: &mut Graph, sizes: Sizes, [a, b, to]: [Node; 3]) -> Result<(), AttentionError> {
    if sizes.heads == sizes.kv_heads {
        graph.multiply(a, b, to)?;
        return Ok(());
    }
    let each = graph.inner(Form::dense([sizes.sequences, sizes.heads, sizes.length, sizes.head_dim]), F32)?;
    graph.multiply(a, b, each)?;
    graph.reduce(SUM, each, to)?;
    Ok(())
}
