//! The graphs of operations that this library has: causal attention, forward and backward, as NVIDIA documents them for
//! its engines of attention. All others are refused.

use std::collections::HashMap;

use gpu::{AttentionPass, AttentionStrides, CausalAttention, MatrixElement};

use super::descriptors::{BAD_PARAMETER, Descriptors, NOT_SUPPORTED, Status, kind, part};

/// A forward pass: an operation, the tensors that it reads, and the one that it writes.
const FORWARD: &str = "\
    product q k scores
    multiply scores scale scaled
    index2 scaled query
    index3 scaled key
    at-least query key seen
    select scaled hidden seen masked
    maximum masked most
    subtract masked most depths
    exp depths shares
    sum shares total
    log total log
    add most log logs
    divide shares total weights
    product weights v out";

/// A backward pass. Gradients of scores are kept: all products are over whole sequences.
const BACKWARD: &str = "\
    multiply dout out terms
    sum terms sums
    multiply sums one deltas
    product q k scores
    multiply scores scale scaled
    subtract scaled logs depths
    index2 depths query
    index3 depths key
    at-least query key seen
    select depths hidden seen masked
    exp masked shares
    transpose shares shares-by-key
    product shares-by-key dout dv
    product dout v of-shares
    subtract of-shares deltas apart
    multiply apart shares weighed
    multiply weighed scale of-scores
    transpose of-scores of-scores-by-key
    product of-scores-by-key q dk
    transpose k keys
    product of-scores keys dq";

/// An operation with the tensors that it reads and the one that it writes.
#[derive(Clone, Debug)]
struct Operation {
    name: String,
    tensors: Vec<u64>,
}

/// A graph that is a pass of attention.
#[derive(Clone, Debug)]
pub struct Pass {
    pub attention: CausalAttention,
    /// Tensors by the names above.
    names: HashMap<&'static str, u64>,
}

impl Pass {
    /// The pass that a graph is.
    ///
    /// # Errors
    /// A number that does not belong to a graph, and a graph whose tensors do not fit together.
    pub fn of(all: &Descriptors, graph: u64) -> Result<Pass, Status> {
        let mut operations = vec![];
        for operation in all.all(graph, part::GRAPH_OPERATIONS)? {
            operations.push(named(all, operation as u64)?);
        }
        add_groups_in_products(&mut operations);
        let forward = tensors_of(FORWARD, &operations);
        let is_forward = forward.is_some();
        let names = forward.or_else(|| tensors_of(BACKWARD, &operations)).ok_or(NOT_SUPPORTED)?;
        Ok(Pass { attention: attention(all, &names, is_forward)?, names })
    }

    /// The identifier of a tensor.
    ///
    /// # Errors
    /// A tensor that the pass does not have.
    pub fn id(&self, all: &Descriptors, name: &str) -> Result<u64, Status> {
        all.one(*self.names.get(name).ok_or(BAD_PARAMETER)?, part::TENSOR_ID)
    }
}

/// An operation by its name.
fn named(all: &Descriptors, operation: u64) -> Result<Operation, Status> {
    let kind = all.0.get(operation).ok_or(BAD_PARAMETER)?.kind;
    let (name, parts): (String, &[u32]) = match kind {
        kind::PRODUCT_OPERATION => ("product".into(), &[part::PRODUCT_A, part::PRODUCT_B, part::PRODUCT_C]),
        kind::RESHAPE_OPERATION => ("transpose".into(), &[part::RESHAPE_X, part::RESHAPE_Y]),
        kind::REDUCTION_OPERATION => {
            let mode = all.choice(all.one(operation, part::REDUCTION_DESCRIPTION)?, part::REDUCTION_MODE)?;
            let name = [(0, "sum"), (3, "maximum")].into_iter().find(|(known, _)| *known == mode);
            (name.ok_or(NOT_SUPPORTED)?.1.into(), &[part::REDUCTION_X, part::REDUCTION_Y])
        }
        kind::POINTWISE_OPERATION => {
            let description = all.one(operation, part::POINTWISE_DESCRIPTION)?;
            let name = match all.choice(description, part::POINTWISE_MODE)? {
                0 => "add".into(),
                1 => "multiply".into(),
                6 => "divide".into(),
                9 => "subtract".into(),
                13 => "exp".into(),
                15 => "log".into(),
                303 => "at-least".into(),
                501 => format!("index{}", all.one(description, part::POINTWISE_AXIS)?),
                601 => "select".into(),
                _ => return Err(NOT_SUPPORTED),
            };
            (name, &[part::POINTWISE_X, part::POINTWISE_B, part::POINTWISE_T, part::POINTWISE_Y])
        }
        _ => return Err(NOT_SUPPORTED),
    };
    // Of one, two or three tensors.
    let is_there =
        |part: &&u32| !matches!(**part, part::POINTWISE_B | part::POINTWISE_T) || all.one(operation, **part).is_ok();
    let tensors = parts.iter().filter(is_there).map(|part| all.one(operation, *part));
    Ok(Operation { name, tensors: tensors.collect::<Result<_, _>>()? })
}

/// Heads that share a key are added by a sum after their product, which is here a part of the product.
fn add_groups_in_products(operations: &mut Vec<Operation>) {
    let mut at = 1;
    while at < operations.len() {
        let (product, sum) = (&operations[at - 1], &operations[at]);
        if (product.name.as_str(), sum.name.as_str()) == ("product", "sum") && product.tensors[2] == sum.tensors[0] {
            operations[at - 1].tensors[2] = sum.tensors[1];
            operations.remove(at);
        }
        at += 1;
    }
}

/// The tensors of a pass by name, where `operations` are its own. A tensor has one name.
fn tensors_of(pass: &'static str, operations: &[Operation]) -> Option<HashMap<&'static str, u64>> {
    let mut names = HashMap::new();
    if pass.lines().count() != operations.len() {
        return None;
    }
    for (line, operation) in pass.lines().zip(operations) {
        let mut words = line.split_whitespace();
        let has_name = words.next() == Some(operation.name.as_str());
        let words: Vec<&str> = words.collect();
        if !has_name || words.len() != operation.tensors.len() {
            return None;
        }
        for (name, tensor) in words.into_iter().zip(&operation.tensors) {
            let is_other = |(known, other): (&&str, &u64)| (*known == name) != (other == tensor);
            if names.iter().any(is_other) {
                return None;
            }
            names.insert(name, *tensor);
        }
    }
    Some(names)
}

/// The attention of a pass. Every tensor in memory must have the sizes that follow from queries and keys.
fn attention(
    all: &Descriptors,
    names: &HashMap<&'static str, u64>,
    is_forward: bool,
) -> Result<CausalAttention, Status> {
    let tensor = |name: &str| names.get(name).copied().ok_or(BAD_PARAMETER);
    let [sequences, heads, length, head_dim] = all.four(tensor("q")?, part::TENSOR_DIMS)?;
    let [_, kv_heads, _, _] = all.four(tensor("k")?, part::TENSOR_DIMS)?;
    let element = match all.choice(tensor("q")?, part::TENSOR_TYPE)? {
        2 => MatrixElement::F16,
        9 => MatrixElement::Bf16,
        _ => return Err(NOT_SUPPORTED),
    };
    // Elements from one token to the next, of a tensor whose last two dims may be exchanged.
    let stride = |name: &str, [heads, width]: [i64; 2], is_transposed: bool| {
        let turned = |[a, b, c, d]: [i64; 4]| if is_transposed { [a, b, d, c] } else { [a, b, c, d] };
        let dims = turned(all.four(tensor(name)?, part::TENSOR_DIMS)?);
        let strides = turned(all.four(tensor(name)?, part::TENSOR_STRIDES)?);
        let stride = strides[2];
        let fits = dims == [sequences, heads, length, width] && strides == [length * stride, width, stride, 1];
        if fits { Ok(stride as u64) } else { Err(NOT_SUPPORTED) }
    };
    let (of_queries, of_keys) = ([heads, head_dim], [kv_heads, head_dim]);
    let inputs = [
        stride("q", of_queries, false)?,
        stride("k", of_keys, true)?,
        stride("v", of_keys, !is_forward)?,
        stride("out", of_queries, false)?,
    ];
    let strides = AttentionStrides { inputs, log_sum_exp: stride("logs", [heads, 1], false)? };
    let pass = match is_forward {
        true => AttentionPass::Forward,
        false => AttentionPass::Backward([
            stride("dout", of_queries, false)?,
            stride("dq", of_queries, false)?,
            stride("dk", of_keys, false)?,
            stride("dv", of_keys, false)?,
        ]),
    };
    let [sequences, heads, kv_heads, length, head_dim] =
        [sequences, heads, kv_heads, length, head_dim].map(|size| size as u64);
    Ok(CausalAttention { pass, element, sequences, length, heads, kv_heads, head_dim, strides })
}
