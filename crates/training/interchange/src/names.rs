//! Names and forms of parameters in each family: the tables that reading and writing share.

use config::{ModelSpec, ParamSpec};

use crate::family::Family;
use crate::shards;
use crate::stored_rows::{Orientation, Rows, StoredRows};

/// How a parameter is in its tensor.
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
    /// The `index`-th of this many equal parts, one above the other.
    Fraction(usize, usize),
}

use Form::{Fraction, InEachHead, Transposed, TransposedThird, Whole};

/// `(part of a parameter's name, part of the tensor's name, form)`; what follows in both is `.weight` or `.bias`.
type Table = [(&'static str, &'static str, Form)];

/// The output matrix in all classes but that of GPT-NeoX, where it is not the token table.
const LM_HEAD: (&str, &str, Form) = ("head.output", "lm_head", Whole);

/// The tables of a family.
struct Names {
    /// The prefix of a layer's tensors, before its number.
    layer: &'static str,
    of_layer: &'static Table,
    others: &'static Table,
}

const GPT_NEOX_LAYER: &Table = &[
    ("attention_norm", "input_layernorm", Whole),
    ("attention.query", "attention.query_key_value", InEachHead(0)),
    ("attention.key", "attention.query_key_value", InEachHead(1)),
    ("attention.value", "attention.query_key_value", InEachHead(2)),
    ("attention.output", "attention.dense", Whole),
    ("ffn_norm", "post_attention_layernorm", Whole),
    ("ffn.up", "mlp.dense_h_to_4h", Whole),
    ("ffn.down", "mlp.dense_4h_to_h", Whole),
];

const GPT_NEOX: Names = Names {
    layer: "layers",
    of_layer: GPT_NEOX_LAYER,
    others: &[
        ("embedding.token", "embed_in", Whole),
        ("head.norm", "final_layer_norm", Whole),
        ("head.output", "embed_out", Whole),
    ],
};

/// GPT-NeoX-20B as it was trained (EleutherAI/gpt-neox, `tools/ckpts/merge20b.py`).
const GPT_NEOX_SHARDS: Names = Names {
    layer: "layers",
    of_layer: GPT_NEOX_LAYER,
    others: &[
        ("embedding.token", "word_embeddings", Whole),
        ("head.norm", "norm", Whole),
        ("head.output", "final_linear", Whole),
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
        LM_HEAD,
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
        LM_HEAD,
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
    others: &[
        ("embedding.token", "wte", Whole),
        ("embedding.position", "wpe", Whole),
        ("head.norm", "ln_f", Whole),
        LM_HEAD,
    ],
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
    others: &[("embedding.token", "embed_tokens", Whole), ("head.norm", "norm", Whole), LM_HEAD],
};

const OLMO2: Names = Names {
    layer: "layers",
    of_layer: &[
        ("attention.query", "self_attn.q_proj", Whole),
        ("attention.key", "self_attn.k_proj", Whole),
        ("attention.value", "self_attn.v_proj", Whole),
        ("attention.output", "self_attn.o_proj", Whole),
        ("attention.query_norm", "self_attn.q_norm", Whole),
        ("attention.key_norm", "self_attn.k_norm", Whole),
        ("attention_output_norm", "post_attention_layernorm", Whole),
        ("ffn.gate", "mlp.gate_proj", Whole),
        ("ffn.up", "mlp.up_proj", Whole),
        ("ffn.down", "mlp.down_proj", Whole),
        ("ffn_output_norm", "post_feedforward_layernorm", Whole),
    ],
    others: &[("embedding.token", "embed_tokens", Whole), ("head.norm", "norm", Whole), LM_HEAD],
};

const GEMMA: Names = Names {
    layer: "layers",
    of_layer: &[
        ("attention_norm", "input_layernorm", Whole),
        ("attention.query", "self_attn.q_proj", Whole),
        ("attention.key", "self_attn.k_proj", Whole),
        ("attention.value", "self_attn.v_proj", Whole),
        ("attention.output", "self_attn.o_proj", Whole),
        ("attention.query_norm", "self_attn.q_norm", Whole),
        ("attention.key_norm", "self_attn.k_norm", Whole),
        ("attention_output_norm", "post_attention_layernorm", Whole),
        ("ffn_norm", "pre_feedforward_layernorm", Whole),
        ("ffn.gate", "mlp.gate_proj", Whole),
        ("ffn.up", "mlp.up_proj", Whole),
        ("ffn.down", "mlp.down_proj", Whole),
        ("ffn_output_norm", "post_feedforward_layernorm", Whole),
    ],
    others: &[("embedding.token", "embed_tokens", Whole), ("head.norm", "norm", Whole), LM_HEAD],
};

/// GLM-130B (THUDM/SwissArmyTransformer, `glm130B_model.py`): of the two halves of the first map, the second is the
/// gate.
const GLM: Names = Names {
    layer: "layers",
    of_layer: &[
        ("attention_norm", "input_layernorm", Whole),
        ("attention.query", "attention.query_key_value", InEachHead(0)),
        ("attention.key", "attention.query_key_value", InEachHead(1)),
        ("attention.value", "attention.query_key_value", InEachHead(2)),
        ("attention.output", "attention.dense", Whole),
        ("ffn_norm", "post_attention_layernorm", Whole),
        ("ffn.gate", "mlp.dense_h_to_4h", Fraction(1, 2)),
        ("ffn.up", "mlp.dense_h_to_4h", Fraction(0, 2)),
        ("ffn.down", "mlp.dense_4h_to_h", Whole),
    ],
    others: &[("embedding.token", "word_embeddings", Whole), ("head.norm", "final_layernorm", Whole)],
};

/// CodeGeeX (THUDM/CodeGeeX, `mindspore_to_megatron.py`).
const CODEGEEX: Names = Names {
    layer: "transformer.layers",
    of_layer: &[
        ("attention_norm", "input_layernorm", Whole),
        ("attention.query", "attention.query", Whole),
        ("attention.key", "attention.key", Whole),
        ("attention.value", "attention.value", Whole),
        ("attention.output", "attention.dense", Whole),
        ("ffn_norm", "post_attention_layernorm", Whole),
        ("ffn.up", "mlp.dense_h_to_4h", Whole),
        ("ffn.down", "mlp.dense_4h_to_h", Whole),
    ],
    others: &[
        ("embedding.token", "embedding.word_embeddings", Whole),
        ("embedding.position", "embedding.position_embeddings", Whole),
        ("head.norm", "transformer.final_layernorm", Whole),
        ("top_query.position", "topQueryEmbedding.top_query_embeddings", Whole),
    ],
};

/// The prefix of parameters of the layer after the final norm, here and in CodeGeeX; the rest of a name is as in any
/// layer.
const TOP_QUERY: (&str, &str) = ("top_query.", "transformer.topQueryLayer.");

/// OPT in the files of metaseq (`multihead_attention.py`): each shard has its keys, its values, its queries, in this
/// order.
const METASEQ: Names = Names {
    layer: "layers",
    of_layer: &[
        ("attention_norm", "self_attn_layer_norm", Whole),
        ("attention.query", "self_attn.qkv_proj", Fraction(2, 3)),
        ("attention.key", "self_attn.qkv_proj", Fraction(0, 3)),
        ("attention.value", "self_attn.qkv_proj", Fraction(1, 3)),
        ("attention.output", "self_attn.out_proj", Whole),
        ("ffn_norm", "final_layer_norm", Whole),
        ("ffn.up", "fc1", Whole),
        ("ffn.down", "fc2", Whole),
    ],
    others: &[
        ("embedding.token", "embed_tokens", Whole),
        ("embedding.position", "embed_positions", Whole),
        ("head.norm", "layer_norm", Whole),
    ],
};

fn names(family: Family) -> &'static Names {
    match family {
        Family::GptNeoX => &GPT_NEOX,
        Family::Bloom => &BLOOM,
        Family::Opt => &OPT,
        Family::Gpt2 => &GPT2,
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => &LLAMA,
        Family::Olmo2 => &OLMO2,
        Family::Gemma2 | Family::Gemma3 => &GEMMA,
        Family::GptNeoXShards => &GPT_NEOX_SHARDS,
        Family::Glm => &GLM,
        Family::CodeGeeX => &CODEGEEX,
        Family::Metaseq => &METASEQ,
    }
}

/// Where the part of `param` of `model` that one of `shards` has is in it; `None` where `family` has no name for it.
pub fn stored_rows(family: Family, model: &ModelSpec, param: &ParamSpec, shards: usize) -> Option<StoredRows> {
    let names = names(family);
    let (part, kind) = param.name.rsplit_once('.')?;
    let in_table = |table: &'static Table, own: &str| table.iter().find(|(known, _, _)| *known == own);
    let (prefix, (_, name, form)) = match part.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        Some((number, own)) => (format!("{}.{number}.", names.layer), in_table(names.of_layer, own)?),
        None => match (in_table(names.others, part), part.strip_prefix(TOP_QUERY.0)) {
            (Some(found), _) => (String::new(), found),
            (None, own) => (TOP_QUERY.1.into(), in_table(names.of_layer, own?)?),
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
        Fraction(index, number) => (part_of(index, number), number, Orientation::OutputsFirst),
        InEachHead(index) => {
            let width = model.head_dim;
            (Rows { block: width, stride: 3 * width, first: index * width }, 3, Orientation::OutputsFirst)
        }
    };
    let mut shape: Vec<usize> = std::iter::once(parts * part[0]).chain(inputs.copied()).collect();
    if orientation == Orientation::InputsFirst {
        shape.reverse();
    }
    Some(StoredRows { tensor: format!("{prefix}{name}.{kind}"), shape, rows, orientation })
}

/// The relation of a parameter to the copies that all shards have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// They are alike.
    First,
    /// Their mean: they have drifted apart.
    Mean,
    /// Their sum: each rank added its own before the outputs were summed.
    Sum,
}

/// How copies of `param`, which is not split, become it in a folder of `family`.
pub fn copies(family: Family, param: &ParamSpec) -> Copies {
    let is_behind_a_sum = ["attention.output.bias", "ffn.down.bias"].iter().any(|bias| param.name.ends_with(bias));
    match family {
        Family::GptNeoXShards if is_behind_a_sum => Copies::Sum,
        Family::GptNeoXShards => Copies::Mean,
        Family::GptNeoX
        | Family::Bloom
        | Family::Opt
        | Family::Gpt2
        | Family::Llama
        | Family::Mistral
        | Family::Qwen2
        | Family::Qwen3
        | Family::Olmo2
        | Family::Gemma2
        | Family::Gemma3
        | Family::Glm
        | Family::CodeGeeX
        | Family::Metaseq => Copies::First,
    }
}
