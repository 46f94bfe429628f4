//! Folders of runs in which something else has the name of a run's file, and outputs and inputs with such names.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::checkpoints::seal;
use crate::hostile::fixtures::{Fixture, SMALL};
use crate::hostile::verdict::hold;

const RESUME: &str = "train --quiet --resume {}/run --set train.steps=4";

/// A command on a copy of a run, whose lock it may take.
fn on_run(name: impl Into<String>, arguments: &str) -> Case {
    case(name, arguments).with("run", Content::Copy(Fixture::Run)).writes("run/checkpoints/.lock")
}

fn train(more: &str) -> String {
    format!("train --quiet {SMALL} --set run.folder={{}}/run{more}")
}

#[test]
fn names_of_a_run_that_are_taken_are_refused_before_a_step() {
    let names = [
        "metrics.jsonl",
        "status.json",
        "timeline.json",
        "train.log",
        "run.toml",
        "resumes.jsonl",
        "weights.safetensors",
        "tokenizer.txt",
        "checkpoints/latest",
    ];
    let overwrite = train(" --overwrite");
    let mut cases = vec![];
    for (how, command) in [("resumes", RESUME), ("is replaced", overwrite.as_str())] {
        for name in names {
            let pipe = on_run(format!("a run {how}: {name} is a pipe"), command);
            let place = format!("run/{name}");
            let says = format!("{name} cannot be written: it is a pipe, and a file of that name is written here");
            cases.push(pipe.with(&place, Content::Pipe).refused(&says));
        }
        for name in ["resumes.jsonl", "memory", "failures"] {
            let is_folder = name == "resumes.jsonl";
            let content = if is_folder { Content::Folder } else { Content::Pipe };
            let taken = on_run(format!("a run {how}: {name} is something else"), command);
            cases.push(taken.with(&format!("run/{name}"), content).refused(&format!("{name} cannot be")));
        }
        let linked = on_run(format!("a run {how}: memory is a link"), command);
        let linked =
            linked.with("victim", Content::Folder).with("victim/step-00000009", Content::Copy(Fixture::Checkpoint));
        cases.push(linked.with("run/memory", Content::Link("../victim".into())).refused("memory cannot be written"));
    }
    for kind in ["report {}/run --out -", "eval --from {}/run", "export {}/run --out {}/o"] {
        let pipe = on_run(format!("{kind}: run.toml is a pipe"), kind);
        cases
            .push(pipe.with("run/run.toml", Content::Pipe).refused("is a pipe, and a run file must be a regular file"));
    }
    hold(cases);
}

#[test]
fn records_that_cannot_be_read_are_not_replaced() {
    let resume = |name: &str, content: Content| {
        on_run(format!("a run resumes: records that are {name}"), RESUME).with("run/metrics.jsonl", content)
    };
    hold(vec![
        resume("a device", Content::Link("/dev/zero".into())).refused("a file of records must be a regular file"),
        resume("a link to itself", Content::Link("metrics.jsonl".into())).refused("metrics.jsonl cannot be read"),
        resume("2 GiB", Content::Sparse(2 << 30)).refused("metrics.jsonl has 2 GiB, and a file of records must have"),
        resume("no text", Content::Bytes(vec![0xff; 1000])).writes("run").done(""),
    ]);
}

#[test]
fn traces_take_the_place_of_no_file_of_the_run() {
    let mut cases = vec![];
    let own = [
        "metrics.jsonl",
        "weights.safetensors",
        "run.toml",
        "status.json",
        "checkpoints/latest",
        "checkpoints/../train.log",
        "checkpoints/step-00000002/manifest.json",
        "checkpoints/step-00000002/rank-00000.safetensors",
    ];
    for name in own {
        for (how, command) in [("resumes", RESUME.to_string()), ("is replaced", train(" --overwrite"))] {
            let arguments = format!("{command} --trace {{}}/run/{name}");
            cases.push(on_run(format!("a run {how}: --trace over {name}"), &arguments).refused("own files in {}/run"));
        }
    }
    cases.push(
        case("a run begins: --trace over its records", &train(" --trace {}/run/metrics.jsonl")).refused("own files"),
    );
    cases.push(
        on_run("a run resumes: --trace by a link", &format!("{RESUME} --trace {{}}/it"))
            .with("it", Content::Link("run/weights.safetensors".into()))
            .refused("own files in {}/run"),
    );
    cases.push(
        on_run("a run resumes: --trace in its folder", &format!("{RESUME} --trace {{}}/run/it")).writes("run").done(""),
    );
    hold(cases);
}

#[test]
fn inputs_of_a_run_are_not_replaced_by_its_files() {
    let text = String::from_utf8(Fixture::Text.read()).expect("text");
    let fresh = |name: &str, more: &str| {
        let case = case(format!("a run begins: {name}"), &train(more));
        case.with("run", Content::Folder).writes("run/checkpoints")
    };
    let run_file = "# my comment\n[train]\nsteps = 2\n";
    let given = |name: &str, more: &str| {
        case(
            format!("a run begins: {name}"),
            &format!("train {{}}/run/run.toml --quiet {SMALL} --set run.folder={{}}/run{more}"),
        )
        .with("run", Content::Folder)
        .with("run/run.toml", run_file)
    };
    hold(vec![
        fresh("its text is train.log", " --data {}/run/train.log")
            .with("run/train.log", text.as_str())
            .refused("train.log is read by the run"),
        fresh("its text is a link to status.json", " --data {}/it.txt")
            .with("run/status.json", text.as_str())
            .with("it.txt", Content::Link("run/status.json".into()))
            .refused("it.txt is read by the run"),
        on_run("a run is replaced: its text is train.log", &train(" --overwrite --data {}/run/train.log"))
            .with("run/train.log", text.as_str())
            .refused("train.log is read by the run"),
        given("its run file is in its folder", "")
            .writes("run/checkpoints")
            .refused("must not be in the folder of a new run"),
        given("its run file is in its folder, and may be replaced", " --overwrite").writes("run").done(""),
    ]);
}

/// A run of a later version, or on a disk with faults.
#[test]
fn checkpoints_that_cannot_be_read_are_kept() {
    let kept = "run-19700101-000000";
    let with = |name: &str, checkpoint: Content| {
        case(format!("a run begins next to {name}"), &train(""))
            .with("run", Content::Folder)
            .with("run/metrics.jsonl", Content::Old("{}\n"))
            .with("run/checkpoints", Content::Folder)
            .with("run/checkpoints/step-00000002", checkpoint)
            .renames("run", kept)
            .writes(&format!("{kept}/checkpoints/.lock"))
            .done(&format!("{{}}/run is kept as {{}}/{kept}\n"))
    };
    let changed =
        |change: fn(Vec<u8>) -> Vec<u8>| Content::Changed(Fixture::Checkpoint, "manifest.json", Box::new(change));
    let later =
        |bytes: Vec<u8>| seal(String::from_utf8_lossy(&bytes).replace("\"format\":1", "\"format\":2").into_bytes());
    hold(vec![
        with("a checkpoint of a later format", changed(later)),
        with("a checkpoint whose manifest is damaged", changed(|_| vec![])),
        with("a folder with the name of a checkpoint", Content::Folder),
        on_run("import: a folder with checkpoints", "import {}/hf --out {}/run")
            .with("hf", Content::Copy(Fixture::HuggingFace))
            .refused("holds a run with checkpoints"),
        case("import: weights that are a link into the output", "import {}/hf --out {}/o")
            .with("hf", Content::Copy(Fixture::HuggingFace))
            .with("o", Content::Folder)
            .with(
                "o/weights.safetensors",
                std::fs::read(Fixture::HuggingFace.path().join("model.safetensors")).expect("a file"),
            )
            .with("hf/model.safetensors", Content::Link("../o/weights.safetensors".into()))
            .refused("which this command reads"),
    ]);
}
