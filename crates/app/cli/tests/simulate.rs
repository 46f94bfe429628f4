//! `simulate`, `validate` and `cluster fit`, as a user meets them.

use std::path::PathBuf;

use crate::harness::trace_events::broken_rules;
use crate::harness::{pleach, stderr, stdout};

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
        "% of 19.5 TFLOP/s: matrix products and causal attention",
        "time of the rank that computes longest",
        "the largest losses are",
        "bytes of one rank at the peak of a training step, of 85.2 GB",
        "one step; F forward, B backward",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(std::fs::read_to_string(svg).expect("a drawing").starts_with("<svg "));
    let trace: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(trace).expect("a trace")).expect("JSON");
    assert_eq!(broken_rules(&trace), [""; 0]);
    assert_eq!(processes(&trace).len(), 8, "a process for each rank");
    assert_eq!(processes(&trace)[5], (5, "rank 5: dp 0, tp 1, pp 1".to_string()));
    let events = trace["traceEvents"].as_array().expect("events");
    assert!(events.len() > 100);
    let args = |name: &str, rank: u64| {
        let found = events.iter().find(|event| event["name"] == name && event["pid"] == rank);
        found.unwrap_or_else(|| panic!("no {name} on rank {rank}"))["args"].clone()
    };
    // 2 sequences of 128 tokens, 128 channels in single precision.
    let sent = serde_json::json!({
        "microbatch": 0, "bytes": 131_072, "group": "pp of 2: ranks 1, 5", "algorithm": "send and receive, direct"
    });
    assert_eq!(args("send output of layer 2, microbatch 0", 1), sent);
    let forward = args("forward layer 3, microbatch 1", 6);
    assert_eq!((&forward["microbatch"], &forward["group"]), (&1.into(), &"tp of 2: ranks 6, 7".into()));
    assert!(forward["algorithm"].as_str().is_some_and(|name| name.ends_with("times all-reduce, ring")), "{forward}");
    let norm = args("gradient norm", 0);
    assert_eq!(norm["group"], "pp x dp x tp of 8: ranks 0, 1, 2, 3, 4, 5, 6, 7");
    let (peaks, planned) = (counted_peaks(events), memory_bytes(&["simulate", "--cluster=a100-80g-dgx", "--json"]));
    assert_eq!(peaks, (0..8).map(|rank| planned[rank / 4]).collect::<Vec<u64>>(), "counters reach the table's sums");
    let json = stdout(&pleach(&["simulate", "--cluster=a100-80g-dgx", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["step_s"].as_f64().is_some_and(|seconds| seconds > 0.0));
    assert_eq!(json["fits"], true);
    let large = pleach(&["simulate", "preset:opt-175b", "--cluster=a100-40g-dgx"]);
    assert!(stdout(&large).contains("\nThat does not fit 42.5 GB; `pleach plan` finds"), "{}", stdout(&large));
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// The largest sum of each process's counter of memory.
fn counted_peaks(events: &[serde_json::Value]) -> Vec<u64> {
    let mut peaks = std::collections::BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "C") {
        let series = event["args"].as_object().expect("series").values();
        let bytes: u64 = series.filter_map(serde_json::Value::as_u64).sum();
        let peak = peaks.entry(event["pid"].as_u64()).or_insert(0);
        *peak = bytes.max(*peak);
    }
    peaks.into_values().collect()
}

/// Bytes of each stage, as a command predicts them.
fn memory_bytes(arguments: &[&str]) -> Vec<u64> {
    let json: serde_json::Value = serde_json::from_str(&stdout(&pleach(arguments))).expect("JSON");
    let stages = json["memory_bytes"].as_array().expect("stages").iter();
    stages.map(|parts| parts.as_object().expect("parts").values().filter_map(serde_json::Value::as_u64).sum()).collect()
}

#[test]
fn a_measured_step_is_compared_with_a_predicted_one() {
    let folder = folder("against");
    let (trace, run) = (folder.join("step.json"), folder.join("run"));
    let trace = trace.display().to_string();
    let small = [
        "--set",
        "model.num_layers=2",
        "--set",
        "model.hidden=32",
        "--set",
        "model.num_heads=2",
        "--set",
        "run.ranks=4",
        "--set",
        "parallelism.dp=2",
        "--set",
        "parallelism.tp=1",
        "--set",
        "parallelism.pp=2",
        "--set",
        "train.global_batch=4",
        "--set",
        "train.sequence_length=32",
        "--set",
        "model.context=32",
        "--set",
        "train.steps=2",
        "--set",
        "train.warmup_steps=1",
    ];
    let set_run = format!("run.folder={}", serde_json::Value::from(run.display().to_string()));
    let trained = pleach(&[&["train", "--quiet", "--trace", &trace], &small[..], &["--set", &set_run]].concat());
    assert_eq!(trained.status.code(), Some(0), "{}", stderr(&trained));
    let text = std::fs::read_to_string(&trace).expect("a trace");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(broken_rules(&json), [""; 0]);
    let events = json["traceEvents"].as_array().expect("events");
    let named: Vec<String> = processes(&json).into_iter().map(|(_, name)| name).collect();
    let ranks = [
        "rank 0: dp 0, tp 0, pp 0",
        "rank 1: dp 1, tp 0, pp 0",
        "rank 2: dp 0, tp 0, pp 1",
        "rank 3: dp 1, tp 0, pp 1",
    ];
    assert_eq!(named, ranks);
    let arrows = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    let microbatches = events.iter().filter(|event| event["pid"] == 0 && is_forward(event)).count() / 2;
    assert!(microbatches > 0, "an embedding and a layer for each");
    assert_eq!((arrows("s"), arrows("f")), (4 * microbatches, 4 * microbatches), "two pipelines, there and back");

    assert_eq!(counted_peaks(events).len(), 4, "the planned arena of every rank");
    let sums = events.iter().filter(|event| event["args"]["group"] == "dp of 2: ranks 0, 1");
    let algorithms: Vec<&str> = sums.filter_map(|event| event["args"]["algorithm"].as_str()).collect();
    assert!(algorithms.contains(&"reduce-scatter, direct"), "{algorithms:?}");

    let compared = pleach(&[&["simulate", "--cluster=a100-80g-dgx", "--against", &trace], &small[..]].concat());
    assert_eq!(compared.status.code(), Some(0), "{}", stderr(&compared));
    let text = stdout(&compared);
    for line in ["predicted / measured", "the step", "pp 1: forward head"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let refused = |arguments: &[&str]| {
        let output = pleach(&[&["simulate", "--cluster=a100-80g-dgx"], &small[..], &["--against"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        stderr(&output)
    };
    assert!(refused(&[&trace, "--set", "model.num_layers=4"]).contains("so it is of another run; trace this one"));
    let no_trace = folder.join("none.json").display().to_string();
    assert!(refused(&[&no_trace]).contains("cannot be read"));
    std::fs::write(&no_trace, "{}").expect("a file");
    assert!(refused(&[&no_trace]).contains("is not a trace; `pleach train --trace FILE` writes one"));
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// Numbers and names of the processes of a trace.
fn processes(trace: &serde_json::Value) -> Vec<(u64, String)> {
    let events = trace["traceEvents"].as_array().expect("events").iter();
    let named = events.filter(|event| event["name"] == "process_name");
    let process =
        |event: &serde_json::Value| Some((event["pid"].as_u64()?, event["args"]["name"].as_str()?.to_string()));
    named.filter_map(process).collect()
}

#[test]
fn the_ranks_of_a_trace_are_chosen() {
    let folder = folder("ranks");
    let file = folder.join("step.json").display().to_string();
    let traced = |arguments: &[&str]| {
        let output = pleach(&[&["simulate", "preset:gpt-neox-20b", "--trace", &file], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let trace: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&file).expect("a trace")).expect("JSON");
        let numbers: Vec<u64> = processes(&trace).into_iter().map(|(number, _)| number).collect();
        let events = trace["traceEvents"].as_array().expect("events");
        let arrows: Vec<u64> =
            events.iter().filter(|event| event["ph"] == "s").filter_map(|event| event["pid"].as_u64()).collect();
        (numbers, arrows, stderr(&output))
    };
    let (numbers, arrows, reported) = traced(&[]);
    assert_eq!(numbers, [0, 24, 48, 72], "of many ranks, one of each stage");
    assert!(numbers.iter().all(|number| arrows.contains(number)), "each sends");
    assert_eq!(reported, format!("{file}: 4 of 96 ranks, one of each stage; --ranks chooses others\n"));
    let (numbers, arrows, reported) = traced(&["--ranks", "1,24-25"]);
    assert_eq!((numbers, reported), (vec![1, 24, 25], String::new()));
    assert!(arrows.contains(&1) && arrows.contains(&25) && !arrows.contains(&24), "1 and 25 are neighbours");
    let refused = pleach(&["simulate", "preset:gpt-neox-20b", "--trace", &file, "--ranks", "96"]);
    assert_eq!(stderr(&refused), "--ranks 96 is not a rank of the run; use 0 to 95\n");
    std::fs::remove_dir_all(&folder).expect("removed");
}

fn is_forward(event: &serde_json::Value) -> bool {
    event["name"].as_str().is_some_and(|name| name.starts_with("forward"))
}

#[test]
fn a_published_run_has_a_cluster_of_its_own() {
    let output = pleach(&["simulate", "preset:opt-175b"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("cluster DGX A100 80 GB (Selene)"), "{text}");
    let axis = text.lines().last().unwrap_or_default();
    assert!(axis.trim_start().starts_with("0") && axis.ends_with(" s"), "{axis}");
    let twin = pleach(&["simulate", "preset:opt-175b-tiny"]);
    assert!(
        stderr(&twin).starts_with("--cluster is required: only presets of published runs have a cluster of their own"),
        "{}",
        stderr(&twin)
    );
}

#[test]
fn what_cannot_be_simulated_is_refused_with_what_would_do() {
    let refused = |arguments: &[&str]| {
        let output = pleach(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        stderr(&output)
    };
    let unknown = |name: &str| refused(&["simulate", &format!("--cluster={name}")]);
    let nothing = |name: &str| format!("--cluster {name}: there is no such file, and no profile of that name; ");
    assert!(unknown("mi300").starts_with(&(nothing("mi300") + "there are a100-80g-dgx, ")));
    assert_eq!(unknown("H100"), nothing("H100") + "did you mean h100-80g-dgx, h100-96g-500w?\n");
    assert_eq!(unknown("h200"), nothing("h200") + "did you mean h200-141g-dgx?\n");
    assert_eq!(
        refused(&["simulate", "--cluster=h100-80g-dgx", "--software"]),
        "--software: the profile h100-80g-dgx has no [software]; megatron-2020, megatron-2021, megatron-2022, \
         deepspeed-2022, largescale-2022, deepspeed-bf16-2022, metaseq-2022, megatron-core-2024, torchtitan-2024, \
         megatron-core-2025, megatron-tests-2025, nemo-2025, megatron-bridge-2025, zero-bubble-2024, \
         torchtitan-eager-2024, fsdp1-2023, llm-foundry-2024, nanotron-2025, deepspeed-2025, deepspeed-zero3-2025, scaling-2023, scaling-unfused-2023 are part of the program\n"
    );
    assert!(
        refused(&["simulate", "--cluster=h100-80g-dgx", "--software=nemo"])
            .contains("no trainer of that name; there are")
    );
    assert!(refused(&["simulate", "--cluster=h100-80g-dgx", "--set", "run.ranks=0"]).contains("run.ranks = 0"));
}

#[test]
fn the_device_of_the_run_is_compared_with_the_cluster() {
    let cuda = ["--set", "run.device=cuda"];
    let simulated = stdout(&pleach(&[&["simulate", "--cluster=a100-80g-dgx"], &cuda[..]].concat()));
    let lines = "device  cuda on A100-SXM4-80GB: kernel rates are the profile's;\n        \
                 docs/gpu.md has the rates of pleach's own kernels on one H200\n";
    assert!(simulated.contains(lines) && lines.lines().all(|line| line.len() <= 80), "{simulated}");
    let planned = stdout(&pleach(&[&["plan", "--gpus=2", "--cluster=a100-80g-dgx"], &cuda[..]].concat()));
    assert!(planned.contains(lines), "{planned}");
    assert!(!stdout(&pleach(&["simulate", "--cluster=a100-80g-dgx"])).contains("device  "));
    let library = ["--set", "train.precision=bf16", "--set", "train.products=device"];
    let simulated = |cluster| stdout(&pleach(&[&["simulate", cluster], &cuda[..], &library[..]].concat()));
    let of_h200 = simulated("--cluster=h200-141g-dgx");
    let lines = "        products by cuBLASLt: the same rate, fitted to products_h200.csv;\n        \
                 measure theirs: pleach cluster measure --device cuda --products device\n";
    assert!(of_h200.contains(lines) && lines.lines().all(|line| line.len() <= 80), "{of_h200}");
    let refused = |arguments: &[&str]| {
        let output = pleach(&[&["simulate"], arguments].concat());
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{arguments:?}");
        stderr(&output)
    };
    let said = refused(&["--cluster=v100-32g-dgx1", "--set", "run.device=cuda"]);
    let expected = "run.device = \"cuda\" needs NVIDIA's GPUs; accelerators of --cluster, V100-SXM2-32GB, have compute \
                    capability 7.0, and kernels need 8.0 or newer; use another cluster, or run.device = \"cpu\"\n";
    assert_eq!(said, expected);
    assert!(refused(&["--cluster=ascend-910", "--set", "run.device=cuda"]).contains("are not NVIDIA's"));
    let pairs = refused(&["--cluster=a100-80g-dgx", "--set", "run.device=cuda", "--set", "train.products=pairs"]);
    assert!(pairs.contains("train.products = \"pairs\" must be supported by the device"), "{pairs}");
    let blocks = ["--set", "run.device=cuda", "--set", "train.precision=bf16", "--set", "train.products=blocks16"];
    let blocks = refused(&[&["--cluster=a100-80g-dgx"], &blocks[..]].concat());
    assert!(blocks.contains("a GPU before compute capability 9.0 refuses it; use \"blocks8\""), "{blocks}");
}

#[test]
fn a_run_is_checked_with_the_gpus_of_the_cluster() {
    let check = |cluster: &str, keys: &[&str]| {
        let set: Vec<&str> = keys.iter().flat_map(|key| ["--set", key]).collect();
        let output = pleach(&[&["check", "--cluster", cluster, "--set", "run.device=cuda"], &set[..]].concat());
        (output.status.code(), stdout(&output), stderr(&output))
    };
    let (code, said, _) = check("h100-80g-dgx", &["run.gpus=8"]);
    let margin = "84.0 GB available;";
    let line = "        1.22 GB more of each accelerator for the driver's context, kernels and NCCL\n";
    assert!(code == Some(0) && said.contains(margin) && said.contains(line), "{said}");
    for (cluster, keys, expected) in [
        ("v100-32g-dgx1", &[][..], "--set run.device=cuda: run.device = \"cuda\" needs NVIDIA's GPUs; "),
        ("ascend-910b", &[], "--set run.device=cuda: run.device = \"cuda\" needs NVIDIA's GPUs; "),
        ("h100-80g-dgx", &["run.gpus=99"], "--set run.gpus=99: run.gpus = 99 must be at most the 8 accelerators "),
        (
            "h100-80g-dgx",
            &["train.precision=bf16", "train.products=blocks8"],
            "--set train.products=blocks8: train.products = \"blocks8\" must be supported by the device; ",
        ),
    ] {
        let (code, text, said) = check(cluster, keys);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{cluster}: {said}");
        assert!(said.starts_with(expected), "{said}");
    }
}

/// A V100 has no bf16.
#[test]
fn numbers_that_an_accelerator_does_not_multiply_are_refused() {
    for command in [&["simulate"][..], &["check"], &["plan", "--gpus=2"]] {
        let with = |precision: &str| {
            let precision = format!("train.precision={precision}");
            pleach(&[command, &["--cluster=v100-32g-dgx1", "--set", &precision]].concat())
        };
        let output = with("bf16");
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{command:?}");
        assert_eq!(
            stderr(&output),
            "train.precision = \"bf16\" must be multiplied by the accelerator; V100-SXM2-32GB multiplies fp16 and fp32; \
             use one of them\n"
        );
        assert_eq!(with("fp16").status.code(), Some(0), "{command:?}");
    }
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
    assert!(
        written.starts_with("row,model,layout,measured_s,predicted_s,error,measured_gb,predicted_gb,"),
        "{written}"
    );
    let refused = pleach(&["validate", &table, "--cluster=a100-80g-dgx", "--rows", "tp > 8"]);
    assert_eq!(stderr(&refused), format!("{table}: --rows selects none of its 3 rows; omit --rows for all\n"));
    for time in ["nan", "inf", "0", "-5", "fast"] {
        std::fs::write(&table, format!("{header}{}", rows.replace("0.25", time))).expect("a table");
        let refused = pleach(&["validate", &table, "--cluster=a100-80g-dgx"]);
        assert_eq!(refused.status.code(), Some(2), "{time}");
        assert!(stderr(&refused).contains("is not a number above 0; leave it empty where"), "{}", stderr(&refused));
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_table_that_cannot_be_used_says_where_and_what_would_do() {
    let folder = folder("tables");
    let table = folder.join("runs.csv").display().to_string();
    let refused = |header: &str, row: &str, arguments: &[&str]| {
        std::fs::write(&table, format!("{header}\n{row}\n")).expect("a table");
        let output = pleach(&[&["validate", &table, "--cluster=a100-80g-dgx"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{header}\n{row}");
        stderr(&output).replace(&table, "runs.csv")
    };
    let header = "layers,hidden,heads,tp,pp,dp,gpus,vpp,global_batch,iter_s";
    let left_out = "every run has one, so write it, or leave the row out with --rows";
    for (row, reported) in [
        ("4,2048,16,1,1,8,8,,?,0.3", format!("global_batch = `?` is not a whole number above 0; {left_out}")),
        ("4,2048,16,1,1,8,8,,,0.3", format!("global_batch is empty; {left_out}")),
        ("4,2048,16,1,1,8,8,x,8,0.3", "vpp = `x` is not a whole number above 0; leave it empty for the default".into()),
        (
            "4,2048,16,1,1,4,8,,8,0.3",
            "gpus = `8` is not dp 4 x tp 1 x pp 1 = 4; correct the wrong one, or leave gpus or dp empty".into(),
        ),
        ("4,2048,16,3,1,,8,,8,0.3", "gpus = `8` is not a multiple of tp 3 x pp 1 = 3; correct the wrong one".into()),
    ] {
        assert_eq!(refused(header, row, &[]), format!("runs.csv, line 2: {reported}\n"));
    }
    let row = "4,2048,16,1,1,8,8,,8,";
    assert_eq!(
        refused(&header.replace("iter_s", "seconds"), &format!("{row}0.3"), &[]),
        "runs.csv has none of the columns iter_s, mem_gb, resident_gb, status, so nothing in it was measured; add `iter_s`, \
         the seconds of a step\n"
    );
    assert_eq!(
        refused(header, row, &[]),
        "runs.csv: no selected row (1) has a measurement; fill in iter_s, mem_gb or status\n"
    );
    assert_eq!(
        refused(header, row, &["--rows", "degree > 1"]),
        "--rows `degree > 1`: runs.csv has no column `degree`; there are layers, hidden, heads, tp, pp, dp, gpus, vpp, \
         global_batch, iter_s\n"
    );
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn this_machine_is_measured_and_its_profile_prices_a_step() {
    let folder = folder("measure");
    let profile = folder.join("here.toml").display().to_string();
    let measured = pleach(&["cluster", "measure", "--out", &profile]);
    assert_eq!(measured.status.code(), Some(0), "{}", stderr(&measured));
    assert!(stdout(&measured).contains("GFLOP/s each, of which products reach "), "{}", stdout(&measured));
    let priced = pleach(&["simulate", "--cluster", &profile, "--json"]);
    assert_eq!(priced.status.code(), Some(0), "{}", stderr(&priced));
    let on_cores = pleach(&["simulate", "--cluster", &profile, "--set", "run.device=cuda"]);
    assert_eq!(on_cores.status.code(), Some(2));
    assert!(stderr(&on_cores).contains("are cores of a CPU"), "{}", stderr(&on_cores));
    let json: serde_json::Value = serde_json::from_str(&stdout(&priced)).expect("JSON");
    assert!(json["step_s"].as_f64().is_some_and(|seconds| seconds > 0.0));
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn rows_that_pleach_has_no_words_for_are_left_out_and_reported() {
    let folder = folder("foreign");
    let table = folder.join("runs.csv");
    let header =
        "model,layers,hidden,heads,tp,pp,gpus,cp,precision,global_batch,flash_attn,mem_gb,mem_kind,status,notes\n";
    let rows = "gpt,2,1024,16,1,1,2,,bf16,8,yes,3.0,GiB,ok,\"a, b\"\ngpt,2,1024,16,1,1,2,,bf16,8,yes,,,OOM,\n\
                gpt,2,1024,16,1,1,2,2,bf16,8,yes,,,ok,\ngpt,2,1024,16,1,1,2,,fp8,8,yes,,,ok,\n\
                gpt,2,1024,16,1,1,2,,bf16,8,,,,ok,{'num-experts': '8'}\n";
    std::fs::write(&table, format!("{header}{rows}")).expect("a table");
    let table = table.display().to_string();
    let validate = |arguments: &[&str]| {
        pleach(&[&["validate", &table, "--cluster=a100-80g-dgx", "--software=megatron-core-2024"], arguments].concat())
    };
    let output = validate(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains(
            "left out 3 rows (1 by cp, 1 by notes, 1 by precision): line 4: cp = `2` is context parallelism, whose kind and chunks a table"
        ),
        "{text}"
    );
    assert!(
        text.contains("fits    1 of 2 rows predicted correctly; 1 ran out of memory against the prediction"),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&stdout(&validate(&["--json"]))).expect("JSON");
    assert_eq!((&json["memory"]["rows"], &json["fits"]["wrongly_fit"]), (&1.into(), &1.into()));
    assert_eq!(json["left_out"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["columns_not_read"], serde_json::json!([]));
    let none = validate(&["--rows", "cp = 2"]);
    assert!(stderr(&none).contains("no selected row (1) is a run that pleach can plan"), "{}", stderr(&none));
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_drawing_says_how_many_ranks_it_leaves_out() {
    let drawn = |stages: usize| {
        let keys = ["model.num_layers", "parallelism.pp"].map(|key| format!("--set={key}={stages}"));
        let others = ["parallelism.dp=1", "parallelism.tp=1"].map(|key| format!("--set={key}"));
        let arguments = keys.iter().chain(&others).map(String::as_str);
        let output = pleach(&["simulate", "--cluster=h100-80g-dgx"].into_iter().chain(arguments).collect::<Vec<_>>());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    assert!(drawn(16).contains("\none step, 12 of 16 pipeline ranks; "));
    assert!(drawn(12).contains("\none step; "));
}
