//! `pleach train --from`: runs that begin with weights of the library.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::hugging_face::{Folder, assert_same_tensors, fixtures, pleach, succeeds};

/// The fixture of `class` with a tokenizer, and a text that it can read.
pub fn with_tokenizer(class: &str, folder: &Folder) -> [String; 2] {
    let (from, text) = (folder.0.join(class), folder.0.join("text.txt"));
    fs::create_dir_all(&from).expect("a folder");
    for entry in fs::read_dir(fixtures().join(class)).expect("a folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, from.join(path.file_name().expect("a name"))).expect("copied");
    }
    let vocabulary: serde_json::Map<String, serde_json::Value> =
        (0..26u8).map(|letter| (char::from(b'a' + letter).to_string(), letter.into())).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, "post_processor": null,
        "decoder": null, "pre_tokenizer": { "type": "WhitespaceSplit" },
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "a" },
    });
    fs::write(from.join("tokenizer.json"), tokenizer.to_string()).expect("written");
    fs::write(from.join("tokenizer_config.json"), "{\"model_max_length\": 12}").expect("written");
    let letters: Vec<String> = (0..600u32).map(|n| char::from(b'a' + (n * n % 26) as u8).to_string()).collect();
    fs::write(&text, letters.join(" ")).expect("written");
    [from, text].map(|path| path.display().to_string())
}

/// The arguments of a run on eight ranks that begins with `from`.
pub fn training<'a>(from: &'a str, text: &'a str, sets: &'a [String]) -> Vec<&'a str> {
    let mut arguments = vec!["train", "--quiet", "--from", from, "--data", text];
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    arguments
}

pub fn sets(run: &str, others: &[&str]) -> Vec<String> {
    let keys = ["train.steps=2", "train.warmup_steps=0", "train.global_batch=4", "parallelism.microbatch_size=1"];
    let folder = format!("run.folder={run:?}");
    keys.iter().chain(others).map(ToString::to_string).chain([folder]).collect()
}

/// Steps of 1e-30 change no weight of 1e-3 and more by a bit, so what comes out is what every rank began with.
#[test]
fn a_run_begins_with_the_weights_of_a_folder_under_any_layout() {
    let folder = Folder::new("train-from");
    for (class, zero) in [("gpt_neox", 1), ("opt", 3), ("qwen2", 2)] {
        let [from, text] = with_tokenizer(class, &folder);
        let (run, out) = (folder.at(&format!("{class}-run")), folder.at(&format!("{class}-out")));
        let rates = ["train.learning_rate=1e-30", "train.min_learning_rate=1e-30", "train.weight_decay=0"];
        let zero = format!("parallelism.zero={zero}");
        let sets = sets(&run, &[&rates[..], &[&zero]].concat());
        succeeds(&training(&from, &text, &sets));
        succeeds(&["export", &run, "--out", &out]);
        assert_same_tensors(class, from.as_ref(), out.as_ref());
        for name in ["tokenizer.json", "tokenizer_config.json"] {
            let [before, after] =
                [&from, &out].map(|path| fs::read_to_string(Path::new(path).join(name)).expect("kept"));
            let [before, after]: [serde_json::Value; 2] =
                [before, after].map(|text| serde_json::from_str(&text).expect("JSON"));
            assert_eq!(before, after, "{class}: {name}");
        }
        let record = fs::read_to_string(Path::new(&run).join("resumes.jsonl")).expect("a record");
        assert!(record.contains(&format!("\"from\":{from:?}")), "{record}");
    }
}

#[test]
fn a_run_file_of_another_model_is_refused() {
    let folder = Folder::new("train-from-refused");
    let [from, text] = with_tokenizer("gpt_neox", &folder);
    let run = folder.at("run");
    let said = |others: &[&str]| {
        let sets = sets(&run, others);
        let output = pleach(&training(&from, &text, &sets));
        assert_eq!(output.status.code(), Some(2), "{others:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    assert_eq!(
        said(&["model.num_heads=4", "model.biases=true", "model.rotary_base=10000", "model.dropout=0.1"]),
        format!(
            "--set model.num_heads=4: model.num_heads = 4 is not the model of {from}, whose model.num_heads is 2; leave it out\n"
        )
    );
    assert_eq!(
        said(&["model.position=learned"]),
        format!(
            "--set model.position=learned: model.position = \"learned\" is not the model of {from}, whose model.position is \"rotary\"; \
             leave it out\n"
        )
    );
    let inside = sets(&from, &[]);
    let output = pleach(&training(&from, &text, &inside));
    assert_eq!(output.status.code(), Some(2));
    let inside = String::from_utf8(output.stderr).expect("text");
    assert_eq!(
        inside,
        format!(
            "--from {from} is in the folder of the run, which starts again; use another folder: --set run.folder=...\n"
        )
    );
    assert!(!Path::new(&from).join("checkpoints").exists() && !Path::new(&run).exists(), "nothing is made");
}
