//! `pleach train --resume`, as a child process: messages, exit codes, and that nothing is lost.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A run of a moment on four ranks, with dropout and shards.
const TINY: &[&str] = &[
    "model.num_layers=2",
    "model.hidden=16",
    "model.num_heads=2",
    "model.context=16",
    "model.dropout=0.1",
    "data.tokenizer=bytes",
    "data.held_out=0.001",
    "parallelism.dp=2",
    "parallelism.tp=1",
    "parallelism.pp=2",
    "parallelism.microbatch_size=1",
    "train.global_batch=4",
    "train.steps=6",
    "run.save_every=2",
];

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pleach-resume-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn run(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pleach(arguments: &[&str], settings: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(arguments).args(settings.iter().flat_map(|setting| ["--set", setting]));
    command
}

fn train(folder: &Path, more: &[&str]) -> Command {
    let folder = format!("run.folder={}", folder.display());
    let settings: Vec<&str> = TINY.iter().chain(more).copied().chain([folder.as_str()]).collect();
    pleach(&["train", "--quiet"], &settings)
}

fn resume(folder: &Path, more: &[&str]) -> Command {
    pleach(&["train", "--quiet", "--resume", &folder.display().to_string()], more)
}

/// Exit code and what was said.
fn output(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().expect("the command starts");
    (status.code(), String::from_utf8(stderr).expect("text"))
}

fn succeeds(command: &mut Command) -> String {
    let (code, reported) = output(command);
    assert_eq!(code, Some(0), "{reported}");
    reported
}

/// The values with the same bits: the weights, and each step with its loss and norm.
fn learned(folder: &Path) -> (Vec<u8>, Vec<String>) {
    let metrics = fs::read_to_string(folder.join("metrics.jsonl")).expect("metrics");
    let step = |line: &str| line.split(",\"tokens\"").next().unwrap_or_default().to_string();
    let steps = metrics.lines().filter(|line| !line.contains("held_out")).map(step).collect();
    (fs::read(folder.join("weights.safetensors")).expect("weights"), steps)
}

/// The run as it was after the step of its checkpoint `name`: later ones are not there.
fn killed_after(done: &Path, name: &str, copy: &Path) {
    fs::create_dir_all(copy.join("checkpoints")).expect("a folder");
    for file in ["run.toml", "metrics.jsonl", "tokenizer.txt"] {
        fs::copy(done.join(file), copy.join(file)).expect("copied");
    }
    let checkpoint = copy.join("checkpoints").join(name);
    fs::create_dir(&checkpoint).expect("a folder");
    for entry in fs::read_dir(done.join("checkpoints").join(name)).expect("a checkpoint") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, checkpoint.join(path.file_name().expect("a name"))).expect("copied");
    }
}

#[test]
fn a_run_goes_on_with_the_same_bits() {
    let folder = Folder::new("bits");
    let whole = folder.run("whole");
    succeeds(&mut train(&whole, &[]));
    let others: [(&str, &[&str]); 4] = [
        ("same", &[]),
        ("pp", &["parallelism.pp=1", "parallelism.schedule=gpipe"]),
        ("zero", &["parallelism.zero=3", "parallelism.schedule=zb-v"]),
        ("off", &["parallelism.zero=0"]),
    ];
    for (name, more) in others {
        let copy = folder.run(name);
        killed_after(&whole, "step-00000004", &copy);
        let reported = succeeds(&mut resume(&copy, more));
        assert_eq!(reported, format!("resuming after step 4 from {0}/checkpoints/step-00000004\n", copy.display()));
        assert!(learned(&copy) == learned(&whole), "{name}");
        let resumes = fs::read_to_string(copy.join("resumes.jsonl")).expect("a record");
        assert!(resumes.starts_with("{\"after_step\":4,\"build\":"), "{resumes}");
        assert_eq!(resumes.contains("\"changed\":{}"), more.is_empty(), "{resumes}");
    }
    // More steps than there were.
    succeeds(&mut resume(&whole, &["train.steps=8", "train.learning_rate=0.003"]));
    let resumes = fs::read_to_string(whole.join("resumes.jsonl")).expect("a record");
    let changed = "\"changed\":{\"train.learning_rate\":[0.001,0.003],\"train.steps\":[6,8]}";
    assert!(resumes.contains(changed), "{resumes}");
    assert_eq!(learned(&whole).1.len(), 8);
    assert!(fs::read_to_string(whole.join("run.toml")).expect("a file").contains("learning_rate = 0.003\n"));
}

/// Experts on two of three layers, with one for all tokens.
const EXPERTS: [&str; 7] = [
    "model.experts=4",
    "model.expert_hidden=16",
    "model.shared_expert_hidden=8",
    "model.first_expert_layer=1",
    "model.num_layers=3",
    "model.biases=false",
    "train.steps=200",
];

/// A run with experts that SIGKILL ends is resumed on other stages and shards, to the same bits, and its weights have
/// one loss in every layout that promises one.
#[test]
fn a_killed_run_with_experts_resumes_with_the_same_bits() {
    let folder = Folder::new("experts");
    let (whole, killed) = (folder.run("whole"), folder.run("killed"));
    succeeds(&mut train(&whole, &EXPERTS));
    let mut child = train(&killed, &EXPERTS).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pleach");
    while !killed.join("checkpoints/step-00000002").exists() {
        assert_eq!(child.try_wait().expect("a child"), None, "it ended before it was killed");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("killed");
    assert_eq!(child.wait().expect("a child").code(), None, "SIGKILL has no exit code");
    let reported = succeeds(&mut resume(&killed, &["parallelism.pp=1", "parallelism.zero=3"]));
    // The line before says that an earlier attempt failed.
    assert!(reported.contains("\nresuming after step "), "{reported}");
    assert!(learned(&killed) == learned(&whole));
    let loss = |sets: &[&str]| {
        let output = pleach(&["eval", "--from", &killed.display().to_string()], sets).output().expect("pleach");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(loss(&["parallelism.pp=3", "parallelism.dp=1", "parallelism.zero=0"]), loss(&[]));
}

/// R14: the signals of schedulers end the run in time, and the run resumes with the same bits.
#[test]
fn signals_commit_a_checkpoint() {
    let folder = Folder::new("signals");
    for (name, code) in [("INT", 130), ("TERM", 143), ("USR1", 138)] {
        let run = folder.run(name);
        let mut command = train(&run, &["train.steps=100000", "run.save_every=0"]);
        // Lines of steps tell that the run has begun.
        let arguments: Vec<_> = command.get_args().filter(|argument| *argument != "--quiet").map(Into::into).collect();
        let arguments: Vec<std::ffi::OsString> = arguments;
        command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let mut lines = BufReader::new(child.stdout.take().expect("output")).lines();
        // The header has a line `step`, too, without a loss.
        let is_step = |line: &std::io::Result<String>| {
            line.as_ref().is_ok_and(|line| line.starts_with("step ") && line.contains("/100000  loss "))
        };
        lines.find(is_step).expect("a step").expect("text");
        let kill = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
        assert!(kill.expect("kill").success());
        let done = 1 + lines.filter(is_step).count();
        let mut reported = String::new();
        child.stderr.take().expect("messages").read_to_string(&mut reported).expect("text");
        assert_eq!(child.wait().expect("an end").code(), Some(code), "{reported}");
        assert!(reported.contains(&format!("after step {done} of 100000; `pleach train --resume ")), "{reported}");
        // Three steps more, and the same at once. The learning rate is that of a run with that number of steps.
        let steps = format!("train.steps={}", done + 3);
        let constant = ["train.schedule=constant", "train.warmup_steps=0", steps.as_str()];
        succeeds(&mut resume(&run, &constant));
        assert_eq!(learned(&run).1.len(), done + 3, "{name}");
    }
}

#[test]
fn a_run_that_was_stopped_is_the_run_that_was_not() {
    let folder = Folder::new("stopped");
    let (whole, stopped) = (folder.run("whole"), folder.run("stopped"));
    let steps = ["train.steps=400", "run.save_every=0"];
    succeeds(&mut train(&whole, &steps));
    let mut child = train(&stopped, &steps).stderr(Stdio::null()).spawn().expect("the command starts");
    let metrics = stopped.join("metrics.jsonl");
    while fs::read_to_string(&metrics).unwrap_or_default().lines().count() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    // On a machine that is fast enough it may be done before.
    if child.wait().expect("an end").code() == Some(143) {
        succeeds(&mut resume(&stopped, &[]));
    }
    assert!(learned(&stopped) == learned(&whole));
}

#[test]
fn grace_has_an_end() {
    let folder = Folder::new("grace");
    // A step of this takes longer than the grace.
    let slow = ["model.hidden=512", "train.global_batch=512", "run.grace_seconds=0.1"];
    let mut child = train(&folder.run("slow"), &slow).stderr(Stdio::piped()).spawn().expect("the command starts");
    let metrics = folder.run("slow").join("metrics.jsonl");
    while !metrics.exists() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    // It listens soon after; a signal before that is as good, for then nothing has begun.
    std::thread::sleep(std::time::Duration::from_millis(300));
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    let mut reported = String::new();
    child.stderr.take().expect("messages").read_to_string(&mut reported).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(143), "{reported}");
    let message = "SIGTERM: the run has not ended within run.grace_seconds = 0.1; ";
    assert!(reported.contains(message), "{reported}");
    let log = fs::read_to_string(folder.run("slow").join("train.log")).expect("a log");
    assert!(log.lines().any(|line| line.starts_with(message)), "{log}");
    let told = pleach(&["blame", &folder.run("slow").display().to_string()], &[]).output().expect("an output");
    let told = String::from_utf8(told.stdout).expect("text");
    assert!(told.contains("\nThe run did not end in time after a signal.\n"), "{told}");
    assert!(told.contains("Set run.grace_seconds to more than"), "{told}");
}

#[test]
fn a_damaged_checkpoint_is_named_set_aside_and_passed_over() {
    let folder = Folder::new("damage");
    let (whole, hurt) = (folder.run("whole"), folder.run("hurt"));
    succeeds(&mut train(&whole, &["run.keep_newest=9"]));
    for name in ["step-00000002", "step-00000004", "step-00000006"] {
        let copy = folder.run("copy");
        killed_after(&whole, name, &copy);
        fs::create_dir_all(hurt.join("checkpoints")).expect("a folder");
        fs::rename(copy.join("checkpoints").join(name), hurt.join("checkpoints").join(name)).expect("moved");
        for file in ["run.toml", "metrics.jsonl", "tokenizer.txt"] {
            fs::rename(copy.join(file), hurt.join(file)).expect("moved");
        }
        fs::remove_dir_all(&copy).expect("removed");
    }
    // One that was copied under a later name, one bit of the newest one's data, and a manifest that is cut.
    let (second, ninth) = ("checkpoints/step-00000002", "checkpoints/step-00000009");
    fs::create_dir(hurt.join(ninth)).expect("a folder");
    for file in fs::read_dir(hurt.join(second)).expect("a folder").map(|file| file.expect("a file").path()) {
        fs::copy(&file, hurt.join(ninth).join(file.file_name().expect("a name"))).expect("copied");
    }
    let file = hurt.join("checkpoints/step-00000006/rank-00000.safetensors");
    let mut bytes = fs::read(&file).expect("a file");
    let last = bytes.len() - 1;
    bytes[last] ^= 16;
    fs::write(&file, bytes).expect("written");
    let manifest = hurt.join("checkpoints/step-00000004/manifest.json");
    let text = fs::read(&manifest).expect("a file");
    fs::write(&manifest, &text[..text.len() / 2]).expect("written");

    let reported = succeeds(&mut resume(&hurt, &[])).replace(&hurt.display().to_string(), "RUN");
    let named = "step-00000009/manifest.json is not a manifest of a checkpoint: it is of step 2, and its folder has the name of step 9";
    assert!(reported.contains(named), "{reported}");
    assert!(reported.contains("RUN/checkpoints/step-00000006/rank-00000.safetensors: bytes "), "{reported}");
    assert!(reported.contains(", of tensor second_moment."), "{reported}");
    assert!(
        reported.contains("step-00000004/manifest.json is not a manifest of a checkpoint: its hash is "),
        "{reported}"
    );
    let aside = "RUN/checkpoints/step-00000006 is damaged; renamed to RUN/checkpoints/damaged-step-00000006\n";
    assert!(reported.contains(aside), "{reported}");
    assert!(reported.ends_with("resuming after step 2 from RUN/checkpoints/step-00000002\n"), "{reported}");
    assert!(learned(&hurt) == learned(&whole));

    let (code, reported) = output(&mut pleach(&["inspect", "--verify", &aside_of(&hurt)], &[]));
    assert_eq!(code, Some(1), "{reported}");
    assert!(reported.contains("are not those that were written (XXH3 ") && reported.lines().count() == 1, "{reported}");
}

/// A copy of a checkpoint that was cut off, which is in the way of the checkpoint after as many steps.
#[test]
fn a_checkpoint_without_a_manifest_is_named_set_aside_and_skipped() {
    let folder = Folder::new("cut-off");
    let run = folder.run("run");
    succeeds(&mut train(&run, &["run.keep_newest=9"]));
    let (whole, newest) = (learned(&run), run.join("checkpoints/step-00000006"));
    fs::remove_file(newest.join("manifest.json")).expect("removed");
    fs::remove_file(run.join("weights.safetensors")).expect("removed");
    let line = "RUN/checkpoints/step-00000006 has no manifest.json: its save or its copy has not ended; ";
    let told = |arguments: &[&str]| {
        let path = run.display().to_string();
        let words: Vec<&str> = arguments.iter().map(|word| if *word == "RUN" { path.as_str() } else { word }).collect();
        output(&mut pleach(&words, &[])).1.replace(&path, "RUN")
    };
    let page = folder.run("page.html").display().to_string();
    for arguments in [&["blame", "RUN"][..], &["report", "RUN", "--out", &page], &["inspect", "RUN"]] {
        assert!(told(arguments).starts_with(&format!("{line}it is skipped\n")), "{arguments:?}: {}", told(arguments));
    }
    let own = told(&["inspect", &newest.display().to_string()]);
    assert_eq!(own, format!("{line}name the folder of the run to use its newest checkpoint\n"));
    let reported = succeeds(&mut resume(&run, &[])).replace(&run.display().to_string(), "RUN");
    assert_eq!(
        reported,
        format!(
            "{line}it is skipped\nRUN/checkpoints/step-00000006 is damaged; renamed to \
             RUN/checkpoints/damaged-step-00000006\nresuming after step 4 from RUN/checkpoints/step-00000004\n"
        )
    );
    assert!(learned(&run) == whole && newest.join("manifest.json").is_file());
}

fn aside_of(run: &Path) -> String {
    run.join("checkpoints/damaged-step-00000006").display().to_string()
}

#[test]
fn a_finished_run_is_kept_until_it_is_overwritten() {
    let folder = Folder::new("kept");
    let run = folder.run("run");
    succeeds(&mut train(&run, &[]));
    let first = learned(&run);
    let message = succeeds(&mut train(&run, &["train.learning_rate=0.003"]));
    let kept = message.trim_end().strip_prefix(&format!("{} is kept as ", run.display())).expect("a name");
    assert!(learned(Path::new(kept)) == first && learned(&run) != first);
    let resumed = succeeds(&mut resume(Path::new(kept), &["train.steps=7"]));
    assert_eq!(resumed, format!("resuming after step 6 from {kept}/checkpoints/step-00000006\n"));
    assert_eq!(succeeds(train(&run, &[]).arg("--overwrite")), "");
    assert!(learned(&run) == first);
    assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 2);
}

#[test]
fn what_cannot_be_resumed_is_said() {
    let folder = Folder::new("refused");
    let run = folder.run("run");
    let refused = |command: &mut Command| {
        let (code, reported) = output(command);
        assert_eq!(code, Some(2), "{reported}");
        reported.replace(&run.display().to_string(), "RUN")
    };
    let none = refused(&mut resume(&run, &[]));
    assert!(none.starts_with("there is no checkpoint in RUN/checkpoints; "), "{none}");
    succeeds(&mut train(&run, &[]));
    fs::remove_dir_all(run.join("checkpoints/step-00000006")).expect("removed");
    let unfinished = refused(&mut train(&run, &[]));
    let expected = "RUN holds an unfinished run (step 4 of 6); resume with `pleach train --resume RUN`, ";
    assert!(unfinished.starts_with(expected), "{unfinished}");
    let fewer = refused(&mut resume(&run, &["train.steps=3"]));
    assert_eq!(fewer, "train.steps = 3 must be at least the 4 steps that are done; use 4 or more\n");
    let elsewhere = refused(&mut resume(&run, &["run.folder=other"]));
    assert!(elsewhere.starts_with("--set run.folder=other: with --resume a run stays in its folder; "), "{elsewhere}");
    for part in ["run.toml", "checkpoints", "checkpoints/step-00000004"] {
        let within = refused(&mut resume(&run.join(part), &[]));
        assert_eq!(
            within,
            format!(
                "RUN/{part} is a part of the run in RUN; --resume RUN resumes it, from its newest valid checkpoint\n"
            )
        );
    }
    // Neither other sizes nor layers that would remain; the folder stays as it is.
    let others = [
        ("model.hidden=32", "tensor embedding.token.weight is [256, 16] in the source and [256, 32] in the model; "),
        ("model.num_layers=1", "the source has a tensor first_moment.layers.1."),
        ("model.num_layers=3", "the source has no tensor layers.2."),
    ];
    for (set, expected) in others {
        let one = ["parallelism.pp=1", "parallelism.dp=1", set];
        let other = refused(&mut resume(&run, &one));
        assert!(other.starts_with(&format!("RUN/checkpoints/step-00000004: {expected}")), "{other}");
        assert!(other.ends_with("; or begin a new run of the other model\n"), "{other}");
        assert!(!run.join("resumes.jsonl").exists());
    }
    let other = refused(&mut resume(&run, &["model.activation=relu"]));
    let as_before =
        "model.activation = \"relu\" must be \"gelu_tanh\", as in RUN/checkpoints/step-00000004; leave it out, ";
    assert!(other.starts_with(as_before) && other.lines().count() == 1, "{other}");
    let illegal = refused(&mut resume(&run, &["train.global_batch=3"]));
    assert!(illegal.starts_with("--set train.global_batch=3: train.global_batch = 3 "), "{illegal}");
    let lock = fs::File::open(run.join("checkpoints/.lock")).expect("a file");
    lock.lock().expect("it is free");
    let locked = refused(&mut resume(&run, &[]));
    assert!(locked.starts_with("another run writes RUN/checkpoints (process "), "{locked}");
    assert!(
        locked
            .ends_with("; wait for its end, or end that process; copy the folder of the run, and resume the copy, to continue elsewhere\n"),
        "{locked}"
    );
    lock.unlock().expect("it was taken");
    succeeds(&mut resume(&run, &[]));
    let (learned_before, reported) = (learned(&run), succeeds(&mut resume(&run, &[])));
    let done = "/checkpoints/step-00000006; --set train.steps=... with more of them resumes\n";
    assert!(reported.starts_with("all 6 steps are done in ") && reported.ends_with(done), "{reported}");
    let (code, reported) = output(&mut resume(&run, &["train.learning_rate=0.002"]));
    let complete = format!("the run in {} is complete at step 6 of train.steps = 6", run.display());
    let remedy = "to continue, use --set train.steps=7 or more\n";
    let unused = "so no step is left to train with train.learning_rate=0.002";
    assert_eq!((code, reported), (Some(2), format!("{complete}, {unused}; {remedy}")));
    let again = output(&mut resume(&run, &["train.steps=6"]));
    assert_eq!(again, (Some(2), format!("{complete}; {remedy}")));
    assert!(learned(&run) == learned_before);
    // It is done now, so another run may take its place.
    succeeds(&mut train(&run, &["train.steps=2"]));
    assert!(!run.join("resumes.jsonl").exists() && !run.join("checkpoints/step-00000006").exists());
}

#[test]
fn text_that_was_changed_on_the_disk_is_noticed() {
    let folder = Folder::new("text");
    let (run, file) = (folder.run("run"), folder.run("text.txt"));
    let text = "a line of text, and then some more of it\n".repeat(40);
    fs::write(&file, &text).expect("written");
    let data = format!("data.path={}", file.display());
    succeeds(&mut train(&run, &[&data]));
    let whole = learned(&run);
    let cut_off = || fs::remove_dir_all(run.join("checkpoints/step-00000006")).expect("removed");
    cut_off();
    // Of the same length.
    fs::write(&file, text.replace("more", "less")).expect("written");
    let (code, reported) = output(&mut resume(&run, &[]));
    assert_eq!(code, Some(2), "{reported}");
    let reported = reported.replace(&run.display().to_string(), "RUN");
    let expected = "the text of [data] differs from that of RUN/checkpoints/step-00000004 (XXH3 ";
    assert!(reported.starts_with(expected) && reported.ends_with(" such as --set data.held_out=0.001\n"), "{reported}");
    assert!(!run.join("resumes.jsonl").exists());
    // The same text is the same run, whenever it was written.
    fs::write(&file, &text).expect("written");
    succeeds(&mut resume(&run, &[]));
    assert!(learned(&run) == whole);
    cut_off();
    fs::write(&file, text.replace("more", "less")).expect("written");
    succeeds(&mut resume(&run, &["data.held_out=0.001"]));
    assert!(learned(&run) != whole);
    let resumes = fs::read_to_string(run.join("resumes.jsonl")).expect("a record");
    let last: serde_json::Value = serde_json::from_str(resumes.lines().last().expect("a line")).expect("JSON");
    let [before, after] = [0, 1].map(|index| last["changed"]["data.xxh3"][index].as_str().map(str::len));
    assert_eq!((before, after), (Some(16), Some(16)), "{last}");
}

/// R6 with the limit of a process for a file system's: the weights have room, the checkpoints have none.
#[test]
fn a_run_goes_on_where_checkpoints_have_no_room() {
    let folder = Folder::new("room");
    let run = folder.run("run");
    let one = ["parallelism.dp=1", "parallelism.pp=1"];
    let train = train(&run, &one);
    let weights_bytes = {
        let roomy = folder.run("roomy");
        succeeds(&mut self::train(&roomy, &one));
        fs::metadata(roomy.join("weights.safetensors")).expect("weights").len()
    };
    // The limit counts kibibytes in bash.
    let limit = weights_bytes.div_ceil(1024) + 8;
    let script = format!("ulimit -f {limit}; exec \"$0\" \"$@\"");
    let mut limited = Command::new("bash");
    limited.args(["-c", &script]).arg(train.get_program()).args(train.get_args());
    let (code, reported) = output(&mut limited);
    assert_eq!(code, Some(1), "{reported}");
    for steps in [2, 4, 6] {
        assert!(reported.contains(&format!("not saved after step {steps}: ")), "{reported}");
    }
    assert!(reported.contains("File too large (os error 27); earlier checkpoints are as they were"), "{reported}");
    assert!(reported.contains("the last checkpoint is missing: "), "{reported}");
    assert!(reported.contains("; the run did all of its 6 steps, and its weights are in "), "{reported}");
    assert_eq!(fs::metadata(run.join("weights.safetensors")).expect("weights").len(), weights_bytes);
    let names: Vec<_> =
        fs::read_dir(run.join("checkpoints")).expect("a folder").map(|name| name.unwrap().file_name()).collect();
    assert_eq!(names, [".lock"], "nothing is left of them");
}

#[test]
fn a_checkpoint_is_shown_compared_and_read() {
    let folder = Folder::new("inspect");
    let run = folder.run("run");
    succeeds(&mut train(&run, &[]));
    let print = |arguments: &[&str]| {
        let Output { status, stdout, stderr } = pleach(arguments, &[]).output().expect("the command starts");
        assert_eq!(status.code(), Some(0), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).expect("text").replace(&run.display().to_string(), "RUN")
    };
    let path = |name: &str| run.join("checkpoints").join(name).display().to_string();
    let screen = print(&["inspect", &run.display().to_string()]);
    assert!(screen.lines().count() <= 24 && screen.contains("first_moment") && !screen.contains("[0:64"), "{screen}");
    let shown = print(&["inspect", &run.display().to_string(), "--all"]);
    let head = "RUN/checkpoints/step-00000006\nstate   after step 6, 24 sequences, 0 steps skipped, held-out loss ";
    assert!(shown.starts_with(head), "{shown}");
    assert!(
        shown.contains("\nfirst_moment.layers.1.ffn.up.weight  F32 [64, 16]\n  [0:64, 0:16]  4,096 bytes at "),
        "{shown}"
    );
    assert!(shown.contains("\n[parallelism]\ndp = 2\n"), "{shown}");
    let sound = print(&["inspect", "--verify", &path("step-00000004")]);
    assert!(sound.starts_with("RUN/checkpoints/step-00000004 is sound: all "), "{sound}");
    let same = print(&["inspect", &run.display().to_string(), "--diff", &path("step-00000006")]);
    assert_eq!(same, "108 tensors with the same bits\n");
    let differing = print(&["inspect", &path("step-00000004"), "--diff", &path("step-00000006")]);
    assert!(differing.starts_with("after step 4 and after step 6\nembedding.position.weight  "), "{differing}");
    // A run that starts from its weights has its model.
    let checked = print(&["check", "--from", &path("step-00000006"), "--set", "train.steps=9"]);
    assert!(
        checked.contains(" 2 layers, hidden 16, 2 heads\n") && checked.contains("\nrun     9 steps on "),
        "{checked}"
    );
    let (code, refusal) = output(&mut pleach(&["check", "--from", &path("step-00000006")], &["model.hidden=32"]));
    assert!(code == Some(2) && refusal.starts_with("--set model.hidden=32: "), "{refusal}");
    // The last one has the weights that the run ended with.
    let generated = |from: &str| print(&["generate", "--from", from, "--prompt", "a", "--max-tokens", "9"]);
    assert_eq!(generated(&path("step-00000006")), generated(&run.display().to_string()));
    assert_ne!(generated(&path("step-00000004")), generated(&path("step-00000006")));
}
