//! Names that other programs have for keys of run files: nanoGPT and llm.c, the Trainer and the model configurations of
//! Hugging Face, torchtitan, DeepSpeed. Those of Megatron-LM are declared with their keys.

/// Name, key, and what has to be written otherwise; nothing where the value is the same.
const NAMES: &[(&str, &str, &str)] = &[
    // Models.
    ("n_embd", "model.hidden", ""),
    ("d_model", "model.hidden", ""),
    ("dim", "model.hidden", ""),
    ("n_layer", "model.num_layers", ""),
    ("n_layers", "model.num_layers", ""),
    ("num_hidden_layers", "model.num_layers", ""),
    ("n_head", "model.num_heads", ""),
    ("n_heads", "model.num_heads", ""),
    ("n_kv_heads", "model.num_kv_heads", ""),
    ("num_key_value_heads", "model.num_kv_heads", ""),
    ("d_ff", "model.ffn_hidden", ""),
    ("n_inner", "model.ffn_hidden", ""),
    ("intermediate_size", "model.ffn_hidden", ""),
    ("moe_intermediate_size", "model.expert_hidden", ""),
    ("vocab", "model.vocabulary", ""),
    ("block_size", "model.context", "and the length of a sequence train.sequence_length"),
    ("n_positions", "model.context", ""),
    ("n_ctx", "model.context", ""),
    ("max_seq_len", "model.context", "and the length of a sequence train.sequence_length"),
    ("hidden_act", "model.activation", ""),
    ("activation_function", "model.activation", ""),
    ("rope_theta", "model.rotary_base", ""),
    ("rms_norm_eps", "model.norm_epsilon", ""),
    ("layer_norm_eps", "model.norm_epsilon", ""),
    ("layer_norm_epsilon", "model.norm_epsilon", ""),
    ("resid_pdrop", "model.dropout", ""),
    ("embd_pdrop", "model.dropout", ""),
    ("attn_pdrop", "model.attention_dropout", ""),
    ("initializer_range", "model.init_std", ""),
    ("tie_word_embeddings", "model.tied_embeddings", ""),
    ("sliding_window", "model.window", ""),
    ("num_experts_per_tok", "model.experts_per_token", ""),
    // Training.
    ("max_iters", "train.steps", ""),
    ("max_steps", "train.steps", ""),
    ("num_iterations", "train.steps", ""),
    ("total_steps", "train.steps", ""),
    ("training_steps", "train.steps", ""),
    ("seq_len", "train.sequence_length", ""),
    ("max_length", "train.sequence_length", ""),
    ("batch_size", "train.global_batch", "the sequences of a step over all ranks"),
    ("train_batch_size", "train.global_batch", ""),
    ("total_batch_size", "train.global_batch", "in sequences, not in tokens"),
    ("per_device_train_batch_size", "parallelism.microbatch_size", "and the sequences of a step train.global_batch"),
    ("train_micro_batch_size_per_gpu", "parallelism.microbatch_size", ""),
    ("local_batch_size", "parallelism.microbatch_size", "and the sequences of a step train.global_batch"),
    ("grad_clip", "train.clip_norm", ""),
    ("max_grad_norm", "train.clip_norm", ""),
    ("gradient_clipping", "train.clip_norm", ""),
    ("max_norm", "train.clip_norm", ""),
    ("warmup_iters", "train.warmup_steps", ""),
    ("warmup_num_steps", "train.warmup_steps", ""),
    ("warmup_iterations", "train.warmup_steps", ""),
    ("warmup_ratio", "train.warmup_steps", "in steps: the share times train.steps"),
    ("lr_scheduler_type", "train.schedule", ""),
    ("lr_scheduler", "train.schedule", ""),
    ("adam_epsilon", "train.epsilon", ""),
    ("max_lr", "train.learning_rate", ""),
    ("mixed_precision", "train.precision", "\"bf16\", \"fp16\" or \"fp32\""),
    ("torch_dtype", "train.precision", "\"bf16\", \"fp16\" or \"fp32\""),
    // Parallelism.
    ("tensor_parallel_size", "parallelism.tp", ""),
    ("tensor_parallel_degree", "parallelism.tp", ""),
    ("tensor_parallel", "parallelism.tp", ""),
    ("tp_size", "parallelism.tp", ""),
    ("pipeline_parallel_size", "parallelism.pp", ""),
    ("pipeline_parallel_degree", "parallelism.pp", ""),
    ("pipeline_parallel", "parallelism.pp", ""),
    ("pp_size", "parallelism.pp", ""),
    ("data_parallel", "parallelism.dp", ""),
    ("data_parallel_replicate_degree", "parallelism.dp", ""),
    ("dp_size", "parallelism.dp", ""),
    ("zero_stage", "parallelism.zero", ""),
    ("stage", "parallelism.zero", ""),
    ("gradient_checkpointing", "parallelism.recompute", "\"full\" or \"selective\""),
    ("activation_checkpoint", "parallelism.recompute", "\"full\" or \"selective\""),
    ("pipeline_parallel_schedule", "parallelism.schedule", ""),
    // Data and runs.
    ("dataset", "data.path", ""),
    ("dataset_path", "data.path", ""),
    ("train_file", "data.path", ""),
    ("validation_file", "data.validation", "a list of names and paths"),
    ("tokenizer_name", "data.tokenizer", "the path of a tokenizer.json"),
    ("tokenizer_path", "data.tokenizer", "the path of a tokenizer.json"),
    ("out_dir", "run.folder", ""),
    ("output_dir", "run.folder", ""),
    ("dump_folder", "run.folder", ""),
    ("save_steps", "run.save_every", ""),
    ("save_freq", "run.save_every", ""),
    ("eval_steps", "run.evaluate_every", ""),
    ("logging_steps", "run.log_every", ""),
    ("log_freq", "run.log_every", ""),
    ("save_total_limit", "run.keep_newest", ""),
];

/// The key that a name stands for.
pub fn key(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|(other, _, _)| *other == name).map(|(_, key, _)| *key)
}

/// The meaning of a name, as the end of a sentence about it.
pub fn meaning(name: &str) -> Option<String> {
    let (_, key, note) = NAMES.iter().find(|(other, _, _)| *other == name)?;
    Some(if note.is_empty() { format!("is `{key}` here") } else { format!("is `{key}` here ({note})") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_file::{declared, known_keys, unsupported};

    #[test]
    fn each_name_has_one_meaning_which_is_a_key() {
        let (keys, reader) = (known_keys(), declared());
        for (place, (name, key, _)) in NAMES.iter().enumerate() {
            assert!(keys.iter().any(|known| known == key), "{name} means {key}, which is not a key");
            assert!(reader.section_of(name).is_none(), "{name} is a key");
            assert!(reader.aliases.iter().all(|alias| alias.name != *name), "{name} is declared with its key");
            assert!(unsupported::answer(name).is_none(), "{name} has another answer");
            assert!(NAMES[..place].iter().all(|(other, _, _)| other != name), "{name} twice");
        }
    }
}
