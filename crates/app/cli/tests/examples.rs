//! Every run file of `examples/` and of tests runs, learns, and takes the memory that was planned for it.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::run_files::run_files;

/// In addition to the arenas a process holds the text, and per rank a thread's stack and the kernels' packing buffers:
/// at most 44 MiB.
const OTHER_MEGABYTES: f64 = 46.1;
/// Pages of the program that a run reads: 21 of 41 MB of a release, and 33 of 71 MB without optimisation.
const PROGRAM_SHARE: f64 = 0.52;
const OTHER_SHARE: f64 = 0.05;
/// A checkpoint is written from a copy of the state: weights in single precision and two moments. On busy cores the
/// copies of all ranks are there at once.
const STATE_BYTES_PER_PARAMETER: f64 = 12.0;

/// Where the examples are run: files that they name are found from here.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Runs three steps; what was printed to the standard output.
fn run_three_steps(name: &str, arguments: &[&str]) -> String {
    let folder = std::env::temp_dir().join(format!("pleach-example-{name}-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.arg("train").args(arguments).args(["--set", "train.steps=3", "--set"]);
    command.arg(format!("run.folder={}", folder.display())).current_dir(root());
    let output = command.output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, reported) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{name}: {reported}");
    std::fs::remove_dir_all(&folder).expect("removed");
    printed
}

fn losses(printed: &str) -> Vec<f64> {
    let loss = |line: &str| line.split("loss ").nth(1)?.split(' ').next()?.parse().ok();
    printed.lines().filter(|line| line.starts_with("step ")).filter_map(loss).collect()
}

/// `memory  102 MB at most: 85.9 MB of arenas, 16.1 MB in addition`: the last two numbers, in megabytes. Only Linux
/// tells.
fn memory(printed: &str) -> Option<[f64; 2]> {
    let line = printed.lines().find(|line| line.contains(" of arenas, "))?;
    let megabytes = |text: &str| -> Option<f64> {
        let mut words = text.split(' ').rev();
        let factor = match words.next()? {
            "kB" => 1e-3,
            "MB" => 1.0,
            "GB" => 1e3,
            unit => panic!("{unit} in {line:?}"),
        };
        Some(words.next()?.parse::<f64>().ok()? * factor)
    };
    let (arenas, extra) = line.split_once(" of arenas, ")?;
    Some([megabytes(arenas)?, megabytes(extra.strip_suffix(" in addition")?)?])
}

/// Of `model   590,688 parameters: 4 layers`.
fn parameters(printed: &str) -> f64 {
    let number = printed.split_once(" parameters: ").and_then(|(before, _)| before.split_whitespace().last());
    number.and_then(|digits| digits.replace(',', "").parse().ok()).expect("a number of parameters")
}

fn assert_memory_is_as_planned(name: &str, printed: &str) {
    let Some([arenas, extra]) = memory(printed) else {
        assert_ne!(std::env::consts::OS, "linux", "{name}: {printed}");
        return;
    };
    println!("{name:16} arenas {arenas:5.1} MB, others {extra:4.1} MB");
    let state = STATE_BYTES_PER_PARAMETER * parameters(printed) * 1e-6;
    let program = std::fs::metadata(env!("CARGO_BIN_EXE_pleach")).expect("the program").len() as f64 * 1e-6;
    let allowed = OTHER_MEGABYTES + PROGRAM_SHARE * program + OTHER_SHARE * arenas + state;
    assert!(extra <= allowed, "{name}: {extra} MB in addition to arenas of {arenas} MB; at most {allowed} MB is right");
}

#[test]
fn every_example_runs_in_its_memory() {
    let files = run_files();
    assert!(files.len() >= 30, "{files:?}");
    // A short text, for all that is held out is measured at the end.
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../ARCHITECTURE.md");
    for (name, keys) in files {
        let file = std::env::temp_dir().join(format!("pleach-example-{name}-{}.toml", std::process::id()));
        std::fs::write(&file, keys).expect("written");
        let printed = run_three_steps(&name, &[&file.display().to_string(), "--data", text]);
        std::fs::remove_file(&file).expect("removed");
        let losses = losses(&printed);
        assert!(losses.len() == 3 && losses[2] < losses[0], "{name}: {losses:?}");
        assert_memory_is_as_planned(&name, &printed);
    }
}

#[test]
fn the_quick_start_runs_in_its_memory() {
    let printed = run_three_steps("quick-start", &[]);
    assert_eq!(losses(&printed).len(), 3, "{printed}");
    assert_memory_is_as_planned("quick start", &printed);
}
