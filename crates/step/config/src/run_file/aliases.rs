//! Option names of Megatron-LM, and a few of DeepSpeed and its Megatron that it has no word for, so that messages name
//! the key of this program.

/// `(name there, key here, what to know next to the name)`.
const ALIASES: &[(&str, &str, &str)] = &[
    ("tensor_model_parallel_size", "parallelism.tp", ""),
    ("pipeline_model_parallel_size", "parallelism.pp", ""),
    ("data_parallel_size", "parallelism.dp", ""),
    ("world_size", "run.ranks", ""),
    ("distributed_backend", "run.transport", ""),
    ("use_tp_pp_dp_mapping", "run.placement", "its default is that mapping"),
    ("micro_batch_size", "parallelism.microbatch_size", ""),
    ("use_distributed_optimizer", "parallelism.zero", "write 1"),
    ("data_parallel_sharding_strategy", "parallelism.zero", "optim is 1, optim_grads 2, optim_grads_params 3"),
    ("use_torch_fsdp2", "parallelism.zero", "write 3"),
    ("num_distributed_optimizer_instances", "parallelism.shard_group", "write dp divided by it"),
    ("torch_fsdp2_no_reshard_after_forward", "parallelism.reshard", "write \"after-backward\""),
    ("recompute_granularity", "parallelism.recompute", ""),
    ("recompute_activations", "parallelism.recompute", ""),
    ("virtual_pipeline_model_parallel_size", "parallelism.stages_per_rank", ""),
    ("num_virtual_stages_per_pipeline_rank", "parallelism.stages_per_rank", ""),
    (
        "num_layers_per_virtual_pipeline_stage",
        "parallelism.stages_per_rank",
        "the number of stages, not of their layers",
    ),
    ("recompute_num_layers", "parallelism.recompute_every", "N for every Nth layer"),
    ("distribute_saved_activations", "parallelism.recompute_inputs", "write \"sharded\""),
    ("pipeline_model_parallel_layout", "parallelism.stage_layers", "a list of layer counts"),
    ("overlap_grad_reduce", "parallelism.overlap", "it covers gathers and transfers as well"),
    ("decoder_first_pipeline_num_layers", "parallelism.stage_layers", "a list of layer counts"),
    ("decoder_last_pipeline_num_layers", "parallelism.stage_layers", "a list of layer counts"),
    ("hidden_size", "model.hidden", ""),
    ("ffn_hidden_size", "model.ffn_hidden", ""),
    ("num_attention_heads", "model.num_heads", ""),
    ("num_query_groups", "model.num_kv_heads", ""),
    ("group_query_attention", "model.num_kv_heads", "write their number"),
    ("kv_channels", "model.head_dim", ""),
    ("max_position_embeddings", "model.context", ""),
    ("vocab_size", "model.vocabulary", ""),
    ("normalization", "model.norm", "\"layer\" or \"rms\""),
    ("layernorm_epsilon", "model.norm_epsilon", ""),
    ("position_embedding_type", "model.position", "\"learned\", \"rotary\" or \"alibi\""),
    ("use_rotary_position_embeddings", "model.position", "write \"rotary\""),
    ("rotary_percent", "model.rotary_fraction", ""),
    ("use_rope_scaling", "model.rotary_scaling", "write \"llama3\""),
    ("rope_scaling_factor", "model.rotary_scaling_factor", ""),
    ("rotary_seq_len_interpolation_factor", "model.rotary_scaling_factor", "with rotary_scaling = \"linear\""),
    ("rotary_interleaved", "model.rotary_pairing", "write \"interleaved\""),
    ("window_size", "model.window", ""),
    ("window_attn_skip_freq", "model.layer_pattern", "a list of \"local\" and \"global\""),
    ("swiglu", "model.activation", "write \"swiglu\""),
    ("disable_bias_linear", "model.biases", "write false"),
    ("add_bias_linear", "model.biases", ""),
    ("add_qkv_bias", "model.biases", "write \"qkv\""),
    ("embed_layernorm", "model.embedding_norm", ""),
    ("untie_embeddings_and_output_weights", "model.tied_embeddings", "write false"),
    ("qk_layernorm", "model.qk_norm", ""),
    ("context_parallel_size", "parallelism.cp", ""),
    ("cp_comm_type", "parallelism.cp_kind", "\"all_gather\" is \"gather\", \"a2a\" is \"heads\", \"p2p\" is \"ring\""),
    ("hidden_dropout", "model.dropout", ""),
    ("init_method_std", "model.init_std", ""),
    ("train_iters", "train.steps", ""),
    ("global_batch_size", "train.global_batch", ""),
    ("decoupled_lr", "train.groups", "a group of the tables, with learning_rate_scale"),
    ("rampup_batch_size", "train.batch_ramp", "a table of start, increment and sequences"),
    ("seq_length", "train.sequence_length", ""),
    ("lr", "train.learning_rate", ""),
    ("min_lr", "train.min_learning_rate", ""),
    ("lr_warmup_iters", "train.warmup_steps", ""),
    ("lr_decay_style", "train.schedule", ""),
    ("lr_wsd_decay_iters", "train.decay_length", ""),
    ("lr_wsd_decay_style", "train.decay_shape", ""),
    ("muon", "train.optimizer", "write \"muon\""),
    ("adam_beta1", "train.beta1", ""),
    ("adam_beta2", "train.beta2", ""),
    ("adam_eps", "train.epsilon", ""),
    ("optimizer_cpu_offload", "train.offload", "write \"optimizer\"; updates stay on the GPU"),
    ("fine_grained_activation_offloading", "train.offload", "write \"activations\""),
    ("cpu_offloading", "train.offload", "write \"activations\""),
    ("ema", "train.ema_decay", "the decay, such as 0.999"),
    ("clip_grad", "train.clip_norm", ""),
    ("fp16", "train.precision", "write \"fp16\""),
    ("bf16", "train.precision", "write \"bf16\""),
    ("hysteresis", "train.loss_scale_hysteresis", ""),
    ("initial_scale_power", "train.initial_loss_scale", "2 to that power"),
    ("data_path", "data.path", ""),
    ("valid_data_path", "data.validation", "a list of names and paths"),
    ("data_cache_path", "data.cache", ""),
    ("train_data_path", "data.sources", "a list of tables with path and weight"),
    ("split", "data.held_out", "the share that is not trained on"),
    ("reset_attention_mask", "data.visible", "write \"document\""),
    ("reset_position_ids", "data.positions", "write \"document\""),
    ("tokenizer_type", "data.tokenizer", ""),
    ("tokenizer_model", "data.tokenizer", "the path of a tokenizer.json"),
    ("save", "run.folder", ""),
    ("save_interval", "run.save_every", ""),
    ("save_retain_interval", "run.keep_every", ""),
    ("eval_interval", "run.evaluate_every", ""),
    ("log_interval", "run.log_every", ""),
    ("distributed_timeout_minutes", "run.timeout_seconds", "in seconds"),
];

/// Axes of other trainers along which no run divides work: `(name, axis)`.
const OTHER_AXES: &[(&str, &str)] = &[
    ("ep", "expert parallelism"),
    ("expert_model_parallel_size", "expert parallelism"),
    ("expert_tensor_parallel_size", "expert parallelism"),
];

/// The key here for an option name of Megatron-LM, written with underscores.
pub fn key(name: &str) -> Option<&'static str> {
    ALIASES.iter().find(|(alias, _, _)| *alias == name).map(|(_, key, _)| *key)
}

/// The refusal of an axis that runs do not have, as the end of a sentence about its name, with dashes or underscores.
pub fn other_axis(name: &str) -> Option<String> {
    let name = name.trim_start_matches("--").replace('-', "_");
    let (_, axis) = OTHER_AXES.iter().find(|(other, _)| *other == name)?;
    Some(format!("is {axis}, an axis that runs do not have; use dp, cp, tp and pp"))
}

/// The key here for an option name of Megatron-LM, with dashes or underscores, as the end of a sentence about that
/// name; a refusal for the name of an axis that runs do not have.
pub fn meaning(name: &str) -> Option<String> {
    if let Some(refusal) = other_axis(name) {
        return Some(refusal);
    }
    let name = name.trim_start_matches("--").replace('-', "_");
    let (_, key, note) = ALIASES.iter().find(|(alias, _, _)| *alias == name)?;
    Some(if note.is_empty() { format!("is `{key}` here") } else { format!("is `{key}` here ({note})") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_file::known_keys;

    #[test]
    fn names_are_recognised_as_options_and_as_keys() {
        assert_eq!(meaning("--tensor-model-parallel-size").as_deref(), Some("is `parallelism.tp` here"));
        assert_eq!(meaning("swiglu").as_deref(), Some("is `model.activation` here (write \"swiglu\")"));
        assert_eq!(meaning("tp"), None);
    }

    #[test]
    fn every_alias_leads_to_a_key() {
        let known = known_keys();
        for (alias, key, _) in ALIASES {
            assert!(known.iter().any(|known| known == key), "{alias} leads to {key}");
        }
    }
}
