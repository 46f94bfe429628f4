//! Files of earlier code still run: the run file and the checkpoint in `format_1` were written by commit a4d2fb0.
//!
//! Both must give the bits that they gave then. A change that breaks this needs a number of the format and a message
//! that names it; the files stay as they are. `format_1/run` is the run's folder after the third of six steps,
//! `expected` has what all six gave, without the time that they took.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compatibility/format_1");
const CHECKPOINT: &str = "checkpoints/step-00000003";

/// A copy of the files, in which the command runs: paths in the run file are relative.
struct Copied(PathBuf);

impl Copied {
    fn new(name: &str) -> Copied {
        let path = std::env::temp_dir().join(format!("pleach-compatibility-{name}-{}", std::process::id()));
        copy_folder(Path::new(FILES), &path);
        Copied(path)
    }

    fn pleach(&self, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        let Output { status, stderr, .. } = command.args(arguments).current_dir(&self.0).output().expect("it starts");
        assert_eq!(status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    }

    /// Weights, and each step with its loss and norm.
    fn learned(&self, folder: &str) -> (Vec<u8>, Vec<String>) {
        learned(&self.0.join(folder))
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let (from, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).expect("an entry");
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            fs::copy(&from, &to).expect("copied");
        }
    }
}

fn learned(folder: &Path) -> (Vec<u8>, Vec<String>) {
    let metrics = fs::read_to_string(folder.join("metrics.jsonl")).expect("metrics");
    let step = |line: &str| line.split(",\"tokens\"").next().unwrap_or_default().to_string();
    let steps: Vec<String> = metrics.lines().filter(|line| !line.contains("held_out")).map(step).collect();
    assert_eq!(steps.len(), 6, "{metrics}");
    (fs::read(folder.join("weights.safetensors")).expect("weights"), steps)
}

fn expected() -> (Vec<u8>, Vec<String>) {
    learned(&Path::new(FILES).join("expected"))
}

#[test]
fn a_run_file_of_then_gives_the_bits_of_then() {
    let copied = Copied::new("run-file");
    copied.pleach(&["train", "run.toml", "--quiet", "--set", "run.folder=again"]);
    assert!(copied.learned("again") == expected(), "{:?} for {:?}", copied.learned("again").1, expected().1);
}

#[test]
fn a_checkpoint_of_then_resumes_with_the_bits_of_then() {
    let copied = Copied::new("checkpoint");
    assert!(copied.0.join("run").join(CHECKPOINT).is_dir());
    copied.pleach(&["train", "--quiet", "--resume", "run"]);
    assert!(copied.learned("run") == expected(), "{:?} for {:?}", copied.learned("run").1, expected().1);
}

#[test]
fn a_checkpoint_of_then_resumes_in_another_layout_with_the_bits_of_then() {
    let copied = Copied::new("layout");
    let layout = ["--set", "parallelism.pp=1", "--set", "parallelism.zero=3"];
    copied.pleach(&[&["train", "--quiet", "--resume", "run"], &layout[..]].concat());
    assert!(copied.learned("run") == expected(), "{:?} for {:?}", copied.learned("run").1, expected().1);
}
