//! A run of the example with experts.

use super::{Folder, PARAGRAPHS, compile_kernels};
use crate::harness::prints;

/// The keys that make the example a run of seconds on a GPU in software: a tokenizer that needs no training, few steps
/// of few tokens, and layers half as wide.
const SHORTER: [&str; 9] = [
    "data.tokenizer=bytes",
    "model.hidden=48",
    "model.context=16",
    "model.ffn_hidden=128",
    "model.expert_hidden=48",
    "train.steps=2",
    "train.warmup_steps=1",
    "train.global_batch=8",
    "train.sequence_length=16",
];

#[needs::cuda]
#[test]
fn experts_train_on_gpus_with_the_weights_and_the_memory_of_cpus() {
    compile_kernels();
    let folder = Folder::new("experts");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/experts.toml");
    let text = folder.0.join("text.txt");
    std::fs::write(&text, "A paragraph of some words.\n\n".repeat(PARAGRAPHS)).expect("a text");
    let text = format!("data.path={}", text.display());
    let shorter = SHORTER.iter().copied().chain([text.as_str()]);
    let shorter: Vec<[&str; 2]> = shorter.map(|setting| ["--set", setting]).collect();
    let run = |name: &str, device: &str| {
        let (folder, device) =
            (format!("run.folder={}", folder.0.join(name).display()), format!("run.device={device}"));
        let own = ["train", example, "--quiet", "--set", &folder, "--set", &device].map(String::from);
        own.into_iter().chain(shorter.as_flattened().iter().map(|part| part.to_string())).collect::<Vec<_>>()
    };
    let [on_cpus, on_gpus] = [run("cpu", "cpu"), run("cuda", "cuda")];
    prints(&on_cpus.iter().map(String::as_str).collect::<Vec<_>>());
    folder.prints(&on_gpus.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(folder.weights("cuda") == folder.weights("cpu"), "weights differ");
    let check = [&["check", example, "--json", "--set", "run.device=cuda"], shorter.as_flattened()].concat();
    let checked: serde_json::Value = serde_json::from_str(&folder.prints(&check)).expect("JSON");
    let (planned, allocated) = (&checked["memory"]["together_bytes"], &checked["gpus"][0]["arena_bytes"]);
    assert!(planned.as_u64() > Some(0) && planned == allocated, "{checked}");
}
