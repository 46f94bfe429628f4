//! Runs that train adapters of given weights: what is frozen, what is exported, and under which layouts.

use std::fs;
use std::path::Path;

use checkpoint::TensorReader;

use crate::harness::{prints, stdout};
use crate::hugging_face::training::{sets, training, with_tokenizer};
use crate::hugging_face::{Folder, bits, pleach, stderr, succeeds, whole};

const ALL: &str = "model.lora={ rank = 4, alpha = 6.0, targets = [\"query\", \"key\", \"value\", \"output\", \"gate\", \"up\", \"down\"] }";

/// Steps that move weights visibly.
const FAST: [&str; 4] =
    ["train.learning_rate=1e-2", "train.min_learning_rate=1e-2", "train.steps=6", "train.sequence_length=12"];

fn tensors(folder: &str, file: &str) -> TensorReader {
    TensorReader::open(&Path::new(folder).join(file)).expect("tensors")
}

/// Names of the library and of its adapters in PEFT, with inputs.
const MODULES: [(&str, usize); 7] = [
    ("self_attn.q_proj", 16),
    ("self_attn.k_proj", 16),
    ("self_attn.v_proj", 16),
    ("self_attn.o_proj", 16),
    ("mlp.gate_proj", 16),
    ("mlp.up_proj", 16),
    ("mlp.down_proj", 20),
];

#[test]
fn averages_of_adapters_are_read_and_exported() {
    let folder = Folder::new("lora-ema");
    let [from, text] = with_tokenizer("llama", &folder);
    let run = folder.at("run");
    succeeds(&training(&from, &text, &sets(&run, &[&[ALL, "train.ema_decay=0.5"][..], &FAST].concat())));
    let [trained, average] = [folder.at("trained"), folder.at("average")];
    succeeds(&["export", &run, "--out", &trained]);
    succeeds(&["export", &run, "--out", &average, "--weights", "ema"]);
    let read = |folder: &str| tensors(folder, "model.safetensors");
    let (base, trained, average) = (read(&from), read(&trained), read(&average));
    for name in base.names() {
        let [before, trained, average] = [&base, &trained, &average].map(|file| bits(&whole(file, name)));
        let is_adapted = MODULES.iter().any(|(module, _)| name.contains(module));
        assert_eq!(average == before, !is_adapted, "{name}");
        assert_eq!(average == trained, !is_adapted, "{name}");
    }
    succeeds(&["generate", "--from", &run, "--prompt", "a", "--max-tokens", "4", "--weights", "ema"]);
}

#[test]
fn merged_weights_are_the_frozen_ones_and_their_adapters() {
    let folder = Folder::new("lora");
    let [from, text] = with_tokenizer("llama", &folder);
    let run = folder.at("run");
    let sets = sets(&run, &[&[ALL][..], &FAST].concat());
    succeeds(&training(&from, &text, &sets));
    let [merged, adapters] = [folder.at("merged"), folder.at("adapters")];
    succeeds(&["export", &run, "--out", &merged]);
    succeeds(&["export", &run, "--out", &adapters, "--as", "adapters"]);

    let (base, merged) = (tensors(&from, "model.safetensors"), tensors(&merged, "model.safetensors"));
    let adapters_file = tensors(&adapters, "adapter_model.safetensors");
    assert_eq!(base.names().collect::<Vec<_>>(), merged.names().collect::<Vec<_>>());
    let mut seen = 0;
    for name in base.names() {
        let (before, after) = (whole(&base, name), whole(&merged, name));
        let Some((module, inputs)) = MODULES.iter().find(|(module, _)| name.contains(module)) else {
            assert_eq!(bits(&before), bits(&after), "{name} is frozen");
            continue;
        };
        let _ = module;
        let of = |part: &str| {
            let own = name.trim_end_matches("weight");
            whole(&adapters_file, &format!("base_model.model.{own}{part}.weight"))
        };
        let (a, b) = (of("lora_A"), of("lora_B"));
        assert_eq!(a.len(), 4 * inputs, "{name}");
        assert!(b.iter().any(|value| *value != 0.0), "{name} has learned");
        let sum = |row: usize, col: usize| -> f64 {
            (0..4).map(|inner| f64::from(b[row * 4 + inner]) * f64::from(a[inner * inputs + col])).sum()
        };
        for (index, (before, after)) in before.iter().zip(&after).enumerate() {
            let exact = f64::from(*before) + 1.5 * sum(index / inputs, index % inputs);
            assert_eq!(exact as f32, *after, "{name}, element {index}");
        }
        seen += 1;
    }
    assert_eq!(seen, 14, "seven linear layers in each of two layers");
    assert_eq!(adapters_file.names().count(), 28);
    let description = fs::read_to_string(Path::new(&adapters).join("adapter_config.json")).expect("a description");
    let description: serde_json::Value = serde_json::from_str(&description).expect("JSON");
    assert_eq!(description["r"], 4);
    assert_eq!(description["lora_alpha"], 6.0);
    assert_eq!(description["peft_type"], "LORA");
    assert_eq!(description["base_model_name_or_path"], from);
    let modules = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"];
    assert_eq!(description["target_modules"], serde_json::json!(modules));
}

/// The names in a folder, sorted.
fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn an_export_replaces_an_earlier_one_and_nothing_else() {
    let folder = Folder::new("lora-exports");
    let [from, text] = with_tokenizer("llama", &folder);
    let (run, out) = (folder.at("run"), folder.at("out"));
    succeeds(&training(&from, &text, &sets(&run, &[ALL])));
    let exported = ["export", &run, "--out", &out, "--as", "adapters", "--dtype", "bf16"];
    succeeds(&exported);
    let of_adapters = names(&out);
    assert_eq!(of_adapters[..2], ["adapter_config.json", "adapter_model.safetensors"]);
    let stored = crate::hugging_face::stored(&Path::new(&out).join("adapter_model.safetensors"));
    assert!(stored.iter().all(|(_, dtype, ..)| *dtype == safetensors::Dtype::BF16));
    let refused = |arguments: &[&str]| {
        let output = pleach(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        stderr(&output)
    };
    assert_eq!(
        refused(&["export", &run, "--out", &out]),
        format!(
            "--out {out} must be a new or an empty folder; it has {}; use --overwrite to replace the files of an earlier \
             export, or name another folder\n",
            of_adapters.join(", ")
        )
    );
    assert_eq!(names(&out), of_adapters);

    // A merged model has no adapters with it, and no parts of a larger model.
    let parts =
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"];
    for name in parts.iter().chain(&["README.md"]) {
        fs::write(Path::new(&out).join(name), "{}").expect("written");
    }
    succeeds(&["export", &run, "--out", &out, "--overwrite"]);
    let tokenizer = ["tokenizer.json", "tokenizer_config.json"];
    assert_eq!(
        names(&out),
        [&["README.md", "config.json", "generation_config.json", "model.safetensors"][..], &tokenizer].concat()
    );
    succeeds(&[&exported[..], &["--overwrite"]].concat());
    assert_eq!(names(&out), [vec!["README.md".to_string()], of_adapters].concat());

    for (out, expected) in [
        (&from, "the model that"),
        (&run, "which this command reads"),
        (&folder.at("run/checkpoints/hf"), "is a place of the run's own files"),
        (&folder.at("run/checkpoints"), "is a place of the run's own files"),
    ] {
        let said = refused(&["export", &run, "--out", out, "--overwrite"]);
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(names(&from).iter().filter(|name| name.ends_with(".safetensors")).count(), 3);
}

/// Steps of 1e-30 change no weight that is not 0, so adapters are those that the seed gives: of every layout the same.
#[test]
fn adapters_begin_with_the_same_values_on_every_layout() {
    let folder = Folder::new("lora-begin");
    let [from, text] = with_tokenizer("llama", &folder);
    let begun = |name: &str, layout: &[&str]| {
        let run = folder.at(name);
        let still = ["train.learning_rate=1e-30", "train.min_learning_rate=1e-30", "train.weight_decay=0"];
        let sets = sets(&run, &[&[ALL][..], &still, layout].concat());
        succeeds(&training(&from, &text, &sets));
        let weights = tensors(&run, "weights.safetensors");
        let (zeros, others): (Vec<_>, Vec<_>) = weights.names().partition(|name| name.ends_with(".lora_b"));
        assert!(zeros.iter().all(|name| whole(&weights, name).iter().all(|value| value.abs() <= 1e-29)), "{zeros:?}");
        others.into_iter().map(|name| (name.to_string(), bits(&whole(&weights, name)))).collect::<Vec<_>>()
    };
    let one = begun("one", &["parallelism.dp=1", "parallelism.tp=1", "parallelism.pp=1"]);
    assert!(one == begun("eight", &["parallelism.zero=2"]));
    assert!(one == begun("four", &["parallelism.dp=1", "parallelism.tp=2", "parallelism.pp=2"]));
    let weights = tensors(&folder.at("one"), "weights.safetensors");
    let a = whole(&weights, "layers.1.ffn.down.lora_a");
    let bound = 1.0 / 20f32.sqrt();
    assert!(a.iter().all(|value| value.abs() <= bound), "{a:?}");
    let mean_square = a.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>() / a.len() as f64;
    // Of 80 numbers the mean of squares is within 40 % of a third of the bound's square: four standard deviations.
    assert!((mean_square * 20.0 * 3.0 - 1.0).abs() < 0.4, "{mean_square}");
}

#[test]
fn a_run_with_adapters_resumes_with_its_bits() {
    let folder = Folder::new("lora-resume");
    let [from, text] = with_tokenizer("llama", &folder);
    let (whole_run, parts) = (folder.at("whole"), folder.at("parts"));
    let layout = ["parallelism.zero=2"];
    succeeds(&training(&from, &text, &sets(&whole_run, &[&[ALL][..], &FAST, &layout].concat())));
    let stops = ["run.save_every=3", "run.keep_newest=9"];
    succeeds(&training(&from, &text, &sets(&parts, &[&[ALL][..], &FAST, &layout, &stops].concat())));
    fs::remove_dir_all(Path::new(&parts).join("checkpoints/step-00000006")).expect("removed");
    // Another layout of the same class: stages change no bit.
    succeeds(&["train", "--quiet", "--resume", &parts]);
    let weights = |run: &str| fs::read(Path::new(run).join("weights.safetensors")).expect("weights");
    assert!(weights(&whole_run) == weights(&parts), "the bits of an uninterrupted run");
    let manifest = fs::read_to_string(Path::new(&parts).join("checkpoints/step-00000003/manifest.json")).expect("kept");
    assert!(manifest.contains("first_moment.layers.0.attention.query.lora_a"), "adapters have moments");
    assert!(!manifest.contains("first_moment.layers.0.attention.query.weight"), "frozen weights have none");
}

#[test]
fn layouts_keep_their_promise_with_adapters() {
    let folder = Folder::new("lora-layouts");
    let run = "[model]\nnum_layers = 2\nhidden = 16\nnum_heads = 2\ncontext = 8\nactivation = \"swiglu\"\n\
               lora = { rank = 3, alpha = 6.0, targets = [\"query\", \"value\", \"output\", \"gate\", \"down\"] }\n\
               [train]\nsteps = 8\nwarmup_steps = 1\nglobal_batch = 4\nepsilon = 1e-5\nlearning_rate = 1e-2\n\
               [data]\ntokenizer = \"bytes\"\n[parallelism]\n";
    let file = |name: &str, layout: &str| {
        let path = folder.0.join(format!("{name}.toml"));
        fs::write(&path, format!("{run}{layout}")).expect("a file");
        path.display().to_string()
    };
    let one = file("one", "dp = 1\ntp = 1\npp = 1\nzero = 0\nmicrobatch_size = 1\n");
    let proved = |name: &str, layout: &str| {
        let output = pleach(&["prove", &one, &file(name, layout), "--steps", "6"]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}{}", stdout(&output), stderr(&output));
        stdout(&output)
    };
    assert!(proved("stages", "dp = 1\ntp = 1\npp = 2\nzero = 0\nmicrobatch_size = 1\n").contains("same bits"));
    let recomputed =
        "dp = 1\ntp = 1\npp = 2\nzero = 0\nmicrobatch_size = 1\nrecompute = \"full\"\nschedule = \"zb-h1\"\n";
    assert!(proved("recomputed", recomputed).contains("same bits"));
    for (name, layout) in [
        ("replicas", "dp = 2\ntp = 1\npp = 1\nzero = 2\nmicrobatch_size = 1\n"),
        ("halves", "dp = 1\ntp = 2\npp = 1\nzero = 0\nmicrobatch_size = 2\n"),
        ("runs", "dp = 1\ntp = 2\npp = 1\nzero = 0\nmicrobatch_size = 1\nsequence_parallel = true\n"),
        ("shared", "dp = 1\ncp = 2\ntp = 1\npp = 1\nzero = 1\nmicrobatch_size = 1\n"),
        ("all", "dp = 2\ntp = 2\npp = 2\nzero = 1\nmicrobatch_size = 1\nsequence_parallel = true\noverlap = true\n"),
    ] {
        proved(name, layout);
    }
}

#[test]
fn the_parameters_that_adapters_train_are_counted() {
    let printed = prints(&["check", "--set", "model.lora={ rank = 2 }"]);
    // Two matrices of 128 x 128 in each of 6 layers.
    let line = "\nlora    6,144 parameters trained, 0.457 %: rank 2, alpha 2, query, value\n";
    assert!(printed.contains(line) && printed.starts_with("model   1,343,488 parameters: "), "{printed}");
}

#[test]
fn adapters_that_are_not_built_are_refused_by_key() {
    let said = |sets: &[&str]| {
        let mut arguments = vec!["check"];
        sets.iter().for_each(|set| arguments.extend(["--set", set]));
        let output = pleach(&arguments);
        assert_eq!(output.status.code(), Some(2), "{sets:?}");
        stderr(&output)
    };
    for (sets, expected) in [
        (
            &["model.lora={ rank = 0 }"][..],
            "model.lora has rank = 0, which must be a number of columns; use 1 to 16384",
        ),
        (&["model.lora={ rank = 2, alpha = 0 }"], "model.lora has alpha = 0.0, which must be positive; use 2.0"),
        (&["model.lora={ rank = 2, targets = [] }"], "model.lora has no targets; use targets = [\"query\", \"value\"]"),
        (&["model.lora={ rank = 2, targets = [\"gate\"] }"], "model.lora has the target \"gate\", which only gated"),
        (&["model.lora={ rank = 2, dropout = 0.1 }"], "model.lora has the unknown key `dropout`"),
        (&["model.lora={ rank = 2, targets = [\"head\"] }"], "is not adapters such as { rank = 8"),
        (
            &["model.lora={ rank = 2 }", "model.top_query=true"],
            "model.lora has no adapters for the layer of model.top_query",
        ),
        (
            &["model.lora={ rank = 2 }", "parallelism.zero=3"],
            "parallelism.zero = 3 shards parameters, which model.lora keeps whole; use 0, 1 or 2",
        ),
        (
            &["model.lora={ rank = 2 }", "train.sums=exact"],
            "train.sums = \"exact\" has no range for the gradients of model.lora",
        ),
        (
            &["model.lora={ rank = 2 }", "train.optimizer=muon"],
            "train.optimizer = \"muon\" has no updates for the matrices of model.lora; use \"adamw\"",
        ),
        (
            &["model.lora={ rank = 2 }", "train.groups=[{ parameters = [\"*.key.weight\"] }]"],
            "train.groups has \"*.key.weight\", which names no parameter of this model",
        ),
    ] {
        let said = said(sets);
        assert!(said.contains(expected), "{said}\nhas no {expected}");
    }
}
