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
}

#[test]
fn a_loss_that_is_not_finite_ends_the_process_with_1() {
    let (code, told) = train("not-finite", &["model.init_std=1e20"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("no weight was changed"), "{told}");
}

/// A width of a million needs hundreds of tebibytes per rank, more than any address space has; the run file claims that they are there.
#[test]
fn an_arena_that_cannot_be_had_ends_the_process_with_1() {
    let (code, told) = train("arena", &["model.hidden=1048576", "run.rank_memory_bytes=1000000000000000000"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains(" failed before the first step: cannot allocate an arena of "), "{told}");
    assert!(told.contains("a smaller microbatch, more ranks or a higher ZeRO stage need less"), "{told}");
}
