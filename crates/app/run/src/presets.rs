//! Run files that are part of the program: `preset:NAME` in place of a file.

use std::fmt;
use std::path::Path;

use crate::failure::Failure;

/// Prefix of the name of a preset in place of a run file.
const PREFIX: &str = "preset:";

macro_rules! preset {
    ($name:literal, $published:expr) => {
        Preset { name: $name, text: include_str!(concat!("../presets/", $name, ".toml")), published: $published }
    };
}

/// Runs of six published models, other published models with a layout to fine-tune them, and each one's shape at a few
/// hundred thousand parameters. The run files say where each is from.
pub const PRESETS: [Preset; 30] = [
    preset!("codegeex-13b", derived("ascend-910", "megatron-2021", 10.01, OF_CODEGEEX)),
    preset!("codegeex-13b-tiny", None),
    preset!("gpt-neox-20b", derived("a100-40g-dgx", "deepspeed-2022", 43.84, OF_GPT_NEOX)),
    preset!("gpt-neox-20b-tiny", None),
    preset!("glm-130b", published("a100-40g-dgx", "largescale-2022", 88.5)),
    preset!("glm-130b-tiny", None),
    preset!("opt-175b", derived("a100-80g-dgx", "metaseq-2022", 19.98, OF_OPT)),
    preset!("opt-175b-tiny", None),
    preset!("bloom-176b", published("a100-80g-jean-zay", "deepspeed-bf16-2022", 104.5)),
    preset!("bloom-176b-tiny", None),
    preset!("mt-nlg-530b", published("a100-80g-dgx", "deepspeed-bf16-2022", 60.1)),
    preset!("mt-nlg-530b-tiny", None),
    preset!("llama-3.1-8b", None),
    preset!("llama-3.1-8b-tiny", None),
    preset!("mistral-7b", None),
    preset!("mistral-7b-tiny", None),
    preset!("qwen3-8b", None),
    preset!("qwen3-8b-tiny", None),
    preset!("smollm2-1.7b", None),
    preset!("smollm2-1.7b-tiny", None),
    preset!("olmo2-7b", None),
    preset!("olmo2-7b-tiny", None),
    preset!("gemma-3-1b", None),
    preset!("gemma-3-1b-tiny", None),
    preset!("gemma-2-9b", None),
    preset!("gemma-2-9b-tiny", None),
    preset!("mixtral-8x7b", None),
    preset!("mixtral-8x7b-tiny", None),
    preset!("qwen3-30b-a3b", None),
    preset!("qwen3-30b-a3b-tiny", None),
];

const OF_CODEGEEX: &str = "54.3e9 tokens a day (CodeGeeX README, unconfirmed)";
const OF_GPT_NEOX: &str = "117 TFLOP/s of each accelerator, counted as 6 N + 60 s h L operations a token \
                           (arXiv 2204.06745); 150,000 such steps take 1,827 of the 1,830 hours in that paper";
const OF_OPT: &str = "up to 147 TFLOP/s of each accelerator (arXiv 2205.01068), counted as \
                      96 s L h^2 (1 + s / 6h + V / 16Lh) operations a sequence, recomputed ones among them";

/// A run file with a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    pub name: &'static str,
    /// The run file.
    pub text: &'static str,
    /// Published facts of the run itself; nothing of a small version.
    pub published: Option<Published>,
}

/// Where and how fast a run ran.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// The profile of its cluster.
    pub cluster: &'static str,
    /// Its trainer, as `--software` names it.
    pub software: &'static str,
    /// Seconds per step of a full batch.
    pub step_s: f64,
    /// Whether these seconds were published.
    pub origin: Origin,
}

/// Where the seconds of a step are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// They were published.
    Published,
    /// They follow from another published number, which this names.
    Derived(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Published => f.write_str("published"),
            Origin::Derived(from) => write!(f, "derived from {from}"),
        }
    }
}

const fn published(cluster: &'static str, software: &'static str, step_s: f64) -> Option<Published> {
    Some(Published { cluster, software, step_s, origin: Origin::Published })
}

const fn derived(cluster: &'static str, software: &'static str, step_s: f64, from: &'static str) -> Option<Published> {
    Some(Published { cluster, software, step_s, origin: Origin::Derived(from) })
}

/// The name of each preset as it is written in place of a run file.
pub fn names() -> impl Iterator<Item = String> {
    PRESETS.iter().map(|preset| format!("{PREFIX}{}", preset.name))
}

/// The presets of published runs.
pub fn all_published() -> impl Iterator<Item = (Preset, Published)> {
    PRESETS.into_iter().filter_map(|preset| Some((preset, preset.published?)))
}

/// The preset that `file` names; `None` where it names a file.
///
/// # Errors
/// A preset that there is not.
pub fn named(file: &Path) -> Result<Option<Preset>, Failure> {
    let Some(name) = file.to_str().and_then(|file| file.strip_prefix(PREFIX)) else { return Ok(None) };
    match PRESETS.into_iter().find(|preset| preset.name == name) {
        Some(preset) => Ok(Some(preset)),
        None => {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            Err(Failure::Input(format!("there is no preset {name:?}; there are {}", names.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use config::{RunConfig, active_parameters, unique_parameters};

    use super::*;

    fn load(name: &str) -> RunConfig {
        let preset = named(Path::new(&format!("preset:{name}"))).expect("known").expect("a preset");
        RunConfig::load(name, preset.text, &[]).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    /// Counts as published, or as they follow from published sizes, each parameter once.
    #[test]
    fn models_have_the_published_numbers_of_parameters() {
        for (name, parameters) in [
            ("codegeex-13b", 12_873_943_040),
            ("gpt-neox-20b", 20_554_567_680),
            ("glm-130b", 128_697_794_560),
            ("opt-175b", 174_604_468_224),
            ("bloom-176b", 176_247_271_424),
            ("mt-nlg-530b", 529_600_819_200),
            ("llama-3.1-8b", 8_030_261_248),
            ("mistral-7b", 7_241_732_096),
            ("qwen3-8b", 8_190_735_360),
            ("smollm2-1.7b", 1_711_376_384),
            ("olmo2-7b", 7_298_617_344),
            ("gemma-3-1b", 999_885_952),
            ("gemma-2-9b", 9_241_705_984),
            ("mixtral-8x7b", 46_702_792_704),
            ("qwen3-30b-a3b", 30_532_122_624),
        ] {
            assert_eq!(unique_parameters(&load(name).model), parameters, "{name}");
        }
    }

    /// Published in billions as 12.9 of 46.7 (arXiv 2401.04088) and as 3.3 of 30.5 (arXiv 2505.09388, rounded down).
    #[test]
    fn tokens_go_through_the_published_numbers_of_parameters() {
        for (name, parameters) in [("mixtral-8x7b", 12_879_925_248), ("qwen3-30b-a3b", 3_353_032_704)] {
            assert_eq!(active_parameters(&load(name).model), parameters, "{name}");
        }
        let dense = load("llama-3.1-8b").model;
        assert_eq!(active_parameters(&dense), unique_parameters(&dense));
    }

    /// Accelerators, and how the sequences of a step are split: microbatch size x microbatches x dp.
    #[test]
    fn layouts_are_the_published_ones() {
        for (name, ranks, batch) in [
            ("codegeex-13b", 1536, [16, 1, 192]),
            ("gpt-neox-20b", 96, [4, 32, 12]),
            ("glm-130b", 768, [1, 176, 24]),
            ("opt-175b", 992, [8, 1, 124]),
            ("bloom-176b", 384, [2, 128, 8]),
            ("mt-nlg-530b", 2240, [1, 240, 8]),
        ] {
            let RunConfig { parallelism, train, run, .. } = load(name);
            let [size, number, dp] = batch;
            assert_eq!((run.ranks, parallelism.microbatch_size, parallelism.degrees.dp), (ranks, size, dp), "{name}");
            assert_eq!(parallelism.num_microbatches(train.global_batch), number, "{name}");
        }
    }

    /// A twin has its model's kind of everything, and is small.
    #[test]
    fn twins_have_the_shape_of_their_models() {
        for preset in PRESETS.iter().filter(|preset| !preset.name.ends_with("-tiny")) {
            let (full, tiny) = (load(preset.name), load(&format!("{}-tiny", preset.name)));
            let kinds = |config: &RunConfig| {
                let model = &config.model;
                let kind = std::mem::discriminant(&model.position);
                let blocks = std::mem::discriminant(&model.blocks);
                let ends = (model.embedding_norm, model.top_query, model.tied_embeddings);
                let local = model.local_attention.as_ref().map(|local| (local.pattern.clone(), local.rotary_base));
                let caps = (model.attention_soft_cap, model.logit_soft_cap, model.embedding_scale.is_some());
                let heads = (model.qk_norm, caps, model.num_kv_heads == model.num_heads, local);
                let experts = model.experts.map(|experts| (experts.routing, experts.shared, experts.layer_interval));
                let data = (config.data.visible, config.data.positions);
                (kind, blocks, model.norm.kind, model.activation, model.biases, ends, heads, experts, data)
            };
            assert_eq!(kinds(&full), kinds(&tiny), "{}", preset.name);
            let manner = |config: &RunConfig| {
                let RunConfig { parallelism, train, .. } = config;
                let precision = std::mem::discriminant(&train.precision);
                (parallelism.zero, parallelism.recompute, precision, train.batch_ramp.is_some(), train.schedule)
            };
            assert_eq!(manner(&full), manner(&tiny), "{}", preset.name);
            assert!((100_000..500_000).contains(&unique_parameters(&tiny.model)), "{}", preset.name);
            assert_eq!(tiny.parallelism.degrees.pp > 1, full.parallelism.degrees.pp > 1, "{}", preset.name);
        }
    }

    /// The sources of `step_s` give it again, to its digits.
    #[test]
    fn derived_seconds_follow_from_what_they_are_derived_from() {
        let expected = |name: &str| {
            let RunConfig { model, parallelism, train, .. } = load(name);
            let [h, layers, s] = [model.hidden, model.num_layers, train.sequence_length].map(|length| length as f64);
            let (batch, ranks) = (train.global_batch as f64, parallelism.world_size() as f64);
            let (n, v) = (unique_parameters(&model) as f64, model.vocabulary as f64);
            match name {
                "codegeex-13b" => batch * s * 86_400.0 / 54.3e9,
                "gpt-neox-20b" => batch * s * (6.0 * n + 60.0 * s * h * layers) / (ranks * 117e12),
                "opt-175b" => {
                    let of_a_sequence = 96.0 * s * layers * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * layers * h));
                    batch * of_a_sequence / (ranks * 147e12)
                }
                other => panic!("{other} has no derivation here"),
            }
        };
        let mut derived = 0;
        for (preset, published) in all_published() {
            if published.origin != Origin::Published {
                let (step_s, expected) = (published.step_s, expected(preset.name));
                // All have two digits after the point.
                assert!((step_s - expected).abs() <= 0.005, "{}: {step_s} s, derived {expected}", preset.name);
                derived += 1;
            }
        }
        assert_eq!(derived, 3);
    }

    #[test]
    fn a_preset_that_there_is_not_is_named_with_those_that_there_are() {
        let said = named(Path::new("preset:bloom")).expect_err("there is none").to_string();
        assert!(said.starts_with("there is no preset \"bloom\"; there are codegeex-13b, "), "{said}");
        assert!(named(Path::new("bloom.toml")).expect("a file").is_none());
    }
}
