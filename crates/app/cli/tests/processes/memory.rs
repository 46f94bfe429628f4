//! Memory of runs in several processes: arenas and connections of each host, shown and checked.

use std::fs;
use std::process::Command;

use crate::harness::several::{Folder, in_processes, succeeds};
use crate::harness::{prints, stderr, stdout};

/// Receive memory of a process of four with two of eight ranks: 64 pieces of 64 KiB, and for each of three peers 32 KiB
/// and 128 KiB.
const OF_FOUR: u64 = 64 * 65_536 + 3 * (32 + 128) * 1024;

#[test]
fn connections_are_shown_with_arenas() {
    let folder = Folder::new("connections");
    let output = in_processes("4", &[&folder.run("run"), "train.steps=1"]);
    succeeds(&output);
    let message = stdout(&output);
    assert!(message.contains("of connections in 4 processes; host "), "{message}");
    let hosts = folder.path("hosts");
    fs::write(&hosts, "a slots=1\nb slots=3\n").expect("a file");
    let checked = prints(&["check", "--hosts", &hosts, "--json"]);
    let checked: serde_json::Value = serde_json::from_str(&checked).expect("JSON");
    let numbers = |key: &str| [0, 1].map(|host| checked["hosts"][host][key].as_u64().expect("a number"));
    assert_eq!(numbers("connection_bytes"), [OF_FOUR, 3 * OF_FOUR]);
    assert_eq!(
        numbers("arena_bytes").iter().sum::<u64>(),
        checked["memory"]["together_bytes"].as_u64().expect("bytes")
    );
    let checked = prints(&["check", "--hosts", &hosts]);
    assert!(checked.contains("of connections in 4 processes; host b needs the most, "), "{checked}");
}

#[test]
fn a_host_without_the_memory_is_named_before_the_first_step() {
    let folder = Folder::new("memory");
    let large = ["model.hidden=32768", "model.num_layers=64", "model.num_heads=256", "parallelism.zero=0"];
    let output = in_processes("2", &[&[&folder.run("run")[..]], &large[..]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(
        message.contains("memory on host ") && message.contains(" does not fit: 8 ranks in 2 processes need "),
        "{message}"
    );
    assert!(message.contains(" of arenas and ") && message.contains(" of connections, "), "{message}");
    assert_eq!(stdout(&output), "");
    assert!(!folder.0.join("run").exists(), "nothing is written");
}

#[test]
fn a_check_for_hosts_fits_into_80_columns() {
    let folder = Folder::new("narrow");
    let hosts = folder.path("hosts");
    fs::write(&hosts, "a-host-with-a-long-name.example slots=2\nb.example slots=1\nc.example slots=1\n")
        .expect("a file");
    let checked = |columns: &str, tp: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        command.args(["check", "--all-ranks", "--hosts", &hosts, "--set", tp]).env("COLUMNS", columns);
        let output = command.output().expect("the command starts");
        succeeds(&output);
        stdout(&output)
    };
    for tp in ["parallelism.tp=2", "parallelism.tp=4"] {
        let (narrow, wide) = (checked("80", tp), checked("1000", tp));
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert!(wide.lines().any(|line| line.chars().count() > 80), "{wide}");
        // Nothing is left out: the words are the same, and the first column of the table is there once more.
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(words(&narrow), words(&wide));
        let tables = |text: &str| text.lines().filter(|line| line.trim_start().starts_with("stage ")).count();
        assert_eq!((tables(&narrow), tables(&wide)), (2, 1), "{narrow}");
    }
}

/// `pleach train` of one rank with an arena of some hundred megabytes, in an address space of `kib`: its exit code and
/// what it says.
fn in_address_space(kib: u64, run: &str) -> (Option<i32>, String) {
    let settings =
        [run, "run.ranks=1", "model.hidden=768", "model.num_layers=6", "data.tokenizer=bytes", "train.steps=1"];
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {kib}; exec \"$0\" train \"$@\""), env!("CARGO_BIN_EXE_pleach")]);
    let output = command.args(settings.iter().flat_map(|setting| ["--set", setting])).output().expect("a shell");
    (output.status.code(), stderr(&output))
}

/// Limits below the arena are refused before anything is started, and those that leave the rest of the process no room
/// end the rank by name.
#[test]
fn an_address_space_without_room_for_the_arena_is_told_with_its_size() {
    let folder = Folder::new("address-space");
    let run = folder.run("run");
    let (code, refused) = in_address_space(150_000, &run);
    assert_eq!(code, Some(2), "{refused}");
    let words: Vec<&str> = refused.split_whitespace().collect();
    let need = words.iter().position(|word| *word == "need").expect("the need");
    assert_eq!(words[need + 2], "MB", "{refused}");
    let arena_kib = (words[need + 1].parse::<f64>().expect("a number") * 1e6 / 1024.0) as u64;
    assert!(refused.contains("this process's address space (ulimit -v) has 154 MB"), "{refused}");
    for kib in [arena_kib / 2, arena_kib / 10 * 9] {
        assert_eq!(in_address_space(kib, &run).0, Some(2), "{kib} KiB");
    }
    for kib in [arena_kib + 5_000, arena_kib + 20_000] {
        let (code, told) = in_address_space(kib, &run);
        assert_eq!(code, Some(1), "{kib} KiB: {told}");
        let reason = "rank 0 failed before the first step: cannot allocate an arena of ";
        assert!(told.contains(reason) && told.contains("`ulimit -v unlimited` lifts a limit"), "{told}");
    }
}
