//! The lessons and the handbook show outputs and pictures of the program. `RENEW_LESSONS=1 cargo test -p cli --test
//! suite lessons::` renews them; read them before they are committed. An output with a line `…` keeps it where the rest
//! agrees.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::ADVICE_OF_AMX;
use crate::harness::shown::{shown, shows};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs")
}

/// The lessons in every language, and the handbook.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![docs().join("handbook.md")];
    for entry in std::fs::read_dir(docs().join("learn")).expect("the lessons") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

/// Runs a command line of a lesson in `folder`; both streams as they would appear, standard output first. Of a run, the
/// standard output until the last step, followed by `…`.
fn run(line: &str, folder: &Path) -> String {
    let arguments = line.strip_prefix("pleach ").expect("lessons run pleach").split_whitespace();
    let output = Command::new(env!("CARGO_BIN_EXE_pleach"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command starts");
    let all = String::from_utf8_lossy(&output.stdout);
    let stdout: String = all.split_inclusive('\n').filter(|line| !line.starts_with(ADVICE_OF_AMX)).collect();
    if line.starts_with("pleach train") {
        // The run of the lesson before is kept under a name with its time.
        let lines: Vec<&str> = stdout.lines().filter(|line| !line.contains(" is kept as ")).collect();
        let last = lines.iter().rposition(|line| line.contains("  grad norm ")).expect("a step");
        return lines[..=last].iter().map(|line| portable(line)).collect::<String>() + "…\n";
    }
    let text = stdout + &String::from_utf8_lossy(&output.stderr);
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

/// The page with the outputs of its commands as they are now; `printed` has those of earlier pages.
fn renewed(text: &str, folder: &Path, printed: &mut BTreeMap<String, String>) -> String {
    let mut commands = shown(text).into_iter();
    let mut result = String::new();
    let mut is_console = false;
    for line in text.lines() {
        match line.strip_prefix("$ ") {
            Some(command) if is_console => {
                let (_, old) = commands.next().expect("a command of the page");
                let output = printed.entry(command.into()).or_insert_with(|| run(command, folder));
                let is_shown = old.contains(&"…".into()) && shows(&old, &output.lines().collect::<Vec<_>>());
                let new = if is_shown { old.iter().map(|line| format!("{line}\n")).collect() } else { output.clone() };
                result += &format!("{line}\n{new}");
            }
            _ if is_console && line != "```" => {}
            _ => {
                is_console = line == "```console";
                result += &format!("{line}\n");
            }
        }
    }
    result
}

/// Pictures that commands of the pages have drawn into `folder` and that docs/pictures has otherwise.
fn differing_pictures(folder: &Path) -> Vec<String> {
    let mut differing = vec![];
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "svg") {
            continue;
        }
        let picture = docs().join("pictures").join(path.file_name().expect("a name"));
        let drawn = std::fs::read(&path).expect("a picture");
        if std::env::var_os("RENEW_LESSONS").is_some() {
            std::fs::write(&picture, &drawn).expect("written");
        } else if std::fs::read(&picture).ok().as_ref() != Some(&drawn) {
            differing.push(format!("{} is not the picture that is drawn", picture.display()));
        }
    }
    differing
}

#[test]
fn pages_show_what_the_commands_print_and_draw() {
    let folder = std::env::temp_dir().join(format!("pleach-lessons-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["tiny.toml", "tiny_experts.toml", "llama_7b.toml", "llama_70b.toml"] {
        std::fs::copy(docs().join("learn").join(name), folder.join(name)).expect("copied");
    }
    let mut differing = vec![];
    let mut printed = BTreeMap::new();
    for path in pages() {
        let text = std::fs::read_to_string(&path).expect("a page");
        let now = renewed(&text, &folder, &mut printed);
        if std::env::var_os("RENEW_LESSONS").is_some() {
            std::fs::write(&path, now).expect("written");
        } else if now != text {
            let first = now.lines().zip(text.lines()).find(|(a, b)| a != b);
            differing.push(format!("{}: {first:?}", path.display()));
        }
    }
    differing.extend(differing_pictures(&folder));
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(differing.is_empty(), "pages differ from the program: {differing:#?}");
}
