//! Names and forms of parameters in a family: the tables that reading and writing share.

use std::borrow::Cow;

use config::{ModelSpec, ParamSpec};

use crate::shards;
use crate::stored_rows::{Orientation, Rows, StoredRows};

/// How a parameter is in its tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// It is the tensor.
    Whole,
    /// It is the tensor, `[inputs, outputs]`.
    Transposed,
    /// The `index`-th of three equal parts, query, key and value, of `[inputs, outputs]`.
    TransposedThird(usize),
    /// The `index`-th of query, key and value within each head.
    InEachHead(usize),
    /// The `index`-th of this many equal parts, one above the other.
    Fraction(usize, usize),
    /// The same of the matrix of an expert in a stack of all experts, `[experts, rows of all parts, inputs]`.
    OfExpert(usize, usize),
}

use Form::{Fraction, InEachHead, OfExpert, Transposed, TransposedThird, Whole};

/// `(part of a parameter's name, part of the tensor's name, form)`; what follows in both is `.weight` or `.bias`. In
/// the tensor's name, `*` stands for the number of an expert.
pub(crate) type Table = [(&'static str, &'static str, Form)];

/// The output matrix in all classes but that of GPT-NeoX, where it is not the token table.
pub(crate) const LM_HEAD: (&str, &str, Form) = ("head.output", "lm_head", Whole);

/// Tables of parts that many classes name alike.
pub(crate) mod common {
    use super::{Form::Whole, LM_HEAD, Table};

    pub(crate) const ATTENTION: &Table = &[
        ("attention.query", "self_attn.q_proj", Whole),
        ("attention.key", "self_attn.k_proj", Whole),
        ("attention.value", "self_attn.v_proj", Whole),
        ("attention.output", "self_attn.o_proj", Whole),
    ];
    pub(crate) const HEAD_NORMS: &Table =
        &[("attention.query_norm", "self_attn.q_norm", Whole), ("attention.key_norm", "self_attn.k_norm", Whole)];
    pub(crate) const NORMS: &Table =
        &[("attention_norm", "input_layernorm", Whole), ("ffn_norm", "post_attention_layernorm", Whole)];
    pub(crate) const FEED_FORWARD: &Table =
        &[("ffn.gate", "mlp.gate_proj", Whole), ("ffn.up", "mlp.up_proj", Whole), ("ffn.down", "mlp.down_proj", Whole)];
    pub(crate) const OTHERS: &Table =
        &[("embedding.token", "embed_tokens", Whole), ("head.norm", "norm", Whole), LM_HEAD];
}

/// The tables of a family.
#[derive(Debug)]
pub(crate) struct Names {
    /// The prefix of a layer's tensors, before its number.
    pub(crate) layer: &'static str,
    /// One part of a layer is in one of these.
    pub(crate) of_layer: &'static [&'static Table],
    pub(crate) others: &'static Table,
}

/// The prefix of parameters of the layer after the final norm, here and in CodeGeeX; the rest of a name is as in any
/// layer.
const TOP_QUERY: (&str, &str) = ("top_query.", "transformer.topQueryLayer.");

/// Where the part of `param` of `model` that one of `shards` has is in it; `None` where the family has no name for it.
pub(crate) fn stored_rows(names: &Names, model: &ModelSpec, param: &ParamSpec, shards: usize) -> Option<StoredRows> {
    let (part, kind) = param.name.rsplit_once('.')?;
    let (expert, part) = without_expert(part);
    let part = part.as_ref();
    let find = |table: &'static Table, own: &str| table.iter().find(|(known, _, _)| *known == own);
    let of_layer = |own: &str| names.of_layer.iter().find_map(|table| find(table, own));
    let (prefix, (_, name, form)) = match part.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        Some((number, own)) => (format!("{}.{number}.", names.layer), of_layer(own)?),
        None => match (find(names.others, part), part.strip_prefix(TOP_QUERY.0)) {
            (Some(found), _) => (String::new(), found),
            (None, own) => (TOP_QUERY.1.into(), of_layer(own?)?),
        },
    };
    let part = shards::shape(param, shards);
    let (rows, inputs) = (part[0], part.get(1));
    let part_of = |index, number| Rows { block: rows, stride: number * rows, first: index * rows };
    let whole = Rows { block: rows, stride: rows, first: 0 };
    let (rows, parts, orientation) = match *form {
        Whole => (whole, 1, Orientation::OutputsFirst),
        Transposed => (whole, 1, Orientation::InputsFirst),
        TransposedThird(index) => (part_of(index, 3), 3, Orientation::InputsFirst),
        Fraction(index, number) | OfExpert(index, number) => {
            (part_of(index, number), number, Orientation::OutputsFirst)
        }
        InEachHead(index) => {
            let width = model.head_dim;
            (Rows { block: width, stride: 3 * width, first: index * width }, 3, Orientation::OutputsFirst)
        }
    };
    let mut shape: Vec<usize> = std::iter::once(parts * part[0]).chain(inputs.copied()).collect();
    if orientation == Orientation::InputsFirst {
        shape.reverse();
    }
    let in_stack = match *form {
        OfExpert(..) => {
            shape.insert(0, model.experts?.number);
            Some(expert.parse().ok()?)
        }
        Whole | Transposed | TransposedThird(_) | InEachHead(_) | Fraction(..) => None,
    };
    let name = name.replacen('*', expert, 1);
    Some(StoredRows { tensor: format!("{prefix}{name}.{kind}"), shape, rows, orientation, in_stack })
}

/// The number of an expert, and the name of its matrix without it: `3` and `layers.0.experts.up`.
fn without_expert(name: &str) -> (&str, Cow<'_, str>) {
    const STACK: &str = ".experts.";
    match name.split_once(STACK).and_then(|(layer, rest)| Some((layer, rest.split_once('.')?))) {
        Some((layer, (expert, part))) => (expert, format!("{layer}{STACK}{part}").into()),
        None => ("", name.into()),
    }
}

/// The parameters that are not split, in all shards of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardCopies {
    /// The same numbers.
    Alike,
    /// Numbers that each rank has trained by itself.
    Drifted,
}

/// The relation of a parameter to the copies that all shards have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// They are alike.
    First,
    /// Their mean: they have drifted apart.
    Mean,
    /// Their sum: each rank added its own before the outputs were summed.
    Sum,
}

/// How copies of `param`, which is not split, become it in folders of a family.
pub(crate) fn copies(shards: ShardCopies, param: &ParamSpec) -> Copies {
    let is_behind_a_sum = ["attention.output.bias", "ffn.down.bias"].iter().any(|bias| param.name.ends_with(bias));
    match shards {
        ShardCopies::Drifted if is_behind_a_sum => Copies::Sum,
        ShardCopies::Drifted => Copies::Mean,
        ShardCopies::Alike => Copies::First,
    }
}
