//! The classes of the Hugging Face library whose folders are read and written, and the published files that are read.

use config::ModelSpec;
use serde_json::{Map, Value};

use crate::config_json::{bloom, gemma, gpt_neox, gpt2, granite, llama, number, opt, published};
use crate::error::InterchangeError;
use crate::facts::Facts;
use crate::fields::Fields;

/// Declares [`Family`]: each class with the facts about it.
macro_rules! families {
    ($($(#[$doc:meta])* $family:ident = $facts:path),+ $(,)?) => {
        /// A class of models.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Family {
            $($(#[$doc])* $family),+
        }

        impl Family {
            /// All of them. Where two have a model, the first is written.
            pub const ALL: &[Family] = &[$(Family::$family),+];

            pub(crate) fn facts(self) -> &'static Facts {
                match self {
                    $(Family::$family => &$facts),+
                }
            }
        }
    };
}

families! {
    /// `GPTNeoXForCausalLM`
    GptNeoX = gpt_neox::GPT_NEOX,
    /// `BloomForCausalLM`
    Bloom = bloom::BLOOM,
    /// `OPTForCausalLM`
    Opt = opt::OPT,
    /// `GPT2LMHeadModel`
    Gpt2 = gpt2::GPT2,
    /// `LlamaForCausalLM`
    Llama = llama::LLAMA,
    /// `MistralForCausalLM`
    Mistral = llama::MISTRAL,
    /// `Qwen2ForCausalLM`
    Qwen2 = llama::QWEN2,
    /// `Qwen3ForCausalLM`
    Qwen3 = llama::QWEN3,
    /// `Olmo2ForCausalLM`
    Olmo2 = llama::OLMO2,
    /// `Gemma2ForCausalLM`
    Gemma2 = gemma::GEMMA2,
    /// `Gemma3ForCausalLM`
    Gemma3 = gemma::GEMMA3,
    /// `MixtralForCausalLM`
    Mixtral = llama::MIXTRAL,
    /// `Qwen2MoeForCausalLM`
    Qwen2Moe = llama::QWEN2_MOE,
    /// `Qwen3MoeForCausalLM`
    Qwen3Moe = llama::QWEN3_MOE,
    /// `OlmoeForCausalLM`
    Olmoe = llama::OLMOE,
    /// `GraniteMoeForCausalLM`
    GraniteMoe = granite::GRANITE_MOE,
    /// GLM-130B as it was published: shards of SwissArmyTransformer.
    Glm = published::GLM,
    /// CodeGeeX-13B as it was published.
    CodeGeeX = published::CODEGEEX,
    /// OPT as it was published: shards of metaseq.
    Metaseq = published::METASEQ,
    /// GPT-NeoX-20B as it was trained: shards of DeepSpeed.
    GptNeoXShards = published::GPT_NEOX_SHARDS,
}

/// Matrices that are next to the model's own tensors and so do not have their prefix.
const OUTPUTS: [&str; 2] = ["lm_head.weight", "embed_out.weight"];

/// Buffers that old files hold in addition to weights: masks, and frequencies of rotations.
const BUFFERS: [&str; 7] = [
    ".attention.bias",
    ".attn.bias",
    ".attention.masked_bias",
    ".attn.masked_bias",
    ".rotary_emb.inv_freq",
    ".version",
    ".output_projection.weight",
];

impl Family {
    /// The family of a configuration.
    ///
    /// # Errors
    /// A class that is not supported.
    pub fn of(fields: &Fields) -> Result<Family, InterchangeError> {
        let named = fields.map.get("architectures").and_then(|list| list.get(0)).and_then(Value::as_str);
        let model_type = fields.text_or("model_type", "")?;
        let is_this = |family: &&Family| match named {
            Some(class) => family.facts().class == class,
            None => family.facts().model_type == model_type,
        };
        let key = if named.is_some() { "architectures" } else { "model_type" };
        Family::ALL.iter().find(is_this).copied().ok_or_else(|| {
            let known: Vec<&str> = Family::ALL.iter().map(|family| family.class()).collect();
            fields.refused(key, format!("is not read; use {}", known.join(", ")))
        })
    }

    /// The model that a configuration of this family describes.
    ///
    /// # Errors
    /// A value that means something that is not built here, or a size that is not there.
    pub fn read(self, fields: &Fields) -> Result<ModelSpec, InterchangeError> {
        fields.none(
            "quantization_config",
            "stores weights in an unsupported format; use a folder with weights of fp32, bf16 or fp16",
        )?;
        (self.facts().read)(fields)
    }

    /// The configuration that comes nearest to `model`: reading it gives the same model if the family has it.
    pub fn write(self, model: &ModelSpec) -> Map<String, Value> {
        let mut map = (self.facts().write)(model);
        map.insert("architectures".into(), vec![self.class()].into());
        map.insert("model_type".into(), self.facts().model_type.into());
        map.insert("tie_word_embeddings".into(), model.tied_embeddings.into());
        map.insert("initializer_range".into(), number(model.init_std));
        map
    }

    /// Name of the class: `architectures` in `config.json`.
    pub fn class(self) -> &'static str {
        self.facts().class
    }

    /// A tensor's name in whole.
    pub fn full_name(self, tensor: &str) -> String {
        if OUTPUTS.contains(&tensor) { tensor.into() } else { format!("{}{tensor}", self.facts().prefixes[0]) }
    }

    /// A tensor's name without what it begins with.
    pub fn short_name(self, tensor: &str) -> &str {
        self.facts().prefixes.into_iter().find_map(|prefix| tensor.strip_prefix(prefix)).unwrap_or(tensor)
    }

    /// Whether a tensor is an output matrix.
    pub fn is_output(self, tensor: &str) -> bool {
        OUTPUTS.contains(&tensor)
    }

    /// Whether a tensor that the model does not read does not belong to its weights: a buffer, or the output matrix
    /// where that is the token table.
    pub fn is_beside_weights(self, tensor: &str) -> bool {
        self.is_output(tensor) || BUFFERS.iter().any(|buffer| tensor.ends_with(buffer))
    }
}
