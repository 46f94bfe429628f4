//! Runs that fail: the exit code, and what the user is told.

use std::process::Command;

/// Runs `pleach train` with these settings; its exit code and its standard error.
fn train(name: &str, settings: &[&str]) -> (Option<i32>, String) {
    let folder = std::env::temp_dir().join(format!("pleach-failure-{name}-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(["train", "--quiet", "--set"]).arg(format!("run.folder={}", folder.display()));
    for setting in settings {
        command.args(["--set", setting]);
    }
    let output = command.output().expect("the command starts");
    std::fs::remove_dir_all(&folder).expect("removed");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_deadline_that_passes_ends_the_process_with_1() {
    let (code, told) = train("deadline", &["run.timeout_seconds=0.000001"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains(" failed ") && told.contains(" waited ") && told.contains(" for rank "), "{told}");
    assert!(told.contains("see what it does, or raise run.timeout_seconds = 0.000001"), "{told}");
}

#[test]
fn a_loss_that_is_not_finite_ends_the_process_with_1() {
    let (code, told) = train("not-finite", &["model.init_std=1e20"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("no weight was changed"), "{told}");
}
