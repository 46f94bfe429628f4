//! The classes of the Hugging Face library whose folders are read and written, and the published files that are read.

/// A class of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `GPTNeoXForCausalLM`
    GptNeoX,
    /// `BloomForCausalLM`
    Bloom,
    /// `OPTForCausalLM`
    Opt,
    /// `GPT2LMHeadModel`
    Gpt2,
    /// `LlamaForCausalLM`
    Llama,
    /// `MistralForCausalLM`
    Mistral,
    /// `Qwen2ForCausalLM`
    Qwen2,
    /// `Qwen3ForCausalLM`
    Qwen3,
    /// `Olmo2ForCausalLM`
    Olmo2,
    /// `Gemma2ForCausalLM`
    Gemma2,
    /// `Gemma3ForCausalLM`
    Gemma3,
    /// GLM-130B as it was published: shards of SwissArmyTransformer.
    Glm,
    /// CodeGeeX-13B as it was published.
    CodeGeeX,
    /// OPT as it was published: shards of metaseq.
    Metaseq,
    /// GPT-NeoX-20B as it was trained: shards of DeepSpeed.
    GptNeoXShards,
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
    /// All of them. Where two have a model, the first is written.
    pub const ALL: [Family; 15] = [
        Family::GptNeoX,
        Family::Bloom,
        Family::Opt,
        Family::Gpt2,
        Family::Llama,
        Family::Mistral,
        Family::Qwen2,
        Family::Qwen3,
        Family::Olmo2,
        Family::Gemma2,
        Family::Gemma3,
        Family::Glm,
        Family::CodeGeeX,
        Family::Metaseq,
        Family::GptNeoXShards,
    ];

    /// Name of the class: `architectures` in `config.json`. Those of published files are what
    /// `tools/published_weights.py` writes.
    pub fn class(self) -> &'static str {
        match self {
            Family::GptNeoX => "GPTNeoXForCausalLM",
            Family::Bloom => "BloomForCausalLM",
            Family::Opt => "OPTForCausalLM",
            Family::Gpt2 => "GPT2LMHeadModel",
            Family::Llama => "LlamaForCausalLM",
            Family::Mistral => "MistralForCausalLM",
            Family::Qwen2 => "Qwen2ForCausalLM",
            Family::Qwen3 => "Qwen3ForCausalLM",
            Family::Olmo2 => "Olmo2ForCausalLM",
            Family::Gemma2 => "Gemma2ForCausalLM",
            Family::Gemma3 => "Gemma3ForCausalLM",
            Family::Glm => "GLM-130B",
            Family::CodeGeeX => "CodeGeeX-13B",
            Family::Metaseq => "metaseq",
            Family::GptNeoXShards => "GPT-NeoX-20B",
        }
    }

    /// `model_type` in `config.json`.
    pub fn model_type(self) -> &'static str {
        match self {
            Family::GptNeoX => "gpt_neox",
            Family::Bloom => "bloom",
            Family::Opt => "opt",
            Family::Gpt2 => "gpt2",
            Family::Llama => "llama",
            Family::Mistral => "mistral",
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::Olmo2 => "olmo2",
            Family::Gemma2 => "gemma2",
            Family::Gemma3 => "gemma3_text",
            Family::Glm => "glm-130b",
            Family::CodeGeeX => "codegeex-13b",
            Family::Metaseq => "metaseq",
            Family::GptNeoXShards => "gpt-neox-20b",
        }
    }

    /// The prefixes of tensors' names, in full and as some files have them.
    fn prefixes(self) -> [&'static str; 2] {
        match self {
            Family::GptNeoX => ["gpt_neox.", ""],
            Family::Bloom | Family::Gpt2 => ["transformer.", ""],
            Family::Opt => ["model.decoder.", "decoder."],
            Family::Llama
            | Family::Mistral
            | Family::Qwen2
            | Family::Qwen3
            | Family::Olmo2
            | Family::Gemma2
            | Family::Gemma3 => ["model.", ""],
            Family::Glm => ["transformer.", ""],
            Family::CodeGeeX => ["module.language_model.", "language_model."],
            Family::Metaseq => ["decoder.", ""],
            Family::GptNeoXShards => ["", ""],
        }
    }

    /// A tensor's name in whole.
    pub fn full_name(self, tensor: &str) -> String {
        if OUTPUTS.contains(&tensor) { tensor.into() } else { format!("{}{tensor}", self.prefixes()[0]) }
    }

    /// A tensor's name without what it begins with.
    pub fn short_name(self, tensor: &str) -> &str {
        self.prefixes().into_iter().find_map(|prefix| tensor.strip_prefix(prefix)).unwrap_or(tensor)
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
