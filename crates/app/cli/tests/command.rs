//! The built command, as a user meets it: what it prints and how it exits.

use std::path::PathBuf;
use std::process::Output;

use crate::harness::{ADVICE_OF_AMX, pleach, stderr, stdout};

/// A new folder for one test.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pleach-cli-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

#[test]
fn check_says_what_a_legal_run_is() {
    let output = pleach(&["check", "--set", "run.rank_memory_bytes=20000000"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let printed = stdout(&output);
    let text: String = printed.split_inclusive('\n').filter(|line| !line.starts_with(ADVICE_OF_AMX)).collect();
    assert_eq!(
        text,
        "model   1,337,344 parameters: 6 layers, hidden 128, 4 heads\n\
         ranks   8 = dp 2 x tp 2 x pp 2\n\
         step    2,048 tokens: 16 sequences of 128, 4 microbatches of 2 per replica\n\
         run     240 steps on embedded text, results in runs/latest\n\
         rate    linear to 0.001 in 60 steps, cosine to 0.0001 in 180 steps\n\
         memory  11.6 MB of arena per rank at most, 20.0 MB available; 85.1 MB of arenas in 8 ranks together\n\
         \n\
         bytes of one rank\n\
         stage  layers  ranks  parameters  gradients  optimizer  constants  batches  activations  transfers  scratch      all\n    \
             0     0-2      4     1.61 MB    1.61 MB    1.61 MB      768 B  10.2 kB      6.26 MB     262 kB   262 kB  11.6 MB\n    \
             1     3-5      4     1.57 MB    1.57 MB    1.57 MB      768 B  5.12 kB      3.89 MB     262 kB   793 kB  9.66 MB\n"
    );
}

#[test]
fn check_says_everything_that_is_wrong_and_exits_with_2() {
    let folder = folder("check");
    let file = folder.join("run.toml");
    std::fs::write(&file, "[model]\nhiden = 64\n[train]\nsteps = 0\n").expect("a file");
    let name = file.display().to_string();
    let output = pleach(&["check", &name, "--set", "parallelism.tp=3"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    let expected = format!(
        "{name}:2:1: `model.hiden` is not a key; did you mean `model.hidden`?\n\
         {name}:4:1: train.steps = 0 must be positive; use at least 1\n\
         --set parallelism.tp=3: parallelism.tp = 3 must divide model.num_heads = 4; use 1, 2 or 4\n\
         --set parallelism.tp=3: parallelism.tp = 3 must divide model.ffn_hidden = 512; use 1, 2 or 4\n"
    );
    assert_eq!(stderr(&output), expected);
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn memory_that_does_not_fit_is_refused_with_changes_that_suffice() {
    let refused = |bytes: &str, more: &str| {
        let output = pleach(&["check", "--set", &format!("run.rank_memory_bytes={bytes}"), "--set", more]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stdout(&output), "");
        stderr(&output)
    };
    let said = refused("8000000", "data.tokenizer=bytes");
    assert!(
        said.starts_with("--set run.rank_memory_bytes=8000000: run.rank_memory_bytes = 8000000 is less than the "),
        "{said}"
    );
    assert!(
        said.ends_with(
            "; use parallelism.recompute = \"full\" (needs 7.72 MB), parallelism.microbatch_size = 1 (needs 7.63 MB) or \
             parallelism.tp = 4 with parallelism.dp = 1 (needs 7.68 MB)\n"
        ),
        "{said}"
    );
    let said = refused("4000000", "data.tokenizer=bytes");
    let together = "parallelism.tp = 4, run.ranks = 16, parallelism.microbatch_size = 1 and parallelism.recompute = \"full\" \
                    together";
    assert!(said.contains(together), "{said}");
    assert!(refused("1000", "data.tokenizer=bytes").ends_with("try a smaller model\n"));
    // More than any machine has.
    let huge = ["run.ranks=1", "model.num_layers=400", "model.hidden=16384", "model.num_heads=128"];
    let arguments: Vec<&str> = ["check"].into_iter().chain(huge.iter().flat_map(|set| ["--set", set])).collect();
    let output = pleach(&arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("memory does not fit: all ranks (1) need "), "{}", stderr(&output));
}

#[test]
fn explain_says_when_replicas_sum_gradients() {
    let dp = |more: &[&str]| {
        let output = pleach(&[&["explain", "--set", "parallelism.zero=2"], more].concat());
        stdout(&output).lines().find(|line| line.starts_with("  dp ")).map(str::to_string)
    };
    let line = |when: &str| {
        format!(
            "  dp  hold the same weights, see other sequences, sum gradients {when}: {{0 2}} {{1 3}} {{4 6}} {{5 7}}"
        )
    };
    assert_eq!(dp(&[]), Some(line("once a step")));
    assert_eq!(dp(&["--set", "parallelism.reduce=microbatch"]), Some(line("after each microbatch")));
}

#[test]
fn explain_shows_sharding_groups() {
    let layout = ["explain", "--set", "parallelism.dp=4", "--set", "parallelism.shard_group=2"];
    let shown = |more: &[&str], name: &str| {
        let lines = stdout(&pleach(&[&layout, more].concat()));
        lines.lines().find(|line| line.starts_with(name)).map(str::to_string)
    };
    let work = "have one copy between them of what ZeRO shards";
    assert_eq!(shown(&[], "  zero "), Some(format!("  zero  {work}: {{0 2}} {{1 3}} {{4 6}} {{5 7}} and 4 more")));
    assert_eq!(shown(&["--rank", "5"], "  zero "), Some(format!("  zero group {{5 7}}: {work}")));
    assert_eq!(shown(&["--set", "parallelism.shard_group=4"], "  zero "), None);
}

#[test]
fn check_speaks_json() {
    let parsed = |output: &Output| -> serde_json::Value {
        assert_eq!(stdout(output).lines().count(), 1);
        serde_json::from_str(&stdout(output)).expect("JSON")
    };
    let legal = parsed(&pleach(&["check", "--json"]));
    assert_eq!((&legal["legal"], &legal["parameters"]), (&true.into(), &1_337_344.into()));
    let stages = legal["stages"].as_array().expect("stages");
    let sum: u64 = stages[0]["bytes"].as_object().expect("bytes").values().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!((stages.len(), Some(sum)), (2, stages[0]["rank_bytes"].as_u64()));

    let refused = pleach(&["check", "--json", "--set", "train.steps=0"]);
    assert_eq!(refused.status.code(), Some(2));
    let problem = &parsed(&refused)["problems"][0];
    assert_eq!((&problem["key"], &problem["value"]), (&"train.steps".into(), &"0".into()));
    assert_eq!(problem["remedy"], "use at least 1");
}

#[test]
fn check_of_two_names_their_class() {
    let folder = folder("two");
    let [first, second] = ["first.toml", "second.toml"].map(|name| folder.join(name).display().to_string());
    std::fs::write(&first, "[parallelism]\ndp = 4\n").expect("a file");
    std::fs::write(&second, "[parallelism]\ndp = 2\npp = 1\n").expect("a file");
    let output = pleach(&["check", &first, &second]);
    let expected = format!(
        "{first} and {second}: other order\n\
         sums over sequences are grouped differently: losses and weights agree within the bound of docs/numerics.md\n  \
         parallelism.dp  4 | 2\n  \
         parallelism.pp  2 | 1\n"
    );
    assert_eq!((stdout(&output), output.status.code()), (expected, Some(0)));
    let json = pleach(&["check", &first, &second, "--json"]);
    let value: serde_json::Value = serde_json::from_str(&stdout(&json)).expect("JSON");
    assert_eq!((&value["class"], &value["differences"]["parallelism.dp"][1]), (&"other order".into(), &"2".into()));
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let absent = pleach(&["check", "no/such/run.toml"]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(stderr(&absent).starts_with("no/such/run.toml cannot be read: "), "{}", stderr(&absent));

    let temporary = std::env::temp_dir().display().to_string();
    let is_folder = pleach(&["check", &temporary]);
    assert_eq!(is_folder.status.code(), Some(2));
    let expected = format!("{temporary} is a folder; use {temporary}/run.toml if it is the folder of a run\n");
    assert_eq!(stderr(&is_folder), expected);

    let text = pleach(&["train", "--data", "no/such/text"]);
    assert_eq!(text.status.code(), Some(2));
    assert!(stderr(&text).starts_with("no/such/text cannot be read: "), "{}", stderr(&text));

    let folder = folder("write");
    let file = folder.join("file");
    std::fs::write(&file, "not a folder").expect("a file");
    let output = pleach(&["train", "--set", &format!("run.folder={}", file.join("runs").display())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot be written: "), "{}", stderr(&output));
    std::fs::write(&file, "short").expect("a file");
    let output = pleach(&["train", "--data", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "the training text has 5 tokens, but train.sequence_length = 128 needs 129; give more text or shorter sequences\n"
    );
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// The share that is held out may be none.
#[test]
fn a_run_that_holds_no_text_out_is_told_so_and_writes_a_sample_after_a_word() {
    let folder = folder("none-held-out");
    let small = ["model.num_layers=2", "model.hidden=16", "model.num_heads=2", "train.sequence_length=16"];
    let short = ["train.steps=1", "train.warmup_steps=0", "data.tokenizer=bytes", "data.held_out=0"];
    let place = format!("run.folder={}", folder.join("run").display());
    let set: Vec<&str> = small.iter().chain(&short).chain([&place.as_str()]).flat_map(|key| ["--set", key]).collect();
    let output = pleach(&[&["train"], &set[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("\nheld out not measured: data.held_out = 0\n"), "{said}");
    assert!(said.contains("\nsample  generated from the word \"The\":\n\nThe"), "{said}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// None of them does any work: each is refused for a run, a profile or a table that it never reads.
#[test]
fn files_that_cannot_be_written_are_refused_before_work_starts() {
    let file = "no/such/folder/file.tokens";
    for (option, arguments) in [
        ("--write", vec!["plan", "no.toml", "--gpus=8", "--cluster=no.toml"]),
        ("--svg", vec!["simulate", "no.toml", "--cluster=no.toml"]),
        ("--trace", vec!["simulate", "no.toml", "--cluster=no.toml"]),
        ("--predictions", vec!["validate", "no.csv", "--cluster=no.toml"]),
        ("--out", vec!["cluster", "measure"]),
        ("--out", vec!["data", "tokenize", "no.txt"]),
        ("--out", vec!["cluster", "fit", "--table=no.csv", "--base=no.toml"]),
    ] {
        let output = pleach(&[&arguments[..], &[option, file]].concat());
        let expected = format!("{option} {file} cannot be written: there is no folder no/such/folder; make it first\n");
        assert_eq!((stderr(&output), output.status.code()), (expected, Some(2)), "{arguments:?}");
    }
    let folder = folder("trace");
    let run = format!("run.folder={}", folder.join("run").display());
    let output = pleach(&["train", "--set", &run, "--trace", file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).starts_with("--trace no/such/folder/file.tokens cannot be written: "),
        "{}",
        stderr(&output)
    );
    assert!(!folder.join("run/run.toml").exists(), "nothing was trained");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn help_names_the_exit_codes_and_wrong_arguments_exit_with_2() {
    let commands = ["", "train", "check", "explain", "eval", "generate", "forward", "doctor", "data tokenize"];
    for command in commands {
        let help = pleach(&command.split_whitespace().chain(["--help"]).collect::<Vec<_>>());
        assert_eq!(help.status.code(), Some(0));
        assert!(stdout(&help).contains("130  ended by Ctrl-C; 143 by SIGTERM"), "{}", stdout(&help));
        assert!(stdout(&help).lines().all(|line| line.chars().count() <= 100), "{}", stdout(&help));
    }
    assert_eq!(pleach(&["train", "--jsno"]).status.code(), Some(2));
    assert_eq!(pleach(&["train", "--json", "--quiet"]).status.code(), Some(2));
    assert_eq!(pleach(&[]).status.code(), Some(2));
    let option = pleach(&["train", "--tensor-model-parallel-size", "2"]);
    assert_eq!(option.status.code(), Some(2));
    assert_eq!(
        stderr(&option),
        "--tensor-model-parallel-size is parallelism.tp here, a key of the run file; write --set parallelism.tp=VALUE\n"
    );
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = pleach(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        for word in ["train", "check", "explain", "doctor", "quiet", "tokenize"] {
            assert!(stdout(&output).contains(word), "{shell} lacks {word}");
        }
    }
}

/// The words that bash offers at the end of `line`, with the breaks of words that Readline has by default.
fn offered(script: &str, line: &str) -> Vec<String> {
    let code = "source \"$1\"; COMP_WORDBREAKS=$' \\t\\n\"\\'><=;|&(:'; COMP_LINE=\"$2\"; COMP_POINT=${#COMP_LINE}\n\
        COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n\
        _pleach_names pleach \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\" 2> /dev/null\n\
        for word in \"${COMPREPLY[@]}\"; do echo \"$word\"; done";
    let output = std::process::Command::new("bash").args(["-c", code, "bash", script, line]).output().expect("bash");
    assert!(output.status.success(), "{line}: {}", stderr(&output));
    stdout(&output).lines().map(str::to_string).collect()
}

#[test]
fn completions_know_keys_values_presets_and_clusters() {
    let script = std::env::temp_dir().join(format!("pleach-completions-{}", std::process::id())).display().to_string();
    std::fs::write(&script, stdout(&pleach(&["completions", "bash"]))).expect("a script");
    let offered = |line: &str| offered(&script, line);
    assert_eq!(offered("pleach train --set parallelism.schedule_f"), ["parallelism.schedule_file="]);
    assert_eq!(offered("pleach train --set=train.warm"), ["train.warmup_steps="]);
    assert_eq!(offered("pleach check --set train.precision=b"), ["bf16"], "the word begins after the break");
    let schedules = offered("pleach plan --set parallelism.schedule=");
    assert_eq!(schedules, ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "zb-auto"]);
    assert!(offered("pleach train pre").contains(&"preset:opt-175b".into()));
    assert_eq!(offered("pleach simulate --cluster h100-8"), ["h100-80g-dgx"]);
    assert_eq!(offered("pleach simulate --cluster=gb"), ["gb200-nvl72"]);
    assert_eq!(offered("pleach plan --software=deepspeed-bf16-2"), ["deepspeed-bf16-2022"]);
    assert_eq!(offered("pleach simulate --software deepspeed-bf16-2"), ["deepspeed-bf16-2022"]);
    assert_eq!(offered("pleach train preset:bloom"), ["bloom-176b", "bloom-176b-tiny"]);
    assert_eq!(offered("pleach train --overw"), ["--overwrite"], "all else is completed as before");
    assert!(offered("pleach train runs/").is_empty(), "files are completed by the shell");
    std::fs::remove_file(&script).expect("removed");

    for (shell, places) in [
        ("zsh", vec![":_pleach_settings'", ":_pleach_clusters'", ":_pleach_trainers'", ":_pleach_runs'"]),
        ("fish", vec!["-l set -x", "-l cluster -r -a", "-l software -r -a"]),
    ] {
        let text = stdout(&pleach(&["completions", shell]));
        let names = ["parallelism.schedule=zb-auto", "h100-80g-dgx", "preset:bloom-176b"];
        for word in names.into_iter().chain(places) {
            assert!(text.contains(word), "{shell} lacks {word}");
        }
    }
}
