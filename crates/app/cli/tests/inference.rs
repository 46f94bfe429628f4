//! The commands that read a run's weights, as a user meets them: what they print and write, and how they exit.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::harness::{pleach, prints};

/// Context and sequences of the run that all tests read.
const LENGTH: usize = 24;

/// The message of a command with invalid input.
fn refuses(arguments: &[&str]) -> String {
    let output = pleach(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.stdout, b"", "{arguments:?}");
    String::from_utf8(output.stderr).expect("text")
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("pleach-inference-{}", std::process::id()))
}

/// The folder of a run of this name, which is trained with `keys`.
fn trained(name: &str, keys: &[&str]) -> String {
    fs::create_dir_all(folder()).expect("a folder");
    let folder = folder().join(name).display().to_string();
    let keys = keys.iter().map(|key| format!("--set={key}"));
    let keys: Vec<String> = keys.chain([format!("--set=run.folder={folder:?}")]).collect();
    let mut arguments = vec!["train", "--quiet"];
    arguments.extend(keys.iter().map(String::as_str));
    prints(&arguments);
    folder
}

/// A small model trained for a few steps on four ranks, in a folder that all tests share.
fn run() -> &'static str {
    static RUN: OnceLock<String> = OnceLock::new();
    RUN.get_or_init(|| {
        let keys = [
            "model.num_layers=2",
            "model.hidden=32",
            "model.num_heads=4",
            "model.ffn_hidden=64",
            &format!("model.context={LENGTH}"),
            "model.dropout=0.1",
            "data.tokenizer=bytes",
            "train.steps=12",
            "train.warmup_steps=1",
            "train.learning_rate=0.003",
            "run.evaluate_every=6",
            "run.evaluate_tokens=0",
            "train.global_batch=8",
            "parallelism.dp=1",
        ];
        trained("run", &keys)
    })
}

#[test]
fn eval_measures_held_out_text_whatever_the_layout() {
    let run = run();
    let record = prints(&["eval", "--from", run, "--json"]);
    let value: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    let loss = value["loss"].as_f64().expect("a loss");
    // Bytes that are equally probable have ln 256 = 5.5; a few steps have taught a little.
    assert!((1.0..5.0).contains(&loss), "{record}");
    assert!((value["bits_per_byte"].as_f64().expect("bits") - loss / std::f64::consts::LN_2).abs() < 1e-9, "{record}");
    for set in ["parallelism.pp=2", "parallelism.microbatch_size=4", "parallelism.dp=2", "parallelism.cp=2"] {
        let other = prints(&["eval", "--from", run, "--json", "--set", set]);
        let other: serde_json::Value = serde_json::from_str(&other).expect("JSON");
        assert_eq!(other["loss"], value["loss"], "{set}");
    }
    // The run measured it itself, after half of the steps and at the end, on two tensor-parallel ranks.
    let metrics = fs::read_to_string(Path::new(run).join("metrics.jsonl")).expect("metrics");
    let records = metrics.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let measured: Vec<_> = records.filter(|record| record.get("held_out_loss").is_some()).collect();
    assert_eq!(measured.iter().map(|record| record["step"].as_u64()).collect::<Vec<_>>(), [Some(6), Some(12)]);
    let layout = prints(&["eval", "--from", run, "--json", "--set", "parallelism.tp=2"]);
    let layout: serde_json::Value = serde_json::from_str(&layout).expect("JSON");
    assert_eq!((&layout["loss"], &layout["tokens"]), (&measured[1]["held_out_loss"], &measured[1]["held_out_tokens"]));
    let line = prints(&["eval", "--from", run]);
    assert!(line.starts_with(&format!("loss {loss:.4} nats per token, ")), "{line}");
    let file = folder().join("other.txt");
    fs::write(&file, "All of this is measured, not a part of it.\n".repeat(20)).expect("a file");
    let other = prints(&["eval", "--from", run, "--data", &file.display().to_string()]);
    // All of 860 bytes but the first: 35 windows of 24, and one of 19.
    assert!(other.ends_with("over 859 tokens\n"), "{other}");
}

#[test]
fn a_run_without_its_weights_is_read_by_its_newest_sound_checkpoint() {
    let keys = ["model.num_layers=1", "model.hidden=32", "model.num_heads=4", "model.context=24"];
    let more =
        ["data.tokenizer=bytes", "train.steps=4", "train.global_batch=8", "parallelism.dp=1", "run.save_every=2"];
    let run = trained("stopped", &[&keys[..], &more].concat());
    let eval = |from: &str| pleach(&["eval", "--from", from]);
    let ended = eval(&run).stdout;
    assert!(ended.starts_with(b"loss "), "{}", String::from_utf8_lossy(&ended));
    fs::remove_file(Path::new(&run).join("weights.safetensors")).expect("weights");
    let stopped = eval(&run);
    assert!(stopped.stdout == ended, "{}", String::from_utf8_lossy(&stopped.stderr));
    let told = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let line = |steps| {
        format!("{run} has no weights.safetensors; its newest checkpoint is read: {run}/checkpoints/step-{steps:08}\n")
    };
    assert_eq!(told(&stopped), line(4));
    // The last byte of a file is one of a weight or of a moment.
    let file = Path::new(&run).join("checkpoints/step-00000004/rank-00000.safetensors");
    let mut bytes = fs::read(&file).expect("a checkpoint");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(&file, bytes).expect("a checkpoint");
    let earlier = eval(&run);
    let text = told(&earlier);
    assert!(text.contains("; an earlier checkpoint is used\n") && text.ends_with(&line(2)), "{text}");
    assert!(earlier.stdout.starts_with(b"loss ") && earlier.stdout != ended, "{text}");
    fs::remove_dir_all(Path::new(&run).join("checkpoints")).expect("checkpoints");
    let none = refuses(&["eval", "--from", &run]);
    assert!(none.contains("a run writes its weights when it ends, and it has no checkpoint"), "{none}");
}

#[test]
fn generate_gives_the_same_text_for_the_same_seed() {
    let run = run();
    let arguments = ["generate", "--from", run, "--prompt", "The rank", "--max-tokens", "60"];
    let text = prints(&arguments);
    assert!(text.starts_with("The rank") && text.chars().count() > 20, "{text}");
    assert_eq!(prints(&arguments), text);
    assert_eq!(prints(&[&arguments[..], &["--set", "parallelism.pp=2"]].concat()), text);
    assert_ne!(prints(&[&arguments[..], &["--seed", "1"]].concat()), text);
    let greedy = |seed| prints(&[&arguments[..], &["--temperature", "0", "--seed", seed]].concat());
    assert_eq!(greedy("0"), greedy("1"));
    assert_eq!(prints(&["generate", "--from", run, "--prompt", "x", "--max-tokens", "0"]), "x\n");
}

/// A file of `B` sequences of text, with more keys.
fn tokens(name: &str, sequences: usize, more: &str) -> String {
    let ids = |shift: usize| -> Vec<Vec<u8>> {
        let text = include_bytes!("inference.rs");
        (0..sequences).map(|sequence| text[sequence * 50 + shift..][..LENGTH].to_vec()).collect()
    };
    let path = folder().join(name);
    fs::create_dir_all(folder()).expect("a folder");
    let text = format!(r#"{{"input_ids": {:?}, "labels": {:?} {more}}}"#, ids(0), ids(1));
    fs::write(&path, text).expect("a file");
    path.display().to_string()
}

fn read(path: &Path) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let bytes = fs::read(path).expect("a file");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let tensors = file.tensors().into_iter().map(|(name, view)| {
        let values = view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four")));
        (name, (view.shape().to_vec(), values.collect()))
    });
    tensors.collect()
}

fn forward(name: &str, tokens: &str, more: &[&str]) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let out = folder().join(name);
    let path = out.display().to_string();
    assert_eq!(prints(&[&["forward", "--from", run(), "--tokens", tokens, "--out", &path], more].concat()), "");
    read(&out)
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// The Frobenius norm of the difference over that of `a`, or over `floor` where that is larger.
fn distance(a: &[f32], b: &[f32], floor: f64) -> f64 {
    norm(a.iter().zip(b).map(|(a, b)| f64::from(a - b))) / norm(a.iter().copied().map(f64::from)).max(floor)
}

#[test]
fn forward_gives_the_same_results_under_every_layout() {
    let tokens = tokens("four.json", 4, "");
    let oracle = forward("oracle.safetensors", &tokens, &["--grads"]);
    assert_eq!(oracle["logits"].0, [4, LENGTH, 256]);
    assert_eq!(oracle["loss"].0, [1]);
    let weights = read(&Path::new(run()).join("weights.safetensors"));
    let gradients: Vec<_> =
        oracle.iter().filter_map(|(name, (shape, _))| Some((name.strip_prefix("grad.")?, shape))).collect();
    assert!(gradients.into_iter().eq(weights.iter().map(|(name, (shape, _))| (name.as_str(), shape))));

    let same = [
        "parallelism.pp=2",
        "parallelism.microbatch_size=2",
        "parallelism.dp=2",
        "parallelism.cp=2",
        "parallelism.cp=4",
    ];
    for set in same {
        let other = forward("same.safetensors", &tokens, &["--set", set]);
        assert!(other["logits"] == oracle["logits"] && other["loss"] == oracle["loss"], "{set}");
        assert_eq!(other.len(), 2);
    }
    let pipeline = forward("pp.safetensors", &tokens, &["--grads", "--set", "parallelism.pp=2"]);
    assert!(pipeline == oracle, "pipeline stages change no bit");
    let layout = ["--grads", "--set", "parallelism.tp=2", "--set", "parallelism.dp=2"];
    let other = forward("tp.safetensors", &tokens, &layout);
    // With tensor parallelism, too, ranks that share sequences change no bit of the forward pass.
    let shared = forward("cp.safetensors", &tokens, &[&layout[..], &["--set", "parallelism.cp=3"]].concat());
    assert!(shared["logits"] == other["logits"] && shared["loss"] == other["loss"]);
    // A gradient that is small compared with the others, as that of a key bias, is a difference of larger ones and
    // bears their rounding.
    let gradients = oracle.iter().filter(|(name, _)| name.starts_with("grad.")).flat_map(|(_, (_, values))| values);
    let floor = 1e-3 * norm(gradients.copied().map(f64::from));
    let distances: Vec<(f64, &String)> =
        oracle.iter().map(|(name, (_, values))| (distance(values, &other[name].1, floor), name)).collect();
    // Sums of two halves instead of one, through two layers: a few tens of roundings of 2^-24 at random.
    let of_shared: f64 =
        oracle.iter().map(|(name, (_, values))| distance(values, &shared[name].1, floor)).fold(0.0, f64::max);
    assert!(of_shared < 2e-6, "{of_shared}");
    let worst = distances.iter().fold(&distances[0], |a, b| if b.0 > a.0 { b } else { a });
    assert!(worst.0 < 2e-6, "{worst:?}");
    println!("farthest from one rank: {worst:?}");
}

#[test]
fn forward_reads_masks_and_positions() {
    let plain = forward("plain.safetensors", &tokens("plain.json", 1, ""), &[]);
    let positions: Vec<usize> = (0..LENGTH).collect();
    let ones = vec![1; LENGTH];
    let neutral = format!(r#", "position_ids": [{positions:?}], "document_ids": [{ones:?}], "prefix_length": [[1]]"#);
    assert!(forward("neutral.safetensors", &tokens("neutral.json", 1, &neutral), &[]) == plain);
    let documents: Vec<usize> = (0..LENGTH).map(|place| place / 10).collect();
    let row = |results: &BTreeMap<String, (Vec<usize>, Vec<f32>)>, place: usize| {
        results["logits"].1[place * 256..(place + 1) * 256].to_vec()
    };
    let more = format!(r#", "document_ids": [{documents:?}]"#);
    let split = forward("documents.safetensors", &tokens("documents.json", 1, &more), &[]);
    assert!(row(&split, 9) == row(&plain, 9) && row(&split, 10) != row(&plain, 10));
    let prefix = forward("prefix.safetensors", &tokens("prefix.json", 1, r#", "prefix_length": [5]"#), &[]);
    assert!(row(&prefix, 0) != row(&plain, 0) && row(&prefix, 4) != row(&plain, 4));
}

/// Balanced chunks hide what comes after them; contiguous ones hide nothing.
#[test]
fn ranks_that_share_sequences_read_masks_and_positions() {
    let documents: Vec<usize> = (0..LENGTH).map(|place| place / 10).collect();
    let documents = tokens("shared.json", 1, &format!(r#", "document_ids": [{documents:?}]"#));
    let prefix = tokens("shared_prefix.json", 1, r#", "prefix_length": [9]"#);
    let shared = ["--set", "parallelism.cp=2"];
    let contiguous = [&shared[..], &["--set", "parallelism.cp_chunks=contiguous"]].concat();
    let plain = |tokens: &str| forward("whole.safetensors", tokens, &[]);
    assert!(forward("shared.safetensors", &documents, &shared) == plain(&documents));
    assert!(forward("shared.safetensors", &documents, &contiguous) == plain(&documents));
    assert!(forward("shared.safetensors", &prefix, &contiguous) == plain(&prefix));
    let out = folder().join("hidden.safetensors").display().to_string();
    let arguments = ["forward", "--from", run(), "--tokens", &prefix, "--out", &out];
    let output = pleach(&[&arguments[..], &shared].concat());
    let message = String::from_utf8(output.stderr).expect("text");
    let expected =
        "token 0 of sequence 0 sees 9 tokens, but its chunk lets it see 6; use parallelism.cp_chunks = \"contiguous\"";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn what_cannot_be_used_is_said() {
    let run = run();
    let three = tokens("three.json", 3, "");
    let out = folder().join("out.safetensors").display().to_string();
    let forward = |tokens: &str, more: &[&str]| {
        let message = refuses(&[&["forward", "--from", run, "--tokens", tokens, "--out", &out], more].concat());
        message.replace(run, "RUN").replace(&folder().display().to_string(), "FOLDER")
    };
    assert_eq!(
        forward(&three, &["--set", "parallelism.dp=2"]),
        "RUN/run.toml:45:16: train.global_batch = 3 must be a multiple of parallelism.dp = 2 x \
         parallelism.microbatch_size = 1; use 2 or 4\n\
         train.global_batch and train.sequence_length are the sequences and tokens of FOLDER/three.json\n"
            .replace("RUN/run.toml:45:16: ", &place_of(&forward(&three, &["--set", "parallelism.dp=2"])))
    );
    let outside = folder().join("outside.json").display().to_string();
    fs::write(&outside, r#"{"input_ids": [[1, 256]], "labels": [[1, -100]]}"#).expect("a file");
    assert_eq!(
        forward(&outside, &[]),
        "FOLDER/outside.json: input_ids[0][1] = 256 is outside model.vocabulary = 256\n"
    );
    fs::write(&outside, r#"{"input_ids": [[1, 2]], "labels": [[1, -1]]}"#).expect("a file");
    assert_eq!(
        forward(&outside, &[]),
        "FOLDER/outside.json: labels[0][1] = -1 is outside model.vocabulary = 256, and not -100\n"
    );
    // Without a prompt, a text begins as after the end of a line.
    let of = |prompt: &str| prints(&["generate", "--from", run, "--max-tokens", "8", "--prompt", prompt]);
    assert_eq!(format!("\n{}", of("")), of("\n"));
    assert_eq!(
        refuses(&["generate", "--from", run, "--prompt", "x", "--temperature", "-1"]),
        "--temperature -1 must not be negative; use 0 or more\n"
    );
    assert_eq!(
        refuses(&[
            "generate",
            "--from",
            run,
            "--prompt",
            "x",
            "--set",
            "parallelism.dp=2",
            "--set",
            "train.global_batch=4"
        ]),
        "parallelism.dp = 2: replicas split sequences, and one text is one sequence; use 1\n"
    );
    let other_model = |set: &str| {
        let reported = refuses(&["generate", "--from", run, "--prompt", "x", "--set", set]).replace(run, "RUN");
        let why = " of RUN/run.toml; --set has changed the model, or a later run in this folder has not ended\n";
        reported.strip_suffix(why).expect(&reported).to_string()
    };
    assert_eq!(
        other_model("model.ffn_hidden=32"),
        "RUN/weights.safetensors: layers.0.ffn.down.weight has the shape [32, 64]; the model has [32, 32]"
    );
    assert_eq!(
        other_model("model.num_layers=1"),
        "RUN/weights.safetensors: layers.1.attention.key.bias is not in the model"
    );
    assert_eq!(
        other_model("model.tied_embeddings=false"),
        "RUN/weights.safetensors: head.output.weight of the model is missing"
    );
    let nowhere = refuses(&["eval", "--from", "no/such/folder"]);
    assert!(nowhere.starts_with("no/such/folder/run.toml cannot be read: "), "{nowhere}");
    let hint = "; use a run folder, a checkpoint, or a folder with config.json and model.safetensors\n";
    assert!(nowhere.ends_with(hint), "{nowhere}");
}

/// The place that a message begins with.
fn place_of(message: &str) -> String {
    message.find("train.").map_or(String::new(), |end| message[..end].to_string())
}

/// A run of three steps with averages of its weights.
fn averaged_run() -> String {
    let keys = [
        "model.num_layers=1",
        "model.hidden=16",
        "model.num_heads=2",
        &format!("model.context={LENGTH}"),
        "data.tokenizer=bytes",
        "train.steps=3",
        "train.learning_rate=0.05",
        "train.ema_decay=0.75",
        "train.global_batch=4",
        "parallelism.dp=2",
        "parallelism.tp=1",
        "parallelism.pp=1",
    ];
    trained("averaged", &keys)
}

#[test]
fn averages_of_weights_are_measured_and_exported() {
    let run = averaged_run();
    let loss = |arguments: &[&str]| {
        let record = prints(&[&["eval", "--json", "--from"], arguments].concat());
        serde_json::from_str::<serde_json::Value>(&record).expect("JSON")["loss"].as_f64().expect("a loss")
    };
    let (trained, average) = (loss(&[&run, "--weights", "trained"]), loss(&[&run, "--weights", "ema"]));
    assert_eq!(loss(&[&run]), trained);
    assert!((trained - average).abs() > 1e-3, "{trained} and {average}");
    assert_eq!(loss(&[&run, "--weights=ema", "--set=parallelism.pp=1", "--set=parallelism.dp=2"]), average);
    let text = fs::read_to_string(Path::new(&run).join("run.toml")).expect("a run file");
    assert!(text.contains("\nema_decay = 0.75\n"), "{text}");
    let out = folder().join("averaged-export").display().to_string();
    prints(&["export", &run, "--weights", "ema", "--out", &out]);
    let data = folder().join("averaged.txt").display().to_string();
    fs::write(&data, "Exported weights are those that were measured.\n".repeat(20)).expect("a file");
    let of_tokens = ["--set=data.tokenizer=bytes", "--data", &data];
    assert_eq!(loss(&[&[out.as_str()], &of_tokens[..]].concat()), loss(&[&run, "--weights=ema", "--data", &data]));
    let generated = ["generate", "--from", &run, "--prompt", "The", "--max-tokens", "20", "--weights", "ema"];
    assert_eq!(prints(&generated), prints(&generated));
}

#[test]
fn averages_that_are_not_there_are_refused() {
    let refused = refuses(&["eval", "--from", run(), "--weights", "ema"]);
    assert!(refused.contains("has no moving average of weights; train with train.ema_decay"), "{refused}");
    let misspelt = refuses(&["eval", "--from", run(), "--weights", "mean"]);
    assert!(misspelt.contains("[possible values: trained, ema]"), "{misspelt}");
}

/// A run of four steps on these ranks, with checkpoints and samples after every second step, or without samples.
fn sampled_run(name: &str, layout: &[&str], samples: &[&str]) -> PathBuf {
    let run = folder().join(name);
    let keys = [
        "model.num_layers=2",
        "model.hidden=16",
        "model.num_heads=2",
        &format!("model.context={LENGTH}"),
        "model.dropout=0.1",
        "data.tokenizer=bytes",
        "train.steps=4",
        "train.global_batch=4",
        "run.save_every=2",
        "run.keep_newest=9",
        &format!("run.folder={:?}", run.display().to_string()),
    ]
    .map(String::from);
    let all = keys.iter().map(String::as_str).chain(layout.iter().chain(samples).copied());
    let all: Vec<String> = all.map(|key| format!("--set={key}")).collect();
    let arguments: Vec<&str> = ["train", "--quiet"].into_iter().chain(all.iter().map(String::as_str)).collect();
    prints(&arguments);
    run
}

/// Step, prompt and generated text of each sample of a run.
fn samples_of(run: &Path) -> Vec<(u64, String, String)> {
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let records = metrics.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_string();
    records
        .filter(|record| record["event"] == "sample")
        .map(|record| (record["step"].as_u64().expect("a step"), text(&record["prompt"]), text(&record["generated"])))
        .collect()
}

/// Samples are what `generate` makes of the checkpoint of their step, under every layout, and change no weight.
#[test]
fn samples_between_steps_are_those_of_generate() {
    let samples = [
        "run.sample_every=2",
        "run.sample_prompts=[\"The rank\", \"x\"]",
        "run.sample_tokens=40",
        "run.sample_temperature=0.7",
    ];
    let layouts: [&[&str]; 3] = [
        &["parallelism.dp=2", "parallelism.tp=1", "parallelism.pp=2", "parallelism.microbatch_size=1"],
        &[
            "parallelism.dp=2",
            "parallelism.tp=1",
            "parallelism.pp=1",
            "parallelism.microbatch_size=1",
            "parallelism.zero=3",
        ],
        &["parallelism.dp=1", "parallelism.tp=2", "parallelism.pp=2", "parallelism.microbatch_size=1"],
    ];
    let mut of_first = vec![];
    for (index, layout) in layouts.into_iter().enumerate() {
        let with = sampled_run(&format!("samples-{index}"), layout, &samples);
        let without = sampled_run(&format!("no-samples-{index}"), layout, &[]);
        let weights = |run: &Path| fs::read(run.join("weights.safetensors")).expect("weights");
        assert!(weights(&with) == weights(&without), "{layout:?}");
        let found = samples_of(&with);
        assert_eq!(samples_of(&without), []);
        let places: Vec<(u64, &str)> = found.iter().map(|(step, prompt, _)| (*step, prompt.as_str())).collect();
        assert_eq!(places, [(2, "The rank"), (2, "x"), (4, "The rank"), (4, "x")]);
        for (step, prompt, generated) in &found {
            let checkpoints = fs::read_dir(with.join("checkpoints")).expect("checkpoints");
            let names = checkpoints.map(|entry| entry.expect("an entry").path());
            let of_step = |path: &PathBuf| checkpoint_step(path) == Some(*step);
            let checkpoint = names.into_iter().find(of_step).expect("a checkpoint").display().to_string();
            let tp = layout.iter().find_map(|key| key.strip_prefix("parallelism.tp=")).unwrap_or("1");
            let tp = format!("--set=parallelism.tp={tp}");
            let arguments = ["--max-tokens", "40", "--temperature", "0.7", &tp, "--prompt", prompt];
            let text = prints(&[&["generate", "--from", &checkpoint], &arguments[..]].concat());
            assert!(text == format!("{prompt}{generated}\n"), "{layout:?}, step {step}: {text:?}, not {generated:?}");
        }
        match index {
            0 => of_first = found,
            1 => assert_eq!(found, of_first),
            _ => {}
        }
    }
}

/// The step in the name of a checkpoint.
fn checkpoint_step(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.rsplit(|letter: char| !letter.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

#[test]
fn samples_that_no_layout_generates_are_refused() {
    let refused = |keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| format!("--set={key}")).collect();
        refuses(&["check"].into_iter().chain(keys.iter().map(String::as_str)).collect::<Vec<_>>())
    };
    let shared = refused(&["run.sample_every=10", "parallelism.cp=2", "parallelism.tp=1"]);
    assert!(shared.contains("use parallelism.cp = 1, or run.sample_every = 0"), "{shared}");
    let without = refused(&["run.sample_tokens=10"]);
    assert!(without.contains("run.sample_tokens has no effect without run.sample_every"), "{without}");
}
