//! The outputs in docs/learn are what the commands print. Renew them with `RENEW_LESSONS=1 cargo test -p cli --test lessons`
//! and read them before they are committed.

use std::path::{Path, PathBuf};
use std::process::Command;

fn lessons() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/learn")
}

/// Runs a command line of a lesson in `folder`; both streams as they would appear, standard output first. Of a run, the standard
/// output until the last step, followed by `…`.
fn run(line: &str, folder: &Path) -> String {
    let arguments = line.strip_prefix("pleach ").expect("lessons run pleach").split_whitespace();
    let output = Command::new(env!("CARGO_BIN_EXE_pleach"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    if line.starts_with("pleach train") {
        // The run of the lesson before is kept under a name with its time.
        let lines: Vec<&str> = stdout.lines().filter(|line| !line.contains(" is kept as ")).collect();
        let last = lines.iter().rposition(|line| line.contains("  grad norm ")).expect("a step");
        return lines[..=last].iter().map(|line| portable(line)).collect::<String>() + "…\n";
    }
    let text = stdout + String::from_utf8_lossy(&output.stderr);
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A line of a run without figures of the machine: its memory, and the speed of a step.
fn portable(line: &str) -> String {
    if line.starts_with("memory  ") {
        return format!("{}; …\n", line.split(';').next().unwrap_or(line));
    }
    let fields: Vec<&str> = line.split("  ").collect();
    match fields.iter().position(|field| field.starts_with("grad norm")) {
        Some(end) => format!("{}  …\n", fields[..=end].join("  ")),
        None => format!("{}\n", line.trim_end()),
    }
}

/// The lesson with the outputs of its commands as they are now.
fn renewed(text: &str, folder: &Path) -> String {
    let mut result = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        result += &format!("{line}\n");
        if line != "```console" {
            continue;
        }
        let command = lines.next().expect("a command");
        result += &format!("{command}\n");
        result += &run(command.strip_prefix("$ ").expect("a prompt"), folder);
        for old in lines.by_ref() {
            if old == "```" {
                result += "```\n";
                break;
            }
        }
    }
    result
}

#[test]
fn lessons_show_what_the_commands_print() {
    let folder = std::env::temp_dir().join(format!("pleach-lessons-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::copy(lessons().join("tiny.toml"), folder.join("tiny.toml")).expect("copied");
    let mut differing = vec![];
    for entry in std::fs::read_dir(lessons()).expect("the lessons") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a lesson");
        let now = renewed(&text, &folder);
        if std::env::var_os("RENEW_LESSONS").is_some() {
            std::fs::write(&path, now).expect("written");
        } else if now != text {
            let first = now.lines().zip(text.lines()).find(|(a, b)| a != b);
            differing.push(format!("{}: {first:?}", path.display()));
        }
    }
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(differing.is_empty(), "lessons differ from the program: {differing:#?}");
}
