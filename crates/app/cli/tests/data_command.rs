//! `pleach data tokenize`, and runs on what it wrote.

use std::path::PathBuf;
use std::process::Output;

use crate::harness::{pleach, stderr, stdout};

/// A new folder for one test, with a text of 200 lines.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pleach-tokenize-{name}-{}", std::process::id()));
    std::fs::create_dir_all(path.join("text")).expect("a folder");
    for part in 0..10 {
        let lines: Vec<String> = (0..20).map(|line| format!("line {line} of part {part} has some words\n")).collect();
        std::fs::write(path.join(format!("text/{part}.txt")), lines.concat()).expect("a file");
    }
    path
}

#[test]
fn text_becomes_a_token_file_and_a_run_reads_it() {
    let folder = folder("run");
    let path = |name: &str| folder.join(name).display().to_string();
    let made = pleach(&["data", "tokenize", &path("text"), "--tokenizer", "bpe:280", "--out", &path("a.tokens")]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let said = stdout(&made).replace(&path("a.tokens"), "a.tokens");
    assert!(said.starts_with("a.tokens: 10 documents, ") && said.contains(" tokens of \"bpe:280\", hash "), "{said}");

    let arguments = |data: &str| {
        let data = path(data);
        let run = format!("run.folder={}", path("run"));
        let settings = [
            "run.ranks=1",
            "train.steps=2",
            "train.global_batch=2",
            "model.num_layers=1",
            "model.hidden=16",
            "model.context=16",
            "data.held_out=0.001",
            "data.visible=document",
            &run,
        ];
        let mut arguments = vec!["train".to_string(), "--data".into(), data];
        settings.iter().for_each(|setting| arguments.extend(["--set".to_string(), setting.to_string()]));
        arguments
    };
    let train = |data: &str| pleach(&arguments(data).iter().map(String::as_str).collect::<Vec<_>>());
    let trained = train("a.tokens");
    assert_eq!(trained.status.code(), Some(0), "{}", stderr(&trained));
    let resolved = std::fs::read_to_string(folder.join("run/run.toml")).expect("a run file");
    assert!(resolved.contains("vocabulary = 280\n") && resolved.contains("visible = \"document\"\n"), "{resolved}");
    let saved = std::fs::read_to_string(folder.join("run/tokenizer.json")).expect("a tokenizer");
    assert!(saved.contains("\"BPE\""), "{saved}");

    // The same tokens as a pair give the same steps, with the tokenizer named.
    let made = pleach(&["data", "tokenize", &path("a.tokens"), "--out", &path("b.bin")]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let mut as_pair = arguments("b.idx");
    as_pair.extend(["--set".into(), format!("data.tokenizer={}", path("b.tokenizer.json"))]);
    let as_pair = pleach(&as_pair.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(as_pair.status.code(), Some(0), "{}", stderr(&as_pair));
    let losses = |output: &Output| -> Vec<String> {
        let printed = stdout(output);
        let steps = printed.lines().filter(|line| line.starts_with("step "));
        // The header has a line `step`, too, without a learning rate.
        steps.filter_map(|line| Some(line.split_once("  lr ")?.0.to_string())).collect()
    };
    assert_eq!(losses(&trained).len(), 2, "{}", stdout(&trained));
    assert_eq!(losses(&trained), losses(&as_pair));

    let mut bytes = std::fs::read(folder.join("a.tokens")).expect("a file");
    bytes.pop();
    std::fs::write(folder.join("a.tokens"), bytes).expect("a file");
    let cut = train("a.tokens");
    assert_eq!(cut.status.code(), Some(2));
    assert!(
        stderr(&cut).contains("a.tokens: ") && stderr(&cut).contains("it was cut off: write it again"),
        "{}",
        stderr(&cut)
    );
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn what_cannot_be_done_exits_with_2() {
    let folder = folder("refused");
    let path = |name: &str| folder.join(name).display().to_string();
    let text = path("text");
    for (arguments, expected) in [
        (vec!["--out", "a.txt"], "--out a.txt should end with .tokens, or with .bin for Megatron-LM\n"),
        (
            vec!["--out", "a.tokens", "--tokenizer", "gpt2"],
            "--tokenizer gpt2 is not \"bytes\", \"bpe:\" and a number of tokens as in \"bpe:2048\", or a path such as \"tokenizer.json\"\n",
        ),
        (vec!["--out", "no/such/folder/a.tokens"], "--out no/such/folder/a.tokens cannot be written: "),
    ] {
        let output = pleach(&[&["data", "tokenize", &text], arguments.as_slice()].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
    }
    std::fs::write(folder.join("bad.txt"), b"caf\xe9").expect("a file");
    let output = pleach(&["data", "tokenize", &path("bad.txt"), "--out", &path("a.tokens")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("bad.txt is not UTF-8 at byte 3"), "{}", stderr(&output));
    assert!(!folder.join("a.tokens").exists());
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn runs_of_two_layouts_share_a_cache_take_a_mixture_in_one_order_and_measure_texts_by_name() {
    let folder = folder("mixture");
    let path = |name: &str| folder.join(name).display().to_string();
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../base/formats/src/tests/tables/zstd-pages-1.parquet");
    std::fs::copy(table, folder.join("a.table")).expect("a table");
    let run = |name: &str, sets: &[String]| -> Vec<String> {
        let own = [
            format!("data.sources=[{{ path = \"{}\", weight = 3.0 }}, \"{}\"]", path("text/*.txt"), path("a.table")),
            format!("data.validation=[{{ name = \"words\", path = \"{}\" }}]", path("text/3.txt")),
            format!("run.folder={}", path(name)),
            "data.tokenizer=bytes".into(),
            "train.steps=4".into(),
            "train.global_batch=4".into(),
            "model.num_layers=1".into(),
            "model.hidden=16".into(),
            "model.context=16".into(),
            "run.evaluate_every=2".into(),
        ];
        let sets: Vec<&str> = own.iter().chain(sets).flat_map(|set| ["--set", set.as_str()]).collect();
        let trained = pleach(&[vec!["train"], sets].concat());
        assert_eq!(trained.status.code(), Some(0), "{}", stderr(&trained));
        assert!(stdout(&trained).contains("validation loss "), "{}", stdout(&trained));
        let metrics = std::fs::read_to_string(folder.join(name).join("metrics.jsonl")).expect("metrics");
        let of_line = |line: &str| -> String {
            let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let keys = ["step", "loss", "held_out_loss", "validation", "validation_loss", "validation_tokens"];
            keys.iter().map(|key| format!("{} ", record[key])).collect()
        };
        metrics.lines().map(of_line).collect()
    };
    let cache = format!("data.cache={}", path("cache"));
    let one = run("one", &["run.ranks=1".into(), cache.clone()]);
    assert_eq!(one.iter().filter(|line| line.contains("\"words\"")).count(), 2, "{one:?}");
    let files = || -> Vec<_> {
        let entries = std::fs::read_dir(folder.join("cache")).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name()).collect()
    };
    assert_eq!(files().len(), 3, "two sources and a text to measure on");
    let pipeline = ["parallelism.pp=2".into(), "parallelism.dp=1".into(), "parallelism.tp=1".into(), cache];
    assert_eq!(run("pipeline", &pipeline), one);
    assert_eq!(files().len(), 3);
    std::fs::remove_dir_all(folder).expect("removed");
}
