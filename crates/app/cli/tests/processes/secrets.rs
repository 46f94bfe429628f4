//! Secrets that a run is given: the command of `run.notify`, keys of a store, the token of its processes, the secret of
//! its user. Nothing that people or programs read has one of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::several::{Folder, processes_of, with_keys};
use crate::harness::{stderr, stdout};

/// Each is in one place only.
const HOOK: &str = "hook-of-the-test-7c1f";
const KEY: &str = "key-of-the-test-93ab";
const TOKEN: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";
const SECRET: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";
const PASSWORD: &str = "word-of-the-test-51de";

fn notify() -> String {
    format!("run.notify=true https://example.org/{HOOK}")
}

/// The command with all secrets in its environment, and its exit code and output.
fn pleach(words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(words).env("PLEACH_TOKEN", TOKEN).env("AWS_SECRET_ACCESS_KEY", KEY).env("AWS_ACCESS_KEY_ID", KEY);
    command.env("AWS_SESSION_TOKEN", KEY).env("PLEACH_SECRET", SECRET);
    let output: Output = command.output().expect("the command starts");
    (output.status.code(), stdout(&output) + &stderr(&output))
}

fn has_no_secret(what: &str, text: &str) {
    for secret in [HOOK, KEY, TOKEN, SECRET, PASSWORD] {
        assert!(!text.contains(secret), "{what} has {secret}: {text}");
    }
}

/// That no file below `folder` has a secret. Run files and manifests, from which a run resumes, have its command.
fn files_have_no_secret(folder: &Path) {
    for file in files_below(folder) {
        let text = String::from_utf8_lossy(&fs::read(&file).expect("a file")).into_owned();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let keeps_command = ["run.toml", "manifest.json"].contains(&&*name);
        has_no_secret(&file.display().to_string(), &if keeps_command { text.replace(HOOK, "") } else { text });
    }
}

/// The output of a command that ends with `code`, which has no secret.
fn said(code: i32, words: &[&str]) -> String {
    let (ended, text) = pleach(words);
    assert_eq!(ended, Some(code), "{words:?}: {text}");
    has_no_secret(&words.join(" "), &text);
    text
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let files = entries.flat_map(|entry| match entry.file_type().expect("a kind").is_dir() {
        true => files_below(&entry.path()),
        false => vec![entry.path()],
    });
    files.collect()
}

#[test]
fn no_output_and_no_record_of_a_run_has_a_secret() {
    let folder = Folder::new("secrets");
    let (run, notify) = (folder.run("run"), notify());
    said(0, &with_keys(&["train"], &[&run, &notify]));
    let place = folder.path("run");
    let resumed = ["train", "--resume", &place, "--set", "train.steps=6", "--set"];
    let (of_hook, environment) = (Folder::new("secrets-of-hook"), "environment");
    said(0, &[&resumed[..], &[&format!("run.notify=env > {}; true {HOOK}", of_hook.path(environment))]].concat());
    let environment = fs::read_to_string(of_hook.path(environment)).expect("the command was called");
    assert!(environment.contains("\nPLEACH_EVENT=") && !environment.contains(TOKEN) && !environment.contains(SECRET));
    let resumes = fs::read_to_string(folder.0.join("run/resumes.jsonl")).expect("a file");
    assert!(resumes.contains("\"run.notify\":[\"***\",\"***\"]"), "{resumes}");
    let complete = said(2, &["train", "--resume", &place, "--set", &notify]);
    assert!(complete.contains("no step is left to train with run.notify=***"), "{complete}");

    let trace = folder.path("trace.json");
    said(0, &["report", &place]);
    let page = fs::read_to_string(folder.0.join("run/report.html")).expect("a page");
    assert!(page.contains("***") && page.contains("another run.notify"), "the page has a run file and the resumption");
    said(0, &["report", &place, "--csv", &folder.path("run/steps.csv")]);
    said(0, &["report", &place, "--tensorboard", &folder.path("run/board")]);
    let all = said(0, &["inspect", &place, "--all"]);
    assert!(all.contains("notify = \"***\""), "{all}");
    said(0, &["train", "--resume", &place, "--set", "train.steps=8", "--trace", &trace, "--json"]);
    has_no_secret("trace", &fs::read_to_string(&trace).expect("a trace"));
    files_have_no_secret(&folder.0);
}

#[test]
fn messages_about_settings_have_no_secret() {
    let folder = Folder::new("secret-settings");
    let file = folder.path("run.toml");
    let write = |text: &str| fs::write(&file, text).expect("a file");
    for (text, says) in [
        (format!("[run]\nnotify = [\"{HOOK}\"]\n"), "run.notify = *** is not a string"),
        (format!("[run]\nnotify = \"{HOOK}\nranks = 1\n"), "is not TOML"),
        (format!("[run]\nstore = \"s3://KEY:{PASSWORD}@b/a\"\n"), "run.store must not have a user"),
        (format!("[run]\nstore = \"s3://KEY:wo/{PASSWORD}@b/a\"\n"), "run.store must not have a user"),
        (format!("[run]\nstore = \"s3://b/a?X-Amz-Signature={PASSWORD}\"\n"), "run.store must not have a user"),
        (format!("[run]\nmetrics_address = \"user:{PASSWORD}@h:80x\"\n"), "run.metrics_address must be a port"),
        (format!("[data]\npath = \"https://user:{PASSWORD}@h/a.txt\"\n"), "data.path must not have a user"),
        (format!("[data]\npath = \"https://user:{PASSWORD}@h/a.tokens\"\n"), "data.path must not have a user"),
        (format!("[data]\npath = \"https://h/a.txt?X-Amz-Signature={PASSWORD}\"\n"), "data.path must not have a user"),
    ] {
        write(&text);
        for command in [&["check"][..], &["check", "--json"], &["explain"], &["train"], &["launch", "--", "train"]] {
            let printed = said(2, &[command, &[&file]].concat());
            assert!(printed.contains(says), "{command:?}: {printed}");
        }
    }
    write("");
    for (setting, says) in [
        (format!("run.notfy={HOOK}"), "run.notfy"),
        (format!("run.notify=[\"{HOOK}\"]"), "run.notify = ***"),
        (format!("run.notify {HOOK}"), "has no `=`"),
        (format!("data.path=https://user:{PASSWORD}@h/a.txt"), "data.path must not have a user"),
    ] {
        let printed = said(2, &["check", &file, "--set", &setting]);
        assert!(printed.contains(says), "{printed}");
    }
    let address = format!("s3://KEY:wo/{PASSWORD}@b/a");
    for words in [
        &["fetch", &address, "--out", &folder.path("o")][..],
        &["train", "--resume", &address],
        &["inspect", &address],
        &["eval", "--from", &address],
    ] {
        said(2, words);
    }
}

#[test]
fn a_launcher_prints_no_secret_and_neither_does_the_report_of_a_failure() {
    let folder = Folder::new("secret-launch");
    let (run, notify) = (folder.run("run"), notify());
    let shown = said(0, &with_keys(&["launch", "--nproc", "2", "--dry-run", "--", "train"], &[&run, &notify]));
    assert!(shown.contains("'run.notify=***'"), "{shown}");
    said(0, &with_keys(&["train"], &[&run]));
    // One that resumes is started again by its own words.
    let (place, printed) = (folder.path("run"), folder.0.join("printed"));
    let mut launcher = Command::new(env!("CARGO_BIN_EXE_pleach"));
    launcher.args(["launch", "--nproc", "2", "--restarts", "1", "--", "train", "--quiet", "--resume", &place, "--set"]);
    launcher
        .args([notify.as_str(), "--set", "train.steps=1000000"])
        .stderr(fs::File::create(&printed).expect("a file"));
    let mut launcher = launcher.spawn().expect("a launcher");
    let printed = || fs::read_to_string(&printed).expect("text");
    let steps = || fs::read_to_string(folder.0.join("run/metrics.jsonl")).unwrap_or_default().lines().count();
    wait_until(|| steps() > 8);
    kill("-KILL", processes_of(launcher.id())[1]);
    wait_until(|| printed().contains("restarting: pleach train --quiet --resume"));
    kill("-TERM", launcher.id());
    assert!(launcher.wait().is_ok_and(|status| status.code().is_some()), "the launcher ends");
    assert!(printed().contains("--set run.notify=*** --set train.steps=1000000; 0 restarts left"), "{}", printed());
    has_no_secret("launch", &printed());
    said(0, &["blame", &place]);
    said(0, &["blame", &place, "--json"]);
    files_have_no_secret(&folder.0);
}

fn wait_until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn kill(signal: &str, process: u32) {
    let status = Command::new("kill").args([signal, &process.to_string()]).status().expect("kill");
    assert!(status.success());
}
