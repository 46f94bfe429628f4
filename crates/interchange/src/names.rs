//! Names and forms of parameters in each family: the tables that reading and writing share.

use spec::{ModelSpec, ParamSpec};

use crate::family::Family;
use crate::place::{Orientation, Place, Rows};

/// How a parameter lies in its tensor.
#[derive(Clone, Copy)]
enum Form {
    /// It is the tensor.
    Whole,
    /// It is the tensor, `[inputs, outputs]`.
    Transposed,
    /// The `index`-th of three equal parts, query, key and value, of `[inputs, outputs]`.
    TransposedThird(usize),
    /// The `index`-th of query, key and value within each head.
    InEachHead(usize),
}

use Form::{InEachHead, Transposed, TransposedThird, Whole};

/// `(part of a parameter's name, part of the tensor's name, form)`; what follows in both is `.weight` or `.bias`.
type Table = [(&'static str, &'static str, Form)];

/// The tables of a family.
struct Names {
    /// What a tensor of a layer begins with, in front of its number.
    layer: &'static str,
    of_layer: &'static Table,
    others: &'static Table,
}

const GPT_NEOX: Names = Names {
    layer: "layers",
    of_layer: &[
        ("attention_norm", "input_layernorm", Whole),
        ("attention.query", "attention.query_key_value", InEachHead(0)),
        ("attention.key", "attention.query_key_value", InEachHead(1)),
        ("attention.value", "attention.query_key_value", InEachHead(2)),
        ("attention.output", "attention.dense", Whole),
        ("ffn_norm", "post_attention_layernorm", Whole),
        ("ffn.up", "mlp.dense_h_to_4h", Whole),
        ("ffn.down", "mlp.dense_4h_to_h", Whole),
    ],
    others: &[
        ("embedding.token", "embed_in", Whole),
        ("head.norm", "final_layer_norm", Whole),
        ("head.output", "embed_out", Whole),
    ],
};

const BLOOM: Names = Names {
    layer: "h",
    of_layer: &[
        ("attention_norm", "input_layernorm", Whole),
        ("attention.query", "self_attention.query_key_value", InEachHead(0)),
        ("attention.key", "self_attention.query_key_value", InEachHead(1)),
        ("attention.value", "self_attention.query_key_value", InEachHead(2)),
        ("attention.output", "self_attention.dense", Whole),
        ("ffn_norm", "post_attention_layernorm", Whole),
        ("ffn.up", "mlp.dense_h_to_4h", Whole),
        ("ffn.down", "mlp.dense_4h_to_h", Whole),
    ],
    others: &[
        ("embedding.token", "word_embeddings", Whole),
        ("embedding.norm", "word_embeddings_layernorm", Whole),
        ("head.norm", "ln_f", Whole),
    ],
};

const OPT: Names = Names {
    layer: "layers",
    of_layer: &[
        ("attention_norm", "self_attn_layer_norm", Whole),
        ("attention.query", "self_attn.q_proj", Whole),
        ("attention.key", "self_attn.k_proj", Whole),
        ("attention.value", "self_attn.v_proj", Whole),
        ("attention.output", "self_attn.out_proj", Whole),
        ("ffn_norm", "final_layer_norm", Whole),
        ("ffn.up", "fc1", Whole),
        ("ffn.down", "fc2", Whole),
    ],
    others: &[
        ("embedding.token", "embed_tokens", Whole),
        ("embedding.position", "embed_positions", Whole),
        ("head.norm", "final_layer_norm", Whole),
    ],
};

const GPT2: Names = Names {
    layer: "h",
    of_layer: &[
        ("attention_norm", "ln_1", Whole),
        ("attention.query", "attn.c_attn", TransposedThird(0)),
        ("attention.key", "attn.c_attn", TransposedThird(1)),
        ("attention.value", "attn.c_attn", TransposedThird(2)),
        ("attention.output", "attn.c_proj", Transposed),
        ("ffn_norm", "ln_2", Whole),
        ("ffn.up", "mlp.c_fc", Transposed),
        ("ffn.down", "mlp.c_proj", Transposed),
    ],
    others: &[("embedding.token", "wte", Whole), ("embedding.position", "wpe", Whole), ("head.norm", "ln_f", Whole)],
};

const LLAMA: Names = Names {
    layer: "layers",
    of_layer: &[
        ("attention_norm", "input_layernorm", Whole),
        ("attention.query", "self_attn.q_proj", Whole),
        ("attention.key", "self_attn.k_proj", Whole),
        ("attention.value", "self_attn.v_proj", Whole),
        ("attention.output", "self_attn.o_proj", Whole),
        ("attention.query_norm", "self_attn.q_norm", Whole),
        ("attention.key_norm", "self_attn.k_norm", Whole),
        ("ffn_norm", "post_attention_layernorm", Whole),
        ("ffn.gate", "mlp.gate_proj", Whole),
        ("ffn.up", "mlp.up_proj", Whole),
        ("ffn.down", "mlp.down_proj", Whole),
    ],
    others: &[
        ("embedding.token", "embed_tokens", Whole),
        ("head.norm", "norm", Whole),
        ("head.output", "lm_head", Whole),
    ],
};

fn names(family: Family) -> &'static Names {
    match family {
        Family::GptNeoX => &GPT_NEOX,
        Family::Bloom => &BLOOM,
        Family::Opt => &OPT,
        Family::Gpt2 => &GPT2,
        Family::Llama | Family::Qwen2 | Family::Qwen3 => &LLAMA,
    }
}

/// Where `param` of `model` lies in a folder of `family`; `None` where that has no name for it.
pub fn place(family: Family, model: &ModelSpec, param: &ParamSpec) -> Option<Place> {
    let names = names(family);
    let (part, kind) = param.name.rsplit_once('.')?;
    let (prefix, table, part) = match part.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        Some((number, part)) => (format!("{}.{number}.", names.layer), names.of_layer, part),
        None => (String::new(), names.others, part),
    };
    let (_, name, form) = table.iter().find(|(own, _, _)| *own == part)?;
    let (rows, inputs) = (param.shape[0], param.shape.get(1));
    let third = |index| Rows { block: rows, stride: 3 * rows, first: index * rows };
    let whole = Rows { block: rows, stride: rows, first: 0 };
    let (rows, parts, orientation) = match *form {
        Whole => (whole, 1, Orientation::OutputsFirst),
        Transposed => (whole, 1, Orientation::InputsFirst),
        TransposedThird(index) => (third(index), 3, Orientation::InputsFirst),
        InEachHead(index) => {
            let width = model.head_dim;
            (Rows { block: width, stride: 3 * width, first: index * width }, 3, Orientation::OutputsFirst)
        }
    };
    let mut shape: Vec<usize> = std::iter::once(parts * param.shape[0]).chain(inputs.copied()).collect();
    if orientation == Orientation::InputsFirst {
        shape.reverse();
    }
    Some(Place { tensor: format!("{prefix}{name}.{kind}"), shape, rows, orientation })
}
