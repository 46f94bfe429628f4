//! Folders that cannot be used, and what is said about them.

use std::fs;

use config::Format;
use interchange::{InterchangeError, export};
use serde_json::Value;

use crate::hugging_face::reading::model;
use crate::hugging_face::{Folder, fixtures, pleach};

/// The message about the folder of `class` with `key` of its configuration changed.
fn refused(class: &str, key: &str, value: Value) -> String {
    refused_with(class, vec![(key, value)])
}

/// The message about the folder of `class` with some keys of its configuration changed.
fn refused_with(class: &str, changes: Vec<(&str, Value)>) -> String {
    let keys: Vec<&str> = changes.iter().map(|(key, _)| *key).collect();
    let key = keys.join("-");
    let (from, folder) = (fixtures().join(class), Folder::new(&format!("{class}-{key}")));
    for entry in fs::read_dir(&from).expect("a folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, folder.0.join(path.file_name().expect("a name"))).expect("copied");
    }
    let config = folder.0.join("config.json");
    let mut map: Value = serde_json::from_str(&fs::read_to_string(&config).expect("text")).expect("JSON");
    changes.into_iter().for_each(|(key, value)| map[key] = value);
    fs::write(&config, map.to_string()).expect("written");
    let from = folder.0.display().to_string();
    let output = pleach(&["import", &from, "--out", &folder.at("run")]);
    assert_eq!(output.status.code(), Some(2), "{class}, {key}");
    assert!(!folder.0.join("run").exists(), "{class}, {key}: nothing is made of it");
    let said = String::from_utf8(output.stderr).expect("text");
    said.trim_end().replace(&format!("{from}/"), "").replace(&from, "FOLDER")
}

#[test]
fn tensors_that_are_missing_left_over_or_of_another_shape_are_named() {
    assert_eq!(
        refused("gpt2", "n_layer", 3.into()),
        "FOLDER: there is no tensor transformer.h.2.attn.c_attn.weight, which layers.2.attention.query.weight is read from"
    );
    assert_eq!(
        refused("gpt2", "n_layer", 1.into()),
        "FOLDER: there is a tensor transformer.h.1.attn.c_attn.bias, which the model of config.json does not have"
    );
    assert_eq!(
        refused("opt", "max_position_embeddings", 11.into()),
        "FOLDER: tensor model.decoder.embed_positions.weight is [14, 12], and [13, 12] by config.json"
    );
    assert_eq!(
        refused("llama", "tie_word_embeddings", "yes".into()),
        "config.json: tie_word_embeddings = \"yes\" is not true or false"
    );
}

#[test]
fn models_that_are_not_built_here_are_refused_by_name() {
    let cases = [
        ("opt", "do_layer_norm_before", Value::from(false), "false is not supported; use true"),
        ("bloom", "apply_residual_connection_post_layernorm", true.into(), "true is not supported; use false"),
        ("llama", "hidden_act", "relu".into(), "\"relu\" is not among silu, gelu, swish"),
        ("llama", "rope_scaling", 2.into(), "2 is not an object"),
        ("llama", "pad_token_id", 31.into(), "31 must be below vocab_size = 31; use null"),
        ("llama", "num_experts", 8.into(), "8 is not supported; use null"),
        ("llama", "partial_rotary_factor", 0.5.into(), "0.5 is ignored by this class, which rotates all dims; use 1.0"),
        (
            "llama",
            "quantization_config",
            serde_json::json!({ "bits": 4 }),
            "{\"bits\":4} stores weights in an unsupported format; use a folder with weights of fp32, bf16 or fp16",
        ),
        ("llama", "hidden_size", Value::Null, "null must be a size; use a whole number"),
        (
            "gpt_neox",
            "hidden_act",
            "swish".into(),
            "\"swish\" is not among gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, quick_gelu, relu",
        ),
        (
            "gpt2",
            "architectures",
            vec!["T5"].into(),
            "[\"T5\"] is not read; use GPTNeoXForCausalLM, BloomForCausalLM, OPTForCausalLM, GPT2LMHeadModel, LlamaForCausalLM, \
             MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Olmo2ForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, \
             MixtralForCausalLM, Qwen2MoeForCausalLM, Qwen3MoeForCausalLM, OlmoeForCausalLM, GraniteMoeForCausalLM, GLM-130B, CodeGeeX-13B, \
             metaseq, GPT-NeoX-20B",
        ),
        ("olmoe", "clip_qkv", 8.0.into(), "8.0 is not supported; use null"),
        ("mixtral", "router_jitter_noise", 0.1.into(), "0.1 is not supported; use 0.0"),
        ("qwen3_moe", "use_sliding_window", true.into(), "true is not supported; use false"),
        (
            "qwen2_moe",
            "mlp_only_layers",
            vec![1].into(),
            "[1] must list the first layers, with decoder_sparse_step = 1; use []",
        ),
        ("granitemoe", "residual_multiplier", 0.into(), "0 is not a number above 0"),
        ("gemma3", "use_bidirectional_attention", true.into(), "true is not supported; use false"),
        ("gemma3", "attn_logit_softcapping", 50.0.into(), "50.0 is not supported; use null"),
        ("gemma2", "hidden_activation", "relu".into(), "\"relu\" is not among gelu_pytorch_tanh, gelu_new, gelu, silu"),
    ];
    for (class, key, value, rule) in cases {
        assert_eq!(refused(class, key, value), format!("config.json: {key} = {rule}"));
    }
}

#[test]
fn a_scaling_of_rotations_that_is_not_built_here_is_refused_by_name() {
    let dynamic = serde_json::json!({ "rope_type": "dynamic", "factor": 4.0 });
    let rule = "is not a supported rotary scaling; use \"default\", \"linear\", \"llama3\" or \"yarn\"";
    assert_eq!(refused("llama", "rope_scaling", dynamic), format!("config.json: rope_type = \"dynamic\" {rule}"));
    let not_rounded = serde_json::json!({ "rope_type": "yarn", "factor": 4.0, "truncate": false });
    let rule = "false is not supported; use true";
    assert_eq!(refused("llama", "rope_scaling", not_rounded), format!("config.json: truncate = {rule}"));
    let nothing = serde_json::json!({ "type": "linear" });
    assert_eq!(refused("llama", "rope_scaling", nothing), "config.json: factor = null is not a number");
}

/// Keys that depend on other keys: layers with windows, biases that the library leaves out of slices.
#[test]
fn keys_that_together_are_no_model_are_refused() {
    let sliding = |window: Value, types: Value| {
        refused_with(
            "qwen2",
            vec![("use_sliding_window", true.into()), ("sliding_window", window), ("layer_types", types)],
        )
    };
    let types = |names: &[&str]| Value::from(names);
    let rule = "[\"sliding_attention\"] must have num_hidden_layers = 2 entries";
    assert_eq!(sliding(3.into(), types(&["sliding_attention"])), format!("config.json: layer_types = {rule}"));
    let rule = "[\"chunked_attention\",\"full_attention\"] must name full_attention and sliding_attention alone";
    let chunked = types(&["chunked_attention", "full_attention"]);
    assert_eq!(sliding(3.into(), chunked), format!("config.json: layer_types = {rule}"));
    let rule = "0 must let a token see itself; use at least 1";
    let near = types(&["full_attention", "sliding_attention"]);
    assert_eq!(sliding(0.into(), near), format!("config.json: sliding_window = {rule}"));
    let slices = vec![("slow_but_exact", true.into()), ("pretraining_tp", 2.into())];
    let rule = "true is not supported; use false";
    assert_eq!(refused_with("bloom", slices), format!("config.json: slow_but_exact = {rule}"));
}

#[test]
fn a_folder_of_pickled_weights_is_refused() {
    let folder = Folder::new("pickled");
    fs::copy(fixtures().join("gpt2/config.json"), folder.0.join("config.json")).expect("copied");
    fs::write(folder.0.join("pytorch_model.bin"), b"").expect("written");
    let said = interchange::HuggingFaceFolder::open(&folder.0).expect_err("pickled").to_string();
    let rule = "pytorch_model.bin is pickled, which is not read; use model.safetensors, as save_pretrained of the library writes it";
    assert_eq!(said, format!("{}: {rule}", folder.0.display()));
}

/// The library reads the output matrix or the table, depending on its version.
#[test]
fn an_output_matrix_that_is_not_the_table_that_it_is_said_to_be_is_refused() {
    assert_eq!(
        refused("gpt2_untied", "tie_word_embeddings", true.into()),
        "FOLDER: tensor lm_head.weight is not transformer.wte.weight: row 0 differs. tie_word_embeddings = true in config.json says \
         that they are one; use false to read both"
    );
    assert_eq!(
        refused("gpt2", "tie_word_embeddings", false.into()),
        "FOLDER: there is no tensor lm_head.weight, which head.output.weight is read from"
    );
}

#[test]
fn a_model_that_no_class_has_is_not_exported() {
    let folder = Folder::new("no-class");
    let run = folder.at("run");
    let sets = ["model.num_layers=1", "model.hidden=16", "model.ffn_hidden=16", "model.num_heads=2", "model.context=8"];
    let others =
        ["model.position=alibi", "data.tokenizer=bytes", "train.steps=1", "train.global_batch=2", "run.ranks=1"];
    let folder_key = format!("run.folder={run:?}");
    let mut arguments = vec!["train", "--quiet", "--set", &folder_key, "--set", "train.warmup_steps=0"];
    sets.iter().chain(&others).for_each(|set| arguments.extend(["--set", set]));
    crate::hugging_face::succeeds(&arguments);
    let output = pleach(&["export", &run, "--out", &folder.at("out")]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(
        said.starts_with("no Hugging Face class has this model: its norms, positions, activation, blocks"),
        "{said}"
    );
}

#[test]
fn a_weight_that_half_precision_does_not_reach_is_named() {
    let folder = Folder::new("too-large");
    let said = |stored| {
        let exported = export(
            &model(),
            serde_json::Map::new(),
            &folder.0,
            stored,
            |_, _, values| -> Result<(), InterchangeError> {
                values.fill(-65520.0);
                Ok(())
            },
        );
        exported.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(
        said(Format::Fp16),
        Err("embedding.token.weight has the value -6.552e4, and the largest value of fp16 is 65504; use bf16 or fp32"
            .into())
    );
    assert_eq!(said(Format::Bf16), Ok(()));
}
