//! Features of other trainers that runs do not have, each with what to do instead.

use crate::degrees::Degrees;
use crate::problem::Problem;

/// Names as keys and options, written with underscores, and the end of a sentence about each.
const UNSUPPORTED: &[(&[&str], &str)] = &[
    (&["fp8", "fp8_format", "fp8_recipe", "fp4"], "is not a precision that runs have; use train.precision = \"bf16\""),
    (
        &["peft", "lora_rank", "lora_r", "lora_alpha", "lora_target_modules"],
        "is a part of model.lora; write model.lora = { rank = 8, alpha = 16.0, targets = [\"query\", \"value\"] }",
    ),
    (
        &["qlora"],
        "is LoRA on quantized weights, which runs do not have; use model.lora with train.precision = \"bf16\"",
    ),
    (
        &["wandb", "wandb_project", "wandb_exp_name", "mlflow", "use_wandb"],
        "is not built in; docs/metrics.md has a script that sends metrics.jsonl there",
    ),
    (
        &["tensorboard", "tensorboard_dir", "tensorboard_log_interval"],
        "is not written while a run continues; use `pleach report RUN --tensorboard FOLDER`",
    ),
    (
        &["moe", "num_moe_experts", "num_local_experts", "n_routed_experts", "moe_grouped_gemm"],
        "is a choice of model.experts; write model.experts = 8 and model.experts_per_token = 2",
    ),
    (
        &["router_aux_loss_coef", "aux_loss_alpha", "balance_loss"],
        "is a loss of routers, for which systems have different formulas; use model.router_balance_loss",
    ),
    (
        &["moe_token_drop_policy", "moe_pad_expert_input_to_capacity", "capacity_factor"],
        "is a capacity of experts; use model.expert_capacity, which drops the smallest weights and pads nothing",
    ),
    (&["e_score_correction_bias"], "is a bias of the choice of experts; use model.router_bias = true"),
    (&["moe_input_jitter_eps", "router_jitter_noise"], "is noise of routers, which runs do not have; leave it out"),
    (&["adafactor", "sgd", "lion"], "is not an optimizer of runs; use train.optimizer = \"adamw\" or \"muon\""),
    (
        &["torch_compile", "compile", "use_flash_attn", "flash_attention"],
        "is not a choice: kernels are built in, and attention never stores its matrix of scores; leave it out",
    ),
    (
        &["gradient_accumulation_steps", "accumulation", "accumulation_steps", "batch_accumulation_per_replica"],
        "follows from the batch; set train.global_batch and parallelism.microbatch_size",
    ),
    (
        &["deepspeed", "deepspeed_config", "fsdp", "use_torch_fsdp2", "ddp"],
        "is a choice of parallelism.zero: 0 replicates, 1 and 2 shard optimizer and gradients, 3 shards parameters (FSDP)",
    ),
    (
        &["offload_optimizer", "cpu_offload", "offload_param", "optimizer_offload_fraction"],
        "is a choice of train.offload: \"optimizer\" keeps moments and master weights in memory of the host",
    ),
    (
        &["offload_activations", "activation_offload", "activation_offloading", "cpu_offloading_num_layers"],
        "is a choice of train.offload: \"activations\" keeps those of all layers in memory of the host",
    ),
    (
        &["dpo", "rlhf", "ppo", "grpo", "reward_model"],
        "is training from preferences, which runs do not have; use another program",
    ),
    (
        &["quantization", "int8", "int4", "load_in_8bit", "load_in_4bit"],
        "is not a type of weights; use train.precision = \"bf16\"",
    ),
];

/// Values that earlier versions had: key, value, and what to do instead.
const FORMER: &[(&str, &str, &str)] = &[(
    "run.device",
    "soft-gpu",
    "use \"cpu\", or try the code of GPUs without one: tools/soft-gpu.sh FOLDER builds NVIDIA's libraries in software, \
     and PLEACH_CUDA=FOLDER pleach train ... --set run.device=cuda opens them",
)];

/// The remedy for a value that earlier versions had.
pub fn former(key: &str, value: &str) -> Option<&'static str> {
    FORMER.iter().find(|former| (former.0, former.1) == (key, value)).map(|former| former.2)
}

/// Axes of other trainers along which no run divides work: `(name, axis)`.
const OTHER_AXES: &[(&str, &str)] = &[("expert_tensor_parallel_size", "tensor parallelism within experts")];

/// The refusal of an axis that runs do not have, as the end of a sentence about its name, with dashes or underscores.
pub fn other_axis(name: &str) -> Option<String> {
    let name = name.trim_start_matches("--").replace('-', "_");
    let (_, axis) = OTHER_AXES.iter().find(|(other, _)| *other == name)?;
    Some(format!("is {axis}, an axis that runs do not have; use {}", Degrees::names("and")))
}

/// The answer to the name of a feature that runs do not have, as the end of a sentence about it; `--fp8` and `fp8` are
/// one name.
pub fn answer(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches("--").replace('-', "_");
    UNSUPPORTED.iter().find(|(names, _)| names.contains(&name.as_str())).map(|(_, answer)| *answer)
}

/// The problem with something in a run file, `shown` so, that is named after such a feature.
pub fn problem(shown: &str, name: &str) -> Option<Problem> {
    let answer = answer(name)?;
    let (rule, remedy) = answer.split_once("; ").unwrap_or((answer, ""));
    Some(Problem::of_key(shown, rule, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_file::known_keys;

    #[test]
    fn features_have_answers_and_keys_do_not() {
        assert!(answer("--use-flash-attn").is_some_and(|answer| answer.starts_with("is not a choice")));
        assert_eq!(answer("tp"), None);
        for key in known_keys() {
            let name = key.split_once('.').map_or(key.as_str(), |(_, name)| name);
            assert_eq!(answer(name), None, "{key} is a key");
        }
    }
}
