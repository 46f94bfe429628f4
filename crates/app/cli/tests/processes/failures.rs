//! Runs that fail: the exit code, and the text that is printed.

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
    let (code, text) = train("deadline", &["run.timeout_seconds=0.000001"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(" failed ") && text.contains(" waited ") && text.contains(" for rank "), "{text}");
    assert!(text.contains("see what it does, or raise run.timeout_seconds = 0.000001"), "{text}");
}

#[test]
fn a_loss_that_is_not_finite_ends_the_process_with_1() {
    let (code, text) = train("not-finite", &["model.init_std=1e30"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no weight was changed"), "{text}");
}
