//! Every run file of `examples/` runs, learns, and takes the memory that was planned for it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Beside the arenas a process holds the program, the text, and per rank a thread's stack and the kernels' packing buffers.
const MEBIBYTES_BESIDE: f64 = 64.0;
const SHARE_BESIDE: f64 = 0.05;

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let entries = std::fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    files.sort();
    files
}

/// Runs three steps; what was printed to the standard output and to the standard error.
fn run_three_steps(name: &str, arguments: &[&str]) -> (String, String) {
    let folder = std::env::temp_dir().join(format!("pleach-example-{name}-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.arg("train").args(arguments).args(["--set", "train.steps=3", "--set", "data.held_out=0.005", "--set"]);
    let output = command.arg(format!("run.folder={}", folder.display())).output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{name}: {told}");
    std::fs::remove_dir_all(&folder).expect("removed");
    (printed, told)
}

fn losses(printed: &str) -> Vec<f64> {
    let loss = |line: &str| line.split("loss ").nth(1)?.split(' ').next()?.parse().ok();
    printed.lines().filter_map(loss).collect()
}

/// `memory  8 arenas, together 40.9 MiB, 73.1 MiB resident at most`: the two numbers.
fn memory(told: &str) -> (f64, Option<f64>) {
    let line =
        told.lines().find(|line| line.starts_with("memory") && line.contains(" MiB")).expect("a line about memory");
    let mut numbers = line
        .split_whitespace()
        .collect::<Vec<_>>()
        .windows(2)
        .filter_map(|words| match words {
            [number, "MiB" | "MiB,"] => number.parse().ok(),
            _ => None,
        })
        .collect::<Vec<f64>>()
        .into_iter();
    (numbers.next().expect("arenas"), numbers.next())
}

fn assert_memory_is_as_planned(name: &str, told: &str) {
    let (arenas, resident) = memory(told);
    // Only Linux tells what is resident.
    let Some(resident) = resident else { return };
    let beside = resident - arenas;
    println!("{name:16} arenas {arenas:6.1} MiB, beside them {beside:5.1} MiB");
    let allowed = MEBIBYTES_BESIDE + SHARE_BESIDE * arenas;
    assert!(beside <= allowed, "{name}: {beside} MiB beside arenas of {arenas} MiB; at most {allowed} is right");
}

#[test]
fn every_example_runs_in_its_memory() {
    let files = examples();
    assert!(files.len() >= 12, "{files:?}");
    for file in files {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let (printed, told) = run_three_steps(&name, &[&file.display().to_string()]);
        let losses = losses(&printed);
        assert!(losses.len() == 3 && losses[2] < losses[0], "{name}: {losses:?}");
        assert_memory_is_as_planned(&name, &told);
    }
}

#[test]
fn the_quick_start_runs_in_its_memory() {
    let (printed, told) = run_three_steps("quick-start", &[]);
    assert_eq!(losses(&printed).len(), 3, "{printed}");
    assert_memory_is_as_planned("quick start", &told);
}
