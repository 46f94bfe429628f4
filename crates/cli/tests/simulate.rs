//! `simulate`, `validate` and `cluster fit`, as a user meets them.

mod harness;

use std::path::PathBuf;

use harness::{pleach, stderr, stdout};

/// A new folder for one test.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pleach-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

#[test]
fn a_step_is_simulated_drawn_and_traced() {
    let folder = folder("simulate");
    let (svg, trace) = (folder.join("step.svg"), folder.join("step.json"));
    let output = pleach(&[
        "simulate",
        "--cluster=a100-80g-dgx",
        "--svg",
        &svg.display().to_string(),
        "--trace",
        &trace.display().to_string(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for line in [
        "cluster DGX A100 80 GB (Selene): 8 per node, NVSwitch, 8 x HDR 200: 8 of A100-SXM4-80GB on 1 node",
        "% of 312 TFLOP/s: matrix products and causal attention",
        "time of the rank that computes longest",
        "the largest losses are",
        "bytes of one rank at its peak, of 80.0 GB",
        "one step; F forward, B backward",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(std::fs::read_to_string(svg).expect("a drawing").starts_with("<svg "));
    let trace: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(trace).expect("a trace")).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 100));
    let json = stdout(&pleach(&["simulate", "--cluster=a100-80g-dgx", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["step_s"].as_f64().is_some_and(|seconds| seconds > 0.0));
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn what_cannot_be_simulated_is_refused_with_what_would_do() {
    let refused = |arguments: &[&str]| {
        let output = pleach(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        stderr(&output)
    };
    assert!(
        refused(&["simulate", "--cluster=a100"]).starts_with(
            "--cluster a100: there is no such file, and no profile of that name; there are a100-80g-dgx, "
        )
    );
    assert_eq!(
        refused(&["simulate", "--cluster=h100-80g-dgx", "--software"]),
        "--software: the profile h100-80g-dgx has no [software]; megatron-2021, megatron-2022, deepspeed-2022, \
         largescale-2022, deepspeed-bf16-2022 are part of the program\n"
    );
    assert!(
        refused(&["simulate", "--cluster=h100-80g-dgx", "--software=nemo"])
            .contains("no trainer of that name; there are")
    );
    assert!(refused(&["simulate", "--cluster=h100-80g-dgx", "--set", "run.ranks=0"]).contains("run.ranks = 0"));
}

#[test]
fn a_table_is_validated_and_a_profile_fitted_to_it() {
    let folder = folder("validate");
    let (table, profile, predictions) =
        (folder.join("runs.csv"), folder.join("mine.toml"), folder.join("predictions.csv"));
    let header = "model,layers,hidden,heads,tp,pp,dp,micro_batch,global_batch,recompute,precision,iter_s\n";
    let rows = "gpt,4,2048,16,1,1,8,1,32,full,fp16,0.30\ngpt,4,2048,16,2,1,4,2,32,full,fp16,0.25\n\
                gpt,4,2048,16,2,2,2,2,32,full,fp16,0.28\n";
    std::fs::write(&table, format!("{header}{rows}")).expect("a table");
    let [table, profile, predictions] = [&table, &profile, &predictions].map(|path| path.display().to_string());
    let fitted = pleach(&[
        "cluster",
        "fit",
        "--table",
        &table,
        "--base=a100-80g-dgx",
        "--software=megatron-2021",
        "--out",
        &profile,
        "--constants=compute.matrix_efficiency,compute.issue_us",
    ]);
    assert_eq!(fitted.status.code(), Some(0), "{}", stderr(&fitted));
    assert!(stdout(&fitted).contains("mean error of 3 rows: "), "{}", stdout(&fitted));
    let output = pleach(&[
        "validate",
        &table,
        "--cluster",
        &profile,
        "--software=megatron-2021",
        "--predictions",
        &predictions,
        "--rows",
        "tp = 2",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("predicted     2"), "{}", stdout(&output));
    let written = std::fs::read_to_string(&predictions).expect("predictions");
    assert_eq!(written.lines().count(), 3, "{written}");
    let refused = pleach(&["validate", &table, "--cluster=a100-80g-dgx", "--rows", "tp > 8"]);
    assert_eq!(stderr(&refused), format!("{table}: no row is meant; leave --rows out to take all\n"));
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn layouts_are_planned_and_the_best_is_written() {
    let folder = folder("plan");
    let file = folder.join("best.toml").display().to_string();
    let small = ["--set", "train.global_batch=4", "--set", "model.num_layers=2", "--cluster=a100-80g-dgx"];
    let plan = |arguments: &[&str]| pleach(&[&["plan"], &small[..], arguments].concat());
    let output = plan(&["--gpus=4", "--top=2", "--fix", "tp=2", "--write", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("1. ") && text.contains("\n2. ") && text.contains(" x tp 2 x pp "), "{text}");
    assert!(text.contains(" ahead of the next, wh") || text.contains("the next takes as long"), "{text}");
    for line in
        ["refused by a rule", "excluded by the memory floor", "excluded by the bound on time", "simulated, of which"]
    {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let checked = pleach(&["check", &file]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    assert!(stdout(&checked).contains("x tp 2 x pp "), "{}", stdout(&checked));

    let refused = |arguments: &[&str]| {
        let output = plan(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        stderr(&output)
    };
    assert_eq!(refused(&["--gpus=0"]), "--gpus 0: a run needs at least one accelerator\n");
    assert!(refused(&["--gpus=4", "--fix", "ep=2"]).starts_with("--fix ep=2 fixes nothing; write KEY=VALUE with dp, "));
    let nowhere = refused(&["--gpus=2", "--max-memory=0.001"]);
    assert!(
        nowhere.starts_with("the run fits nowhere on 2 accelerators of 1.00 MB: ") && nowhere.contains(" would do"),
        "{nowhere}"
    );
    assert!(refused(&["--gpus=1", "--max-memory=0"]).starts_with("--max-memory 0 is no memory; give 10^9 bytes"));
    let needless = refused(&["--gpus=4", "--max-memory=0.1", "--fix", "zero=0", "--fix", "pp=1"]);
    println!("{needless}");
    let illegal = refused(&["--gpus=4", "--fix", "tp=3"]);
    assert!(
        illegal.starts_with("no layout on 4 accelerators obeys the rules of a run (")
            && illegal.ends_with(" were refused); tp = 1 or 2 or 4 would do\n"),
        "{illegal}"
    );
    assert!(
        refused(&["--gpus=7", "--fix", "tp=7"]).starts_with("no layout on 7 accelerators obeys the rules of a run (")
    );
    std::fs::remove_dir_all(&folder).expect("removed");
}
