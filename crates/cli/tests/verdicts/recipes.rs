//! The rules of learning-rate schedules, Muon and samples once more.

use toml::Value;

use crate::oracle::{Values, int, num, text};

/// Samples are of texts that one rank after the other knows whole.
pub fn samples(values: &Values) -> bool {
    let written = |key: &str| values.contains_key(&format!("run.sample_{key}"));
    let prompts = match values.get("run.sample_prompts") {
        None => true,
        Some(Value::Array(prompts)) => {
            !prompts.is_empty() && prompts.iter().all(|prompt| prompt.as_str().is_some_and(|text| !text.is_empty()))
        }
        Some(_) => return false,
    };
    if int(values, "run.sample_every", 0) == 0 {
        return !written("prompts") && !written("tokens") && !written("temperature");
    }
    prompts
        && (1..=10_000).contains(&int(values, "run.sample_tokens", 64))
        && (0.0..=100.0).contains(&num(values, "run.sample_temperature", 0.8))
        && int(values, "parallelism.cp", 1) <= 1
        && !values.contains_key("data.blanks")
}

/// Muon has keys of its own, multiplies in single precision, and with shards it does not overlap.
pub fn muon(values: &Values) -> bool {
    let written = |key: &str| values.contains_key(&format!("train.{key}"));
    if text(values, "train.optimizer", "adamw") == "adamw" {
        return !written("muon_momentum") && !written("muon_scale");
    }
    let is_on_cpus = text(values, "run.device", "cpu") == "cpu";
    let overlaps = values.get("parallelism.overlap").and_then(Value::as_bool).unwrap_or(!is_on_cpus);
    let is_sharded = int(values, "parallelism.zero", 1) > 0;
    let in_blocks = text(values, "train.products", "chained").starts_with("blocks");
    !(in_blocks || overlaps && is_sharded)
}

/// Lengths belong to a schedule, and the decay has room after the warm-up.
pub fn schedule_lengths(values: &Values, steps: i128) -> bool {
    let warmup = int(values, "train.warmup_steps", (steps / 10).min(20));
    let decay = match values.get("train.decay_length") {
        None => (0.2 * steps as f64).round().max(1.0),
        Some(Value::Integer(decay)) if *decay > 0 => *decay as f64,
        Some(Value::Float(share)) if *share > 0.0 && *share < 1.0 => (share * steps as f64).round().max(1.0),
        Some(_) => return false,
    };
    let written = |keys: [&str; 2]| keys.iter().any(|key| values.contains_key(&format!("train.{key}")));
    let (of_decay, of_restarts) = (["decay_length", "decay_shape"], ["restart_steps", "restart_growth"]);
    match text(values, "train.schedule", "cosine") {
        "wsd" => !written(of_restarts) && decay <= (steps - warmup) as f64,
        "cosine-restarts" => {
            !written(of_decay)
                && int(values, "train.restart_steps", 1) > 0
                && int(values, "train.restart_growth", 1) > 0
        }
        _ => !written(of_decay) && !written(of_restarts),
    }
}
