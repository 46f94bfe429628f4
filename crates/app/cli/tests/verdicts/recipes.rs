//! The rules of learning-rate schedules, Muon, samples, adapters and conversations once more.

use toml::Value;

use crate::verdicts::model::has_gates;
use crate::verdicts::oracle::{Values, int, num, text};

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

/// Adapters have a rank.
pub fn is_adapters(value: &Value) -> bool {
    let Some(table) = value.as_table() else { return false };
    let names = ["query", "key", "value", "output", "gate", "up", "down"];
    let is_target = |target: &Value| target.as_str().is_some_and(|target| names.contains(&target));
    table.contains_key("rank")
        && table.iter().all(|(key, value)| match key.as_str() {
            "rank" => value.as_integer().is_some_and(|rank| rank >= 0),
            "alpha" => value.is_float() || value.is_integer(),
            "targets" => value.as_array().is_some_and(|targets| targets.iter().all(is_target)),
            _ => false,
        })
}

/// Adapters are at linear layers that there are, and other recipes have no form for them.
pub fn adapters(values: &Values) -> bool {
    let Some(lora) = values.get("model.lora") else { return true };
    let rank = lora.get("rank").and_then(Value::as_integer).unwrap_or(0);
    let alpha = lora
        .get("alpha")
        .map_or(1.0, |alpha| alpha.as_float().or(alpha.as_integer().map(|alpha| alpha as f64)).unwrap_or(0.0));
    let targets = lora.get("targets").and_then(Value::as_array);
    let has_gate = targets.is_some_and(|targets| targets.contains(&Value::String("gate".into())));
    let is_gated = has_gates(values);
    (1..=1 << 14).contains(&rank)
        && alpha > 0.0
        && targets.is_none_or(|targets| !targets.is_empty())
        && (!has_gate || is_gated)
        && values.get("model.top_query").and_then(Value::as_bool) != Some(true)
        && int(values, "parallelism.zero", 1) < 3
        && text(values, "train.optimizer", "adamw") == "adamw"
        && text(values, "train.sums", "single") == "single"
}

/// A chat template has at most three parts.
pub fn is_chat(value: &Value) -> bool {
    let is_date = |text: &str| text.len() == 10 && text.split('-').all(|part| part.parse::<u32>().is_ok());
    value.as_table().is_some_and(|table| {
        table.iter().all(|(key, value)| match (key.as_str(), value.as_str()) {
            ("template", Some(_)) => true,
            ("date", Some(date)) => is_date(date),
            ("long", Some(long)) => ["refuse", "cut"].contains(&long),
            _ => false,
        })
    })
}

/// Conversations come from files, under a template, and have their own attention.
pub fn chat(values: &Values) -> bool {
    let Some(chat) = values.get("data.chat") else { return true };
    let has_template = chat.get("template").and_then(Value::as_str).is_some_and(|template| !template.is_empty());
    let has_text = values.contains_key("data.path") || values.contains_key("data.sources");
    has_template
        && has_text
        && !text(values, "data.path", "").ends_with(".tokens")
        && !values.contains_key("data.blanks")
        && text(values, "data.visible", "past") == "past"
        && text(values, "data.positions", "sequence") == "sequence"
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
    let products = text(values, "train.products", "chained");
    let in_blocks = products.starts_with("blocks") || products == "device";
    !(in_blocks || overlaps && is_sharded)
}

/// Lengths belong to a schedule, and the decay has room after the warm-up.
pub fn schedule_lengths(values: &Values, steps: i128) -> bool {
    let given = int(values, "train.schedule_steps", 0);
    let steps = if given == 0 { steps } else { given };
    let warmup = int(values, "train.warmup_steps", (steps / 4).min(100));
    let schedule = text(values, "train.schedule", "cosine");
    if warmup > steps || (given != 0 && matches!(schedule, "constant" | "cosine-restarts")) {
        return false;
    }
    let decay = match values.get("train.decay_length") {
        None => (0.2 * steps as f64).round().max(1.0),
        Some(Value::Integer(decay)) if *decay > 0 => *decay as f64,
        Some(Value::Float(share)) if *share > 0.0 && *share < 1.0 => (share * steps as f64).round().max(1.0),
        Some(_) => return false,
    };
    let written = |keys: [&str; 2]| keys.iter().any(|key| values.contains_key(&format!("train.{key}")));
    let (of_decay, of_restarts) = (["decay_length", "decay_shape"], ["restart_steps", "restart_growth"]);
    match schedule {
        "wsd" => !written(of_restarts) && decay <= (steps - warmup) as f64,
        "cosine-restarts" => {
            !written(of_decay)
                && int(values, "train.restart_steps", 1) > 0
                && int(values, "train.restart_growth", 1) > 0
        }
        _ => !written(of_decay) && !written(of_restarts),
    }
}
