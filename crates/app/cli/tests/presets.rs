//! Runs that are part of the program: published layouts are planned and fit their accelerators, and each small twin
//! keeps under its layout the promise that it makes its own run on one rank.

use std::fs;

use crate::harness::{pleach, prints};

/// Published runs.
const RUNS: [&str; 6] = ["codegeex-13b", "gpt-neox-20b", "glm-130b", "opt-175b", "bloom-176b", "mt-nlg-530b"];

/// Published models, with a layout to fine-tune them.
const MODELS: [&str; 9] = [
    "llama-3.1-8b",
    "mistral-7b",
    "qwen3-8b",
    "smollm2-1.7b",
    "olmo2-7b",
    "gemma-3-1b",
    "gemma-2-9b",
    "mixtral-8x7b",
    "qwen3-30b-a3b",
];

fn names() -> impl Iterator<Item = &'static str> {
    RUNS.into_iter().chain(MODELS)
}

#[test]
fn published_layouts_are_planned_and_fit() {
    for (name, ranks) in RUNS.into_iter().zip([
        "1536 = dp 192 x tp 8 x pp 1",
        "96 = dp 12 x tp 2 x pp 4",
        "768 = dp 24 x tp 4 x pp 8",
        "992 = dp 124 x tp 8 x pp 1",
        "384 = dp 8 x tp 4 x pp 12",
        "2240 = dp 8 x tp 8 x pp 35",
    ]) {
        let said = prints(&["check", &format!("preset:{name}")]);
        assert!(said.contains(&format!("ranks   {ranks}\n")), "{said}");
        println!("{name}\n{said}");
    }
}

/// On 8 accelerators, the largest on 16, by check and by simulate.
#[test]
fn models_are_planned_and_fit() {
    for name in MODELS {
        let preset = format!("preset:{name}");
        let said = prints(&["check", &preset]);
        let ranks = if name == "mixtral-8x7b" { "16 = dp 1 x tp 8 x pp 2" } else { "8 = dp 8 x tp 1 x pp 1" };
        assert!(said.contains(&format!("ranks   {ranks}\n")), "{said}");
        let said = prints(&["simulate", &preset, "--cluster=h100-80g-dgx"]);
        assert!(said.contains("tokens a second"), "{said}");
        println!("{name}\n{said}");
    }
}

/// Predictions and checks name the parameters and the operations of a token, which are those of chosen experts.
#[test]
fn tokens_go_through_some_experts_only() {
    for (name, line) in [
        ("mixtral-8x7b", "experts 2 of 8 for a token, in 32 layers; a token goes through 12,879,925,248 parameters"),
        ("qwen3-30b-a3b", "experts 8 of 128 for a token, in 48 layers; a token goes through 3,353,032,704 parameters"),
    ] {
        let preset = format!("preset:{name}");
        // 6 for each of these parameters, and 12 for each dim of a query and each key of the sequence in each layer.
        let operations = if name == "mixtral-8x7b" { "90.2 GFLOP" } else { "29.8 GFLOP" };
        for arguments in [
            &["check", &preset][..],
            &["simulate", &preset, "--cluster=h100-80g-dgx"],
            &["explain", &preset],
            &["plan", &preset, "--gpus=64", "--cluster=h100-80g-dgx", "--top=1"],
        ] {
            let said = prints(arguments);
            assert!(said.contains(&format!("{line} and {operations}")), "{arguments:?}: {said}");
        }
        let json = prints(&["check", &preset, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let active = json["active_parameters"].as_u64().map(config::figures::grouped);
        assert!(active.is_some_and(|active| line.ends_with(&format!("{active} parameters"))), "{json}");
    }
}

#[test]
fn every_rank_of_a_published_layout_gets_to_its_end() {
    let said = prints(&["check", "preset:gpt-neox-20b", "--all-ranks"]);
    let line = said.lines().find(|line| line.starts_with("every rank  96 ranks with programs of their own: "));
    assert!(line.is_some_and(|line| line.ends_with(" collectives; all end")), "{said}");
    assert!(
        said.contains("  8 different programs; shards tile every parameter once, sequences every batch once\n"),
        "{said}"
    );
    let said = prints(&["check", "preset:glm-130b-tiny", "--ramp", "--all-ranks", "--json"]);
    assert!(said.contains(r#""all_ranks":{"instructions":"#), "{said}");
}

/// The other measured sizes of the largest, and the unconfirmed one; its growing batch is one of dp 8 and 16.
#[test]
fn the_largest_is_planned_at_every_measured_size() {
    let said = prints(&["check", "preset:mt-nlg-530b", "--set", "parallelism.dp=16"]);
    assert!(said.contains("ranks   4480 = dp 16 x tp 8 x pp 35"), "{said}");
    for dp in [10, 12] {
        let set = format!("parallelism.dp={dp}");
        let refused = pleach(&["check", "preset:mt-nlg-530b", "--set", &set]);
        assert_eq!(refused.status.code(), Some(2), "dp {dp} does not divide the ramp");
        let no_ramp = "train.batch_ramp=";
        let said = prints(&["check", "preset:mt-nlg-530b", "--set", &set, "--set", no_ramp]);
        assert!(said.contains(&format!("= dp {dp} x tp 8 x pp 35")), "{said}");
    }
}

#[test]
fn twins_keep_their_promise_to_one_rank() {
    let folder = std::env::temp_dir().join(format!("pleach-presets-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    for name in names() {
        let twin = format!("{}/../run/presets/{name}-tiny.toml", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(&twin).expect("the preset");
        let (before, rest) = text.split_once("[parallelism]").expect("a section");
        let (_, after) = rest.split_once("[train]").expect("a section");
        let one = folder.join(format!("{name}.toml"));
        let layout = "[parallelism]\ndp = 1\ntp = 1\npp = 1\nzero = 0\nmicrobatch_size = 1";
        fs::write(&one, format!("{before}{layout}\n\n[train]{after}")).expect("written");
        let said = prints(&["prove", &format!("preset:{name}-tiny"), &one.display().to_string(), "--steps", "2"]);
        println!("{name}\n{said}");
    }
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn the_list_names_every_preset() {
    let said = prints(&["presets"]);
    let listed = said.lines().skip(1).take_while(|line| !line.is_empty());
    let found: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    let expected: Vec<String> = names().flat_map(|name| [name.to_string(), format!("{name}-tiny")]).collect();
    assert_eq!(found, expected);
    assert!(
        said.contains("bloom-176b          176,247,271,424  dp 8 x tp 4 x pp 12          384  85.2 GB each"),
        "{said}"
    );
    let (_, seconds) = said.split_once("\nseconds of a step\n").expect("what steps took");
    assert_eq!(seconds.lines().count(), RUNS.len(), "{said}");
    for line in seconds.lines() {
        let origin = ["glm-130b", "bloom-176b", "mt-nlg-530b"].iter().any(|name| line.starts_with(name));
        assert!(line.contains(if origin { ": published" } else { ": derived from " }), "{line}");
    }
}

#[test]
fn the_list_fits_a_narrow_window() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_pleach")).arg("presets").env("COLUMNS", "60").output();
    let text = String::from_utf8(output.expect("a list").stdout).expect("text");
    assert!(text.lines().all(|line| line.len() <= 60), "{text}");
}

/// A preset for accelerators of 80 GB and a profile of them have one size.
#[test]
fn memory_of_presets_is_that_of_profiles() {
    let there = cluster::Cluster::from_toml(cluster::named("a100-80g-dgx").expect("a profile")).expect("a profile");
    let there = format!("{:.0}", there.accelerator.memory_bytes());
    for name in names() {
        let text = std::fs::read_to_string(format!("../run/presets/{name}.toml")).expect("a preset");
        let bytes =
            text.lines().find_map(|line| line.strip_prefix("rank_memory_bytes = 8")).map(|rest| format!("8{rest}"));
        if let Some(bytes) = bytes {
            assert_eq!(bytes.split(' ').next(), Some(there.as_str()), "{name}");
        }
    }
}

/// A time and a prediction are compared where both are of one trainer, one run and one cluster.
#[test]
fn what_a_published_step_took_is_compared_with_its_own_trainer() {
    let actual = |arguments: &[&str]| -> Option<String> {
        let said = prints(&[&["simulate", "preset:bloom-176b"], arguments].concat());
        said.lines().find_map(|line| line.strip_prefix("actual  ")).map(str::to_string)
    };
    let like = actual(&["--software=deepspeed-bf16-2022"]).expect("compared");
    let (took, error) = like.split_once("; predicted ").expect("an error");
    assert_eq!(took, "104.5 s with deepspeed-bf16-2022, published");
    assert!(error.ends_with(" % too long") || error.ends_with(" % too short"), "{like}");
    let unlike = actual(&[]).expect("named");
    assert_eq!(unlike, format!("{took}; another trainer: --software=deepspeed-bf16-2022 predicts that one"));
    assert_eq!(actual(&["--software=megatron-2022"]).as_ref(), Some(&unlike));
    assert_eq!(actual(&["--cluster=a100-80g-dgx"]), None, "another cluster");
    assert_eq!(actual(&["--set", "parallelism.microbatch_size=1"]), None, "another run");
    let json = prints(&["simulate", "preset:opt-175b", "--software=metaseq-2022", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["actual"]["step_s"], 19.98);
    assert!(
        json["actual"]["origin"].as_str().is_some_and(|origin| origin.starts_with("derived from up to 147 TFLOP/s"))
    );
    let error = json["step_s"].as_f64().zip(json["actual"]["error"].as_f64()).expect("both");
    assert!((error.0 / 19.98 - 1.0 - error.1).abs() < 1e-9, "{json}");
}
