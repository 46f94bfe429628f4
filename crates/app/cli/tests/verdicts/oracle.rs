//! The rules of run files once more, written as plainly as possible: what is legal, and nothing about why not.

use std::collections::BTreeMap;

use toml::Value;

use crate::verdicts::blanks;
use crate::verdicts::experts;
use crate::verdicts::files::RunFile;
use crate::verdicts::gpus::gpus;
use crate::verdicts::model::{self, Model, has_gates, resolved_model};
use crate::verdicts::recipes;
use crate::verdicts::sizes;

pub type Values = BTreeMap<String, Value>;

/// Keys with whole numbers below 2^31.
const COUNTS: &[&str] = &[
    "model.num_layers",
    "model.hidden",
    "model.num_heads",
    "model.num_kv_heads",
    "model.head_dim",
    "model.ffn_hidden",
    "model.experts",
    "model.experts_per_token",
    "model.expert_hidden",
    "model.shared_expert_hidden",
    "model.first_expert_layer",
    "model.expert_layer_interval",
    "model.router_groups",
    "model.router_groups_kept",
    "model.vocabulary",
    "model.context",
    "model.position_offset",
    "model.rotary_original_context",
    "model.padding_token",
    "parallelism.dp",
    "parallelism.tp",
    "parallelism.pp",
    "parallelism.stages_per_rank",
    "parallelism.schedule_memory_percent",
    "parallelism.shard_group",
    "parallelism.prefetch",
    "parallelism.microbatch_size",
    "parallelism.recompute_every",
    "train.steps",
    "train.global_batch",
    "train.sequence_length",
    "train.schedule_steps",
    "train.warmup_steps",
    "train.restart_steps",
    "train.restart_growth",
    "train.loss_scale_window",
    "train.loss_scale_hysteresis",
    "run.ranks",
    "run.threads_per_rank",
    "run.gpus",
    "run.save_every",
    "run.sample_every",
    "run.sample_tokens",
    "run.keep_newest",
    "run.keep_every",
    "run.keep_best",
];
const NUMBERS: &[&str] = &[
    "model.norm_epsilon",
    "model.router_scale",
    "model.router_balance_loss",
    "model.router_z_loss",
    "model.router_bias_rate",
    "model.expert_capacity",
    "model.logit_divisor",
    "model.rotary_base",
    "model.rotary_fraction",
    "model.rotary_scaling_factor",
    "model.rotary_low_turns",
    "model.rotary_high_turns",
    "model.dropout",
    "model.attention_dropout",
    "model.init_std",
    "model.output_init_std",
    "model.xavier_gain",
    "model.z_loss",
    "model.deepnorm_alpha",
    "train.learning_rate",
    "train.min_learning_rate",
    "train.weight_decay",
    "train.beta1",
    "train.beta2",
    "train.epsilon",
    "train.clip_norm",
    "train.embedding_gradient_scale",
    "train.ema_decay",
    "train.muon_momentum",
    "train.initial_loss_scale",
    "train.min_loss_scale",
    "data.held_out",
    "run.timeout_seconds",
    "run.sample_temperature",
    "run.grace_seconds",
    "run.heartbeat_seconds",
    "run.rendezvous_seconds",
    "run.store_seconds",
];
const TRUTHS: &[&str] = &[
    "model.embedding_norm",
    "model.tied_embeddings",
    "model.top_query",
    "model.qk_norm",
    "model.shared_expert_gate",
    "model.router_bias",
    "model.router_statistics",
    "parallelism.sequence_parallel",
];
const CHOICES: &[(&str, &[&str])] = &[
    ("model.norm", &["layer", "rms"]),
    ("model.position", &["learned", "rotary", "alibi"]),
    ("model.blocks", &["sequential", "parallel", "deepnorm"]),
    ("model.rotary_pairing", &["half", "interleaved"]),
    ("model.rotary_scaling", &["none", "linear", "llama3"]),
    ("model.router_scores", &["softmax", "sigmoid"]),
    ("model.router_balance_over", &["sequence", "step"]),
    ("model.router_weights", &["scores", "normalised"]),
    ("model.activation", &["gelu_tanh", "gelu_erf", "gelu_sigmoid", "relu", "swiglu", "geglu", "swiglu_clamped"]),
    ("parallelism.reduce", &["step", "microbatch"]),
    ("parallelism.reshard", &["after-use", "after-backward"]),
    ("parallelism.schedule", &["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "zb-auto"]),
    ("parallelism.recompute", &["none", "selective", "full"]),
    ("parallelism.recompute_inputs", &["whole", "sharded"]),
    ("train.schedule", &["cosine", "linear", "constant", "wsd", "cosine-restarts"]),
    ("train.optimizer", &["adamw", "muon"]),
    ("train.muon_scale", &["adamw", "shape"]),
    ("train.decay_shape", &["linear", "cosine", "1-sqrt"]),
    ("train.precision", &["fp32", "bf16", "fp16"]),
    ("train.products", &["chained", "pairs", "blocks16", "blocks8", "device"]),
    ("train.sums", &["single", "exact"]),
    ("data.visible", &["past", "document"]),
    ("data.odd_files", &["refuse", "skip"]),
    ("data.positions", &["sequence", "document"]),
    ("run.device", &["cpu", "cuda"]),
    ("run.gpu_collectives", &["auto", "host", "nccl"]),
    ("run.gpu_graphs", &["auto", "off"]),
    ("run.product_algorithms", &["first", "timed", "equal"]),
    ("run.product_kernels", &["auto", "estimated", "timed"]),
    ("run.attention_library", &["auto", "off"]),
    ("run.engine", &["auto", "threads", "processes"]),
    ("run.transport", &["auto", "shared-memory", "tcp", "mpi"]),
    ("run.collectives", &["own", "native"]),
];

/// Whether `file` describes a run.
pub fn is_legal(file: &RunFile) -> bool {
    let table: toml::Table = match file.text().parse() {
        Ok(table) => table,
        // A whole number of 64 bits without a sign is more than this parser takes; it is a seed.
        Err(_) => file.text().replace("18446744073709551615", "1").parse().expect("TOML"),
    };
    let mut values = Values::new();
    for (section, keys) in &table {
        for (key, value) in keys.as_table().expect("a section") {
            values.insert(format!("{section}.{key}"), value.clone());
        }
    }
    values.iter().all(|(key, value)| is_of_its_kind(key, value))
        && model::is_legal(&values)
        && experts::are_legal(&values, &resolved_model(&values))
        && parallelism(&values)
        && train(&values)
        && data_and_run(&values)
        && recipes::samples(&values)
        && recipes::adapters(&values)
        && recipes::chat(&values)
        && sizes::are_planned(&values)
}

fn is_of_its_kind(key: &str, value: &Value) -> bool {
    let integer = value.as_integer();
    if COUNTS.contains(&key) {
        return integer.is_some_and(|count| (0..1 << 31).contains(&count));
    }
    if NUMBERS.contains(&key) {
        return integer.is_some() || value.as_float().is_some_and(f64::is_finite);
    }
    if TRUTHS.contains(&key) {
        return value.as_bool().is_some();
    }
    if let Some((_, choices)) = CHOICES.iter().find(|(name, _)| *name == key) {
        return value.as_str().is_some_and(|text| choices.contains(&text));
    }
    match key {
        "model.biases" => {
            value.as_bool().is_some() || value.as_str().is_some_and(|text| ["qkv", "attention", "ffn"].contains(&text))
        }
        "parallelism.zero" => integer.is_some_and(|stage| (0..=3).contains(&stage)),
        "parallelism.stage_layers" => {
            value.as_array().is_some_and(|layers| layers.iter().all(|layer| layer.as_integer().is_some()))
        }
        "train.batch_ramp" => value.as_table().is_some_and(|ramp| {
            let number = |key: &str| ramp.get(key).and_then(Value::as_integer).is_some_and(|number| number >= 0);
            let grows = ramp.get("grows").map(Value::as_str);
            let known = |grows: Option<&str>| matches!(grows, Some("microbatches" | "microbatch_size"));
            ramp.len() == 3 + usize::from(grows.is_some())
                && ["start", "increment", "sequences"].into_iter().all(number)
                && grows.is_none_or(known)
        }),
        "data.blanks" => blanks::is_of_its_kind(value),
        "data.chat" => recipes::is_chat(value),
        "model.lora" => recipes::is_adapters(value),
        "train.groups" => value.as_array().is_some_and(|groups| groups.iter().all(is_group)),
        "train.seed" | "run.rank_memory_bytes" => integer.is_some_and(|number| number >= 0),
        "data.path" | "run.folder" => value.as_str().is_some(),
        "data.tokenizer" => value.as_str().is_some_and(|text| text == "bytes" || bpe(text).is_some()),
        "data.sources" => value.as_array().is_some_and(|list| {
            list.iter().all(|source| source.get("path").is_some_and(|path| path.as_str().is_some()))
        }),
        _ => false,
    }
}

fn is_group(group: &Value) -> bool {
    let number = |key: &str| group.get(key).is_none_or(|value| value.is_integer() || value.is_float());
    let names = |value: &Value| value.as_array().is_some_and(|names| names.iter().all(Value::is_str));
    let known = ["parameters", "learning_rate_scale", "weight_decay"];
    group.as_table().is_some_and(|table| table.keys().all(|key| known.contains(&key.as_str())))
        && group.get("parameters").is_some_and(names)
        && number("learning_rate_scale")
        && number("weight_decay")
}

fn bpe(text: &str) -> Option<i128> {
    text.strip_prefix("bpe:").and_then(|size| size.parse().ok())
}

pub fn int(values: &Values, key: &str, default: i128) -> i128 {
    values.get(key).and_then(Value::as_integer).map_or(default, i128::from)
}

pub fn num(values: &Values, key: &str, default: f64) -> f64 {
    let written = values.get(key).and_then(|value| value.as_float().or(value.as_integer().map(|number| number as f64)));
    written.unwrap_or(default)
}

pub fn text<'a>(values: &'a Values, key: &str, default: &'a str) -> &'a str {
    values.get(key).and_then(Value::as_str).unwrap_or(default)
}

pub fn divides(part: i128, whole: i128) -> bool {
    part > 0 && whole % part == 0
}

pub fn tokens(values: &Values) -> i128 {
    bpe(text(values, "data.tokenizer", "bpe:1024")).unwrap_or(256)
}

/// dp, tp and pp; `None` where the ranks leave no degree.
pub fn degrees(values: &Values) -> Option<[i128; 3]> {
    let keys = ["parallelism.dp", "parallelism.tp", "parallelism.pp"];
    let default = if values.contains_key("run.ranks") { 1 } else { 2 };
    let mut degrees = keys.map(|key| int(values, key, default));
    let ranks = int(values, "run.ranks", degrees.iter().product());
    if let Some(open) = keys.iter().position(|key| !values.contains_key(*key) && values.contains_key("run.ranks")) {
        let others: i128 = degrees.iter().product();
        degrees[open] = if divides(others, ranks) { ranks / others } else { return None };
    }
    let product: i128 = degrees.iter().product();
    (degrees.iter().all(|degree| *degree > 0) && product == ranks && product <= 1 << 20).then_some(degrees)
}

fn sharding(values: &Values, dp: i128) -> bool {
    let stage = int(values, "parallelism.zero", 1);
    let least_stages = [("shard_group", 1), ("reduce", 2), ("prefetch", 3), ("reshard", 3)];
    let is_set = |key: &str| values.contains_key(&format!("parallelism.{key}"));
    least_stages.iter().all(|(key, least)| !is_set(key) || stage >= *least)
        && divides(int(values, "parallelism.shard_group", dp), dp)
}

fn parallelism(values: &Values) -> bool {
    let Some([dp, tp, pp]) = degrees(values) else { return false };
    let model = resolved_model(values);
    let Model { layers, heads, kv_heads, .. } = model;
    let microbatch_size = int(values, "parallelism.microbatch_size", 2);
    let batch = int(values, "train.global_batch", 16);
    let stages = match values.get("parallelism.stage_layers").and_then(Value::as_array) {
        None => true,
        Some(stages) => {
            let stages: Vec<i128> = stages.iter().filter_map(Value::as_integer).map(i128::from).collect();
            let inner = stages.iter().skip(1).rev().skip(1);
            stages.len() as i128 == pp * stages_per_rank(values)
                && stages.iter().sum::<i128>() == layers
                && inner.into_iter().all(|stage| *stage > 0)
        }
    };
    [heads, kv_heads].iter().all(|whole| divides(tp, *whole))
        && experts::are_divided(values, tp, &model)
        && sharding(values, dp)
        && pp * stages_per_rank(values) <= layers + 2
        && stages
        && microbatch_size > 0
        && divides(dp * microbatch_size * group(values, pp), batch)
        && schedule(values, pp)
        && shared_tokens(values, tp, microbatch_size)
        && recomputation(values)
}

pub fn stages_per_rank(values: &Values) -> i128 {
    match text(values, "parallelism.schedule", "1f1b") {
        "interleaved" => int(values, "parallelism.stages_per_rank", 2),
        "zb-v" => 2,
        _ => 1,
    }
}

/// Microbatches that pass together.
fn group(values: &Values, pp: i128) -> i128 {
    if text(values, "parallelism.schedule", "1f1b") == "interleaved" { pp } else { 1 }
}

/// Options of a schedule need that schedule. No schedule file is there in the folder that the verdicts are asked in.
fn schedule(values: &Values, pp: i128) -> bool {
    let name = text(values, "parallelism.schedule", "1f1b");
    let belongs = |key: &str, to: &str| name == to || !values.contains_key(key);
    belongs("parallelism.stages_per_rank", "interleaved")
        && belongs("parallelism.schedule_memory_percent", "zb-auto")
        && !values.contains_key("parallelism.schedule_file")
        && stages_per_rank(values) > 0
        && int(values, "parallelism.schedule_memory_percent", 100) * pp >= 100
}

fn is_sequence_parallel(values: &Values) -> bool {
    values.get("parallelism.sequence_parallel").and_then(Value::as_bool).unwrap_or(false)
}

/// Each tensor-parallel rank has as many of a microbatch's tokens as the others, where they shard them.
fn shared_tokens(values: &Values, tp: i128, microbatch_size: i128) -> bool {
    let length = int(values, "train.sequence_length", resolved_model(values).context);
    let shares = is_sequence_parallel(values) || text(values, "parallelism.recompute_inputs", "whole") == "sharded";
    !shares || divides(tp, microbatch_size * length)
}

/// Keys of recomputation need recomputation, and a rank never keeps more than its tokens.
fn recomputation(values: &Values) -> bool {
    let written = |key: &str| values.contains_key(&format!("parallelism.recompute_{key}"));
    let whole = text(values, "parallelism.recompute_inputs", "sharded") == "whole";
    match text(values, "parallelism.recompute", "none") {
        "full" => int(values, "parallelism.recompute_every", 1) > 0 && !(whole && is_sequence_parallel(values)),
        _ => !written("every") && !written("inputs"),
    }
}

fn train(values: &Values) -> bool {
    let (steps, rate) = (int(values, "train.steps", 240), num(values, "train.learning_rate", 1e-3));
    let context = resolved_model(values).context;
    let length = int(values, "train.sequence_length", context);
    let least = num(values, "train.min_learning_rate", rate / 10.0);
    let decay = num(values, "train.weight_decay", 0.1);
    let below_one = |key: &str, default| (0.0..1.0).contains(&num(values, key, default));
    steps > 0
        && int(values, "train.global_batch", 16) > 0
        && ramp(values)
        && length > 0
        && length <= context
        && rate > 0.0
        && rate <= 1.0
        && least >= 0.0
        && least <= rate
        && recipes::schedule_lengths(values, steps)
        && decay >= 0.0
        && decay * rate < 1.0
        && below_one("train.beta1", 0.9)
        && below_one("train.beta2", 0.95)
        && below_one("train.ema_decay", 0.0)
        && below_one("train.muon_momentum", 0.95)
        && recipes::muon(values)
        && num(values, "train.epsilon", 1e-8) > 0.0
        && num(values, "train.clip_norm", 1.0) >= 0.0
        && (f64::MIN_POSITIVE..=1.0).contains(&num(values, "train.embedding_gradient_scale", 1.0))
        && groups(values, rate, decay)
        && loss_scaling(values)
        && order_of_products(values)
}

/// Every pattern names something, nothing is named in two groups, and updates stay small.
fn groups(values: &Values, rate: f64, usual_decay: f64) -> bool {
    let none = vec![];
    let groups = values.get("train.groups").and_then(Value::as_array).unwrap_or(&none);
    let names = parameters(values);
    let patterns = |group: &Value| -> Vec<String> {
        let list = group.get("parameters").and_then(Value::as_array).cloned().unwrap_or_default();
        list.iter().filter_map(Value::as_str).map(String::from).collect()
    };
    let number = |group: &Value, key: &str, default: f64| {
        let value =
            group.get(key).and_then(|value| value.as_float().or(value.as_integer().map(|number| number as f64)));
        value.unwrap_or(default)
    };
    let is_sane = |group: &Value| {
        let (scale, decay) = (number(group, "learning_rate_scale", 1.0), number(group, "weight_decay", usual_decay));
        let patterns = patterns(group);
        let names_something = |pattern: &String| names.iter().any(|name| fits(pattern.as_bytes(), name.as_bytes()));
        scale >= 0.0
            && scale * rate <= 1.0
            && decay >= 0.0
            && decay * scale * rate < 1.0
            && !patterns.is_empty()
            && patterns.iter().all(names_something)
    };
    let holders = |name: &String| {
        let holds = |group: &&Value| patterns(group).iter().any(|pattern| fits(pattern.as_bytes(), name.as_bytes()));
        groups.iter().filter(holds).count()
    };
    groups.iter().all(is_sane) && (groups.is_empty() || names.iter().all(|name| holders(name) <= 1))
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => fits(rest, name) || !name.is_empty() && fits(pattern, &name[1..]),
        ([first, pattern @ ..], [letter, name @ ..]) => first == letter && fits(pattern, name),
        _ => false,
    }
}

/// Names of all parameters; of a model whose sizes are legal.
fn parameters(values: &Values) -> Vec<String> {
    let is = |key: &str, default| values.get(key).and_then(Value::as_bool).unwrap_or(default);
    let mut parts = vec![];
    for norm in ["attention_norm", "ffn_norm"] {
        parts.push(format!("{norm}.weight"));
        if text(values, "model.norm", "layer") == "layer" {
            parts.push(format!("{norm}.bias"));
        }
    }
    let mut dense = vec![];
    let mut maps =
        vec!["attention.query", "attention.key", "attention.value", "attention.output", "ffn.up", "ffn.down"];
    if has_gates(values) {
        maps.push("ffn.gate");
    }
    for map in maps {
        let parts = if map.starts_with("ffn.") { &mut dense } else { &mut parts };
        parts.push(format!("{map}.weight"));
        let is_input_of_heads = ["query", "key", "value"].iter().any(|part| map.ends_with(part));
        let has_bias = match values.get("model.biases") {
            Some(Value::Boolean(all)) => *all,
            Some(Value::String(which)) if which == "attention" => map.starts_with("attention."),
            Some(Value::String(which)) if which == "ffn" => map.starts_with("ffn."),
            Some(_) => is_input_of_heads,
            None => true,
        };
        if has_bias {
            parts.push(format!("{map}.bias"));
        }
    }
    if is("model.qk_norm", false) {
        parts.extend(["query", "key"].map(|head| format!("attention.{head}_norm.weight")));
    }
    let Model { layers, ffn, .. } = resolved_model(values);
    let experts = experts::experts(values, ffn);
    let of_experts = experts.as_ref().map_or(vec![], |experts| experts::names(values, experts));
    let mut names: Vec<String> = vec![];
    for layer in 0..layers {
        let block = if experts.is_some_and(|experts| experts.are_in(layer)) { &of_experts } else { &dense };
        names.extend(parts.iter().chain(block).map(|part| format!("layers.{layer}.{part}")));
    }
    names.extend(["embedding.token.weight".into(), "head.norm.weight".into()]);
    if text(values, "model.position", "learned") == "learned" {
        names.push("embedding.position.weight".into());
    }
    if text(values, "model.norm", "layer") == "layer" {
        names.push("head.norm.bias".into());
    }
    if is("model.embedding_norm", false) {
        names.push("embedding.norm.weight".into());
        if text(values, "model.norm", "layer") == "layer" {
            names.push("embedding.norm.bias".into());
        }
    }
    if !is("model.tied_embeddings", true) {
        names.push("head.output.weight".into());
    }
    names
}

/// Powers of two that fall from the first to the least, in fp16 and nowhere else.
fn loss_scaling(values: &Values) -> bool {
    let names = ["initial_loss_scale", "loss_scale_window", "loss_scale_hysteresis", "min_loss_scale"];
    if values.get("train.precision").and_then(toml::Value::as_str) != Some("fp16") {
        return names.iter().all(|name| !values.contains_key(&format!("train.{name}")));
    }
    let (first, least) = (num(values, "train.initial_loss_scale", 65536.0), num(values, "train.min_loss_scale", 1.0));
    let is_power = |scale: f64| (0..=32).any(|exponent| scale == 2f64.powi(exponent));
    is_power(first)
        && is_power(least)
        && least <= first
        && int(values, "train.loss_scale_window", 1000) > 0
        && int(values, "train.loss_scale_hysteresis", 2) > 0
}

/// AMX multiplies no fp16, and tensor cores no fp32.
fn order_of_products(values: &Values) -> bool {
    let text = |key: &str| values.get(key).and_then(toml::Value::as_str);
    match (text("train.precision").unwrap_or("fp32"), text("train.products").unwrap_or("chained")) {
        ("fp16", products) => products != "pairs",
        ("fp32", products) => !products.starts_with("blocks") && products != "device",
        _ => true,
    }
}

/// Whole steps lead from the first batch to the full one, and replicas divide each on the way.
fn ramp(values: &Values) -> bool {
    let Some(ramp) = values.get("train.batch_ramp") else { return true };
    let [start, increment] =
        ["start", "increment"].map(|key| ramp.get(key).and_then(Value::as_integer).map_or(0, i128::from));
    let batch = int(values, "train.global_batch", 16);
    let Some([dp, tp, pp]) = degrees(values) else { return false };
    let size = int(values, "parallelism.microbatch_size", 2);
    if dp * size == 0 {
        return false;
    }
    let grows_in_size = ramp.get("grows").and_then(Value::as_str) == Some("microbatch_size");
    let grain = if grows_in_size { batch / size } else { dp * size * group(values, pp) };
    let larger = |batch: i128| !grows_in_size || shared_tokens(values, tp, batch / grain);
    start > 0
        && start <= batch
        && divides(increment, batch - start)
        && divides(grain, start)
        && divides(grain, increment)
        && larger(start)
        && larger(increment)
}

fn data_and_run(values: &Values) -> bool {
    let weight = |source: &Value| {
        source
            .get("weight")
            .map_or(1.0, |weight| weight.as_float().or(weight.as_integer().map(|number| number as f64)).unwrap_or(0.0))
    };
    let sources = values.get("data.sources").and_then(Value::as_array);
    let is_time = |seconds: f64| seconds > 0.0 && seconds <= 86_400.0;
    let is_one_kind = !values.contains_key("data.path") || sources.is_none();
    is_one_kind
        && !text(values, "data.path", "the embedded text").is_empty()
        && sources.is_none_or(|sources| sources.iter().all(|source| weight(source) > 0.0))
        && blanks::are_legal(values)
        && (text(values, "data.positions", "sequence") == "sequence" || reads_positions(values))
        && (0.0..1.0).contains(&num(values, "data.held_out", 0.1))
        && tokens(values) >= 256
        && !text(values, "run.folder", "out").is_empty()
        && is_time(num(values, "run.timeout_seconds", 60.0))
        && is_time(num(values, "run.grace_seconds", 30.0))
        && is_time(num(values, "run.heartbeat_seconds", 5.0))
        && is_time(num(values, "run.rendezvous_seconds", 10.0))
        && is_time(num(values, "run.store_seconds", 600.0))
        && (!values.contains_key("run.store_seconds") || values.contains_key("run.store"))
        && is_bucket(text(values, "run.store", "s3://bucket"))
        && (text(values, "run.engine", "auto") != "threads" || text(values, "run.transport", "auto") == "auto")
        && (text(values, "run.collectives", "own") == "own"
            || text(values, "run.transport", "auto") == "mpi" && int(values, "parallelism.sum_tree", 1) == 1)
        && int(values, "run.keep_newest", 2) > 0
        && (1..=1024).contains(&int(values, "run.threads_per_rank", 1))
        && gpus(values)
        // Files have much or nearly nothing: less than the parameters of one rank.
        && int(values, "run.rank_memory_bytes", i128::MAX) > 1 << 40
}

/// An address with a bucket, without secrets.
fn is_bucket(address: &str) -> bool {
    address
        .strip_prefix("s3://")
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(['@', '?', '#', '*']))
}

/// Whether anything of the model depends on a token's position itself.
fn reads_positions(values: &Values) -> bool {
    let top_query = values.get("model.top_query").and_then(Value::as_bool).unwrap_or(false);
    top_query || text(values, "model.position", "learned") != "alibi"
}
