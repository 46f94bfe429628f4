//! The model of a row: its columns, and the Megatron arguments that a cell of notes quotes.

use cluster::AttentionKernels;
use config::{Activation, Biases, Blocks, ModelSpec, Norm, NormKind, Pairing, Position, RotaryScaling, TopQuery};

use crate::table::{CORRECTION, Row, TableError};

/// Vocabularies that tensor parallelism divides are padded to a multiple of this times tp (Megatron-LM's default).
const VOCABULARY_MULTIPLE: usize = 128;

/// Whether attention was a fused kernel, where the table says so.
pub(crate) fn attention(row: &Row) -> Result<Option<AttentionKernels>, TableError> {
    match row.word("flash_attn").as_deref() {
        None => Ok(None),
        Some("no" | "false" | "0" | "none" | "unfused" | "torch" | "math" | "eager") => {
            Ok(Some(AttentionKernels::Unfused))
        }
        Some(
            "yes" | "true" | "1" | "2" | "3" | "flash" | "flash1" | "flash2" | "flash3" | "flash-attn" | "flash-attn-2"
            | "fa1" | "fa2" | "fa3" | "fused" | "sdpa" | "te" | "cudnn" | "xformers" | "triton",
        ) => Ok(Some(AttentionKernels::Fused)),
        Some(_) => {
            Err(row.beyond("flash_attn", "no kernel of attention that is known, such as no, yes, flash2, sdpa and te"))
        }
    }
}

/// The activation function of the column.
fn activation(row: &Row) -> Result<Option<Activation>, TableError> {
    match row.word("activation").as_deref() {
        None => Ok(None),
        Some("gelu" | "gelu-tanh" | "gelu-fast" | "gelu-new") => Ok(Some(Activation::GeluTanh)),
        Some("gelu-erf") => Ok(Some(Activation::GeluErf)),
        Some("quick-gelu" | "gelu-sigmoid") => Ok(Some(Activation::GeluSigmoid)),
        Some("relu") => Ok(Some(Activation::Relu)),
        Some("swiglu" | "silu") => Ok(Some(Activation::SwiGlu)),
        Some("geglu") => Ok(Some(Activation::GeGlu)),
        Some(_) => Err(row.beyond("activation", "none of gelu, gelu_erf, quick_gelu, relu, swiglu and geglu")),
    }
}

/// Traits that columns lack: from the arguments in `notes`, whose defaults are Megatron's, or else from the
/// feed-forward width.
struct Kind {
    gated: bool,
    rotary: bool,
    root_mean_square: bool,
    tied: bool,
    dropout: f32,
}

impl Kind {
    fn new(row: &Row, is_wide: bool) -> Result<Kind, TableError> {
        if row.argument("num-experts").is_some() {
            return Err(row.beyond("notes", "a model with experts"));
        }
        if row.argument("multi-latent-attention").is_some() {
            return Err(row.beyond("notes", "a model with latent attention"));
        }
        if row.has_arguments() {
            let gated = row.argument("swiglu").is_some();
            return Ok(Kind {
                gated,
                rotary: row.argument("position-embedding-type") == Some("rope"),
                root_mean_square: row.argument("normalization") == Some("RMSNorm"),
                tied: row.argument("untie-embeddings-and-output-weights").is_none(),
                dropout: 0.1,
            });
        }
        let dropout = if is_wide || attention(row)? == Some(AttentionKernels::Fused) { 0.0 } else { 0.1 };
        Ok(Kind { gated: is_wide, rotary: is_wide, root_mean_square: is_wide, tied: !is_wide, dropout })
    }
}

/// The model of a row whose vocabulary `tp` ranks share.
pub(crate) fn model(row: &Row, tp: usize) -> Result<ModelSpec, TableError> {
    let (hidden, num_heads) = (row.required("hidden")?, row.required("heads")?);
    if !hidden.is_multiple_of(num_heads) {
        return Err(row.refused("heads", format!("not a divisor of hidden = {hidden}; {CORRECTION}")));
    }
    let ffn_hidden = row.count("ffn")?.unwrap_or(4 * hidden);
    let vocabulary = row.count("vocab")?.unwrap_or(51200);
    let vocabulary = if tp == 1 { vocabulary } else { vocabulary.next_multiple_of(VOCABULARY_MULTIPLE * tp) };
    let named = activation(row)?;
    let is_wide = named.map_or(ffn_hidden != 4 * hidden, |named| named.inputs_per_output() == 2);
    let Kind { gated, rotary, root_mean_square, tied, dropout } = Kind::new(row, is_wide)?;
    let usual = if gated { Activation::SwiGlu } else { Activation::GeluTanh };
    Ok(ModelSpec {
        num_layers: row.required("layers")?,
        hidden,
        num_heads,
        num_kv_heads: row.count("kv_heads")?.unwrap_or(num_heads),
        head_dim: hidden / num_heads,
        ffn_hidden,
        ffn_hidden_of_layers: None,
        experts: None,
        vocabulary,
        context: row.count("seq")?.unwrap_or(2048),
        norm: Norm { kind: if root_mean_square { NormKind::Rms } else { NormKind::Layer }, epsilon: 1e-5 },
        position: match rotary {
            true => Position::Rotary {
                base: 1e4,
                rotary_dims: hidden / num_heads,
                pairing: Pairing::Half,
                scaling: RotaryScaling::Off,
            },
            false => Position::Learned { offset: 0 },
        },
        local_attention: None,
        activation: named.unwrap_or(usual),
        blocks: Blocks::Sequential,
        biases: if gated { Biases::Off } else { Biases::All },
        embedding_scale: None,
        query_scalar: None,
        attention_soft_cap: None,
        logit_divisor: None,
        logit_soft_cap: None,
        embedding_norm: false,
        tied_embeddings: tied,
        padding_token: None,
        top_query: TopQuery::Off,
        qk_norm: config::QkNorm::Off,
        dropout,
        attention_dropout: dropout,
        init_std: 0.02,
        output_init_std: None,
        xavier_gain: None,
        lora: None,
        z_loss: None,
    })
}
