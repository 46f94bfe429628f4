//! Pictures of `simulate --svg` in Chromium: no wider than a window of 1,280 pixels, with texts that are apart and
//! inside.
//!
//! `PLEACH_CHROMIUM` is the name of the program, otherwise `chromium`.

#[path = "../../../training/report/src/tests/chromium/browser.rs"]
#[allow(dead_code, reason = "the tests of pages use all of it")]
mod browser;

use crate::harness::several::Folder;
use crate::harness::{pleach, stderr};
use browser::{Browser, Theme, Window};

const GEOMETRY: &str = include_str!("../../../training/report/src/tests/chromium/geometry.js");

fn picture(folder: &Folder, arguments: &[&str]) -> String {
    let file = folder.path("step.svg");
    let output = pleach(&[&["simulate"], arguments, &["--svg", &file]].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    std::fs::read_to_string(file).expect("a picture")
}

#[needs::chromium]
#[test]
fn a_picture_fits_a_window_and_its_texts_are_apart() {
    let browser = Browser::find();
    let folder = Folder::new("pictures");
    let long = folder.path(&format!("{}.toml", "a-name-of-a-run-file-that-is-long-".repeat(6)));
    std::fs::write(&long, "[model]\nnum_layers = 2\n").expect("a run file");
    let dgx = "--cluster=a100-80g-dgx";
    for (name, arguments) in [
        ("128 microbatches on 12 stages", vec!["preset:bloom-176b", "--software=deepspeed-bf16-2022"]),
        (
            "128 microbatches without a pipeline",
            vec![dgx, "--set", "parallelism.pp=1", "--set", "train.global_batch=512"],
        ),
        ("a microbatch without a pipeline, and too little memory", vec!["preset:opt-175b", "--cluster=a100-40g-dgx"]),
        ("few microbatches", vec![dgx]),
        ("a long name", vec![&long, dgx]),
    ] {
        let svg = picture(&folder, &arguments);
        let html =
            format!("<!doctype html><html><body style='margin:0'>{svg}<script>{GEOMETRY}</script></body></html>");
        let window = Window { width: 1280, height: 2000 };
        let found = browser.attribute(&html, window, Theme::Light, "data-problems");
        assert_eq!(found, "[]", "{name}");
        assert!(svg.contains(">memory of one rank of each stage: "), "{name}");
        assert!(!svg.contains(">0.0 %") && !svg.contains(", 0.0 %<"), "{name}");
    }
}

#[needs::chromium]
#[test]
fn a_picture_of_experts_fits_a_window_and_its_texts_are_apart() {
    let browser = Browser::find();
    let folder = Folder::new("pictures-of-experts");
    let experts = |number: &str| format!("model.experts={number}");
    for (number, ranks) in [("8", "parallelism.tp=2"), ("128", "parallelism.tp=4"), ("4096", "parallelism.tp=4")] {
        let file = folder.path("experts.svg");
        let set = experts(number);
        let sets = [&set, "model.biases=false", "model.expert_hidden=4", ranks, "parallelism.dp=2"];
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let output = pleach(&["explain"].into_iter().chain(sets).chain(["--svg", &file]).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let svg = std::fs::read_to_string(&file).expect("a picture");
        let html =
            format!("<!doctype html><html><body style='margin:0'>{svg}<script>{GEOMETRY}</script></body></html>");
        let window = Window { width: 1280, height: 2000 };
        assert_eq!(browser.attribute(&html, window, Theme::Light, "data-problems"), "[]", "{number} experts");
    }
}

#[test]
fn titles_name_the_run() {
    let folder = Folder::new("titles");
    let svg = picture(&folder, &["preset:bloom-176b", "--software=deepspeed-bf16-2022"]);
    assert!(svg.contains(">bloom-176b: dp 8 x tp 4 x pp 12</text>"), "{}", &svg[..2000]);
    for part in [">step ", " tokens/s, MFU ", " %, bubble "] {
        assert!(svg[..2000].contains(part), "{part}");
    }
    // The numbers of the first and the last microbatches, and a tip for every block of them.
    assert!(svg.contains(">127</text>") && svg.contains(">0</text>"));
    assert!(svg.contains("<title>pp 11: backward of microbatch 127, "));
}
