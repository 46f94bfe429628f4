//! `plan`, as a user meets it.

use crate::harness::{pleach, prints, stderr, stdout};

const SMALL: [&str; 5] = ["--set", "train.global_batch=4", "--set", "model.num_layers=2", "--cluster=a100-80g-dgx"];

/// The message for a small run that cannot be planned.
fn refuses(arguments: &[&str]) -> String {
    let output = pleach(&[&["plan"], &SMALL[..], arguments].concat());
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    stderr(&output)
}

#[test]
fn layouts_are_planned_and_the_best_is_written() {
    let file = std::env::temp_dir().join(format!("pleach-plan-{}.toml", std::process::id()));
    let file = file.display().to_string();
    let text = prints(&[&["plan"], &SMALL[..], &["--gpus=4", "--top=2", "--fix", "tp=2", "--write", &file]].concat());
    let header: Vec<&str> = text.lines().next().expect("a header").split_whitespace().collect();
    assert_eq!(header, ["s/step", "tokens/s/GPU", "MFU", "memory", "of", "85.2", "GB", "layout"], "{text}");
    assert!(text.contains("\n1  ") && text.contains("\n2  ") && text.contains(" x tp 2 x pp "), "{text}");
    assert!(text.contains("\nrefused: ") && text.contains(" by parallelism."), "{text}");
    assert!(text.contains(" ahead of the next, wh") || text.contains("the next takes as long"), "{text}");
    for line in
        ["refused by a rule", "excluded by the memory floor", "excluded by the bound on time", "simulated, of which"]
    {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let checked = prints(&["check", &file]);
    assert!(checked.contains("x tp 2 x pp "), "{checked}");
    std::fs::remove_file(&file).expect("removed");
}

#[test]
fn a_given_overlap_is_kept() {
    let file = std::env::temp_dir().join(format!("pleach-plan-overlap-{}.toml", std::process::id()));
    let file = file.display().to_string();
    for overlap in ["true", "false"] {
        let given = format!("parallelism.overlap={overlap}");
        prints(&[&["plan"], &SMALL[..], &["--gpus=2", "--top=1", "--set", &given, "--write", &file]].concat());
        let written = std::fs::read_to_string(&file).expect("a run file");
        assert!(written.contains(&format!("\noverlap = {overlap}\n")), "{written}");
    }
    std::fs::remove_file(&file).expect("removed");
}

#[test]
fn a_layout_as_json_has_numbers_and_all_of_its_keys() {
    let fixed = ["--gpus=4", "--top=1", "--fix", "zero=2", "--fix", "reduce=microbatch", "--fix", "pp=2", "--json"];
    let json = prints(&[&["plan"], &SMALL[..], &fixed].concat());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let layout = &json["best"][0]["layout"];
    assert_eq!(
        (&layout["dp"], &layout["tp"], &layout["pp"], &layout["zero"]),
        (&2.into(), &1.into(), &2.into(), &2.into())
    );
    assert_eq!((&layout["reduce"], &layout["sequence_parallel"]), (&"microbatch".into(), &false.into()));
    let stages = layout["stage_layers"].as_array().expect("stages");
    assert_eq!(stages.iter().filter_map(serde_json::Value::as_u64).sum::<u64>(), 2, "{layout}");
    assert!(json["best"][0]["step_s"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let by_rule = json["refused_by"].as_object().expect("rules").values();
    assert_eq!(Some(by_rule.filter_map(|rule| rule["layouts"].as_u64()).sum()), json["refused"].as_u64());
    assert_eq!(json["remedies"], serde_json::Value::Null);
    assert!(json["known_errors"].as_str().is_some_and(|errors| errors.contains("A100")), "{json}");
    let h200 = ["plan", "--set", "train.global_batch=4", "--set", "model.num_layers=2", "--gpus=2"];
    let text = prints(&[&h200[..], &["--cluster=h200-141g-dgx"]].concat());
    assert!(text.contains("\nerrors of predictions: no run on H200-SXM5-141GB was compared\n"), "{text}");
}

#[test]
fn what_is_no_question_is_refused() {
    let invalid = |arguments: &[&str]| refuses(arguments).lines().next().unwrap_or_default().to_string();
    let answer = "for '--gpus <COUNT>': a run needs a whole number of accelerators, from 1 to 1048576";
    assert_eq!(invalid(&["--gpus=0"]), format!("error: invalid value '0' {answer}"));
    assert_eq!(invalid(&["--gpus", "-1"]), format!("error: invalid value '-1' {answer}"));
    let answer =
        "for '--max-memory <GB>': is not a size of memory; give units of 10^9 bytes, e.g. 40, or leave the option out";
    assert_eq!(invalid(&["--gpus=4", "--max-memory", "-1"]), format!("error: invalid value '-1' {answer}"));
    let message = refuses(&["--gpus=4", "--fix", "etp=2"]);
    assert!(message.starts_with("--fix etp=2 fixes nothing; write KEY=VALUE with cp, cp_kind, dp, ep, "), "{message}");
    let of_dense = "--fix ep = 2 must be one of the values that plan tries on 4 accelerators; use 1\n";
    assert_eq!(refuses(&["--gpus=4", "--fix", "ep=2"]), of_dense);
}

/// A layout whose ranks wait for one with more rows of experts is slower; a model without experts has no such load.
#[test]
fn a_load_of_experts_makes_steps_longer() {
    let experts = ["model.experts=8", "model.expert_hidden=256", "model.biases=attention", "parallelism.dp=4"];
    let layout = ["parallelism.tp=1", "parallelism.pp=1", "parallelism.ep=4"];
    let keys: Vec<&str> = experts.iter().chain(&layout).flat_map(|key| ["--set", key]).collect();
    let step = |load: &[&str]| -> f64 {
        let cluster = ["--cluster=a100-80g-dgx", "--json"];
        let output = pleach(&[&["simulate"], &cluster[..], &keys, load].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let answer: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(answer["expert_load"].as_f64(), load.first().map(|_| 2.0), "{answer}");
        answer["step_s"].as_f64().expect("seconds")
    };
    assert!(step(&["--expert-load=2"]) > step(&[]));
    let dense = pleach(&["simulate", "--cluster=a100-80g-dgx", "--expert-load=2"]);
    assert_eq!(stderr(&dense), "--expert-load 2 is of experts, and the model has none; leave it out\n");
    let less = pleach(&["simulate", "--cluster=a100-80g-dgx", "--expert-load=0.5"]);
    assert!(stderr(&less).contains("a load is a number from 1, which is balanced routing"), "{}", stderr(&less));
}

#[test]
fn where_nothing_fits_remedies_are_named() {
    let answer = refuses(&["--gpus=2", "--max-memory=0.004"]);
    assert!(
        answer.starts_with("no layout fits 2 accelerators of 4.00 MB: the smallest, dp 1 x tp 2 x pp 1, "),
        "{answer}"
    );
    let (_, remedies) = answer.split_once(", needs ").expect("what is needed");
    let (needed, more) = remedies.split_once(" a rank, or ").expect("two remedies");
    assert!(needed.contains(" MB per rank; use "), "{answer}");
    let more: usize = more.trim().strip_suffix(" accelerators").and_then(|more| more.parse().ok()).expect(&answer);
    // The smallest: on that many it fits, on one less it does not.
    let on =
        |gpus: usize| pleach(&[&["plan"], &SMALL[..], &["--max-memory=0.004", &format!("--gpus={gpus}")]].concat());
    assert_eq!((on(more).status.code(), on(more - 1).status.code()), (Some(0), Some(2)), "{answer}");

    let answer = refuses(&["--gpus=4", "--max-memory=0.005", "--fix", "tp=1", "--fix", "zero=0"]);
    assert!(answer.ends_with(" a rank, or --fix tp=2\n"), "{answer}");
}

#[test]
fn where_nothing_is_legal_the_rules_are_named_with_what_each_refuses() {
    assert_eq!(
        refuses(&["--gpus=4", "--fix", "tp=3"]),
        "--fix tp = 3 must be one of the values that plan tries on 4 accelerators; use 1, 2, 4\n"
    );
    let answer = refuses(&["--gpus=7"]);
    let mut lines = answer.lines();
    assert_eq!(
        lines.next(),
        Some("no layout is legal on 7 accelerators; use 8 accelerators, or --up-to for layouts on fewer accelerators"),
        "{answer}"
    );
    let with_fewer = pleach(&[&["plan"], &SMALL[..], &["--gpus=7", "--up-to"]].concat());
    assert_eq!(with_fewer.status.code(), Some(0), "the remedy holds");
    let refused: Vec<&str> = lines.collect();
    assert_eq!(refused.len(), 3, "{answer}");
    assert!(refused.iter().all(|line| line.starts_with("refused ") && line.contains("use ")), "{answer}");

    let output = pleach(&[&["plan"], &SMALL[..], &["--gpus=7", "--json"]].concat());
    assert_eq!((output.status.code(), stderr(&output)), (Some(2), answer));
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!((&json["best"], &json["remedies"]["accelerators"]), (&serde_json::json!([]), &8.into()));
    assert_eq!(json["refused_by"].as_object().map(serde_json::Map::len), Some(3));
}

/// Degrees that share short sequences are tried where they are fixed.
#[test]
fn a_fixed_kind_of_context_parallelism_has_a_degree() {
    let answer = refuses(&["--gpus=4", "--fix", "cp_kind=heads"]);
    assert!(answer.contains("or --fix cp=2"), "{answer}");
    prints(&[&["plan"], &SMALL[..], &["--gpus=4", "--fix", "cp_kind=heads", "--fix", "cp=2"]].concat());
}

/// The search replaces the layout; all other faults are reported.
#[test]
fn a_run_file_whose_own_layout_is_illegal_is_planned() {
    let illegal = ["--gpus=2", "--top=1", "--set", "parallelism.tp=3", "--set", "parallelism.stages_per_rank=4"];
    let text = prints(&[&["plan"], &SMALL[..], &illegal].concat());
    assert!(text.contains("\n1  "), "{text}");
    let wrong = refuses(&["--gpus=2", "--set", "parallelism.tp=3", "--set", "model.num_heads=0"]);
    assert!(wrong.contains("model.num_heads = 0") && !wrong.contains("parallelism.tp = 3"), "{wrong}");
}

#[test]
fn only_what_a_trainer_has_is_planned_for_it() {
    let refused = refuses(&["--gpus=4", "--software=megatron-2021", "--fix", "schedule=zb-h1"]);
    assert!(
        refused.starts_with(
            "--fix schedule = zb-h1 must be one of the values that plan tries on 4 accelerators for Megatron-LM of 2021"
        ) && refused.ends_with("; use 1f1b, interleaved\n"),
        "{refused}"
    );
    let planned = [&["plan"], &SMALL[..], &["--gpus=4", "--top=9", "--json", "--software=fsdp1-2023"]].concat();
    let json: serde_json::Value = serde_json::from_str(&prints(&planned)).expect("JSON");
    let layouts = json["best"].as_array().expect("layouts");
    assert!(!layouts.is_empty());
    for layout in layouts {
        let of = |key: &str| layout["layout"][key].as_u64();
        assert_eq!((of("tp"), of("pp"), of("zero")), (Some(1), Some(1), Some(3)), "FSDP alone: {layout}");
    }
}

/// With a margin of nearly everything no layout leaves it, and those that fit are listed apart.
#[test]
fn a_margin_is_left_free() {
    let margin_bytes = |arguments: &[&str]| {
        let all = [&["plan"], &SMALL[..], &["--gpus=2", "--top=2", "--json"], arguments].concat();
        let json: serde_json::Value = serde_json::from_str(&prints(&all)).expect("JSON");
        (
            json["margin_bytes"].as_u64().expect("bytes"),
            json["best"].as_array().map(Vec::len),
            json["closer"].as_array().map(Vec::len),
        )
    };
    assert_eq!(margin_bytes(&[]), (5_111_820_000, Some(2), Some(0)), "6 % of 85.197 GB");
    assert_eq!(margin_bytes(&["--max-memory=10"]), (0, Some(2), Some(0)));
    assert_eq!(margin_bytes(&["--max-memory=10", "--margin=99.99"]), (9_998_999_999, Some(0), Some(2)));
    let text = prints(&[&["plan"], &SMALL[..], &["--gpus=2", "--max-memory=10", "--margin=99.99"]].concat());
    assert!(text.starts_with("no layout leaves ") && text.contains(" free; these fit without that margin"), "{text}");
    let gaps = "; `pleach check` adds the gaps between values in memory, which may be too much\n";
    assert!(text.contains(&format!("margin{gaps}")), "{text}");
    let text = prints(&[&["plan"], &SMALL[..], &["--gpus=2", "--max-memory=10"]].concat());
    assert!(text.contains(&format!("\nmemory without a margin{gaps}")), "{text}");
    let text = prints(&[&["plan"], &SMALL[..], &["--gpus=2"]].concat());
    assert!(!text.contains("gaps"), "gaps are less than the margin: {text}");
}
