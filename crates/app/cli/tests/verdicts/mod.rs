//! Six hundred run files, half of them legal, against rules that are written once more: the same verdict on each,
//! nothing started for what is refused, and every message kept in `tests/golden/verdicts.txt`.
//!
//! `RENEW_VERDICTS=1 cargo test -p cli --test suite verdicts::` writes that file again; read what changed.

mod balance;
mod blanks;
mod experts;
mod files;
mod gpus;
mod model;
mod oracle;
mod recipes;
mod sizes;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use files::{Files, Keys, ONE_PER_RULE, RunFile, changed};

const LEGAL: usize = 300;
const REFUSED: usize = 300;

/// The files, first those that break one rule each.
fn run_files() -> Vec<RunFile> {
    let one_per_rule = ONE_PER_RULE.iter().chain(experts::ONE_PER_RULE).chain(balance::ONE_PER_RULE);
    let mut refused: Vec<RunFile> = one_per_rule.map(|changes| changed("defaults", Keys::new(), changes)).collect();
    for file in &refused {
        assert!(!oracle::is_legal(file), "breaks no rule: {}", file.changed);
    }
    let mut legal = vec![];
    let mut files = Files::new(20_261_120);
    while legal.len() < LEGAL || refused.len() < REFUSED {
        let file = files.next();
        let list = if oracle::is_legal(&file) { &mut legal } else { &mut refused };
        let limit = if oracle::is_legal(&file) { LEGAL } else { REFUSED };
        if list.len() < limit {
            list.push(file);
        }
    }
    refused.extend(legal);
    refused
}

fn pleach(folder: &Path, command: &str) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_pleach")).args([command, "run.toml"]).current_dir(folder).output();
    output.expect("the command starts")
}

/// The messages about `file`; empty if it is legal.
fn verdict(folder: &Path, file: &RunFile, times: &mut Vec<(Duration, String)>) -> String {
    std::fs::write(folder.join("run.toml"), file.text()).expect("written");
    let started = Instant::now();
    let output = pleach(folder, "check");
    times.push((started.elapsed(), file.changed.clone()));
    let said = String::from_utf8(output.stderr).expect("text");
    let code = if said.is_empty() { 0 } else { 2 };
    assert_eq!(output.status.code(), Some(code), "{}\n{said}", file.changed);
    assert_eq!(output.stdout.is_empty(), code == 2, "{}", file.changed);
    if code == 2 {
        // Whoever trains all the same hears the same, and no run has begun.
        let train = pleach(folder, "train");
        assert_eq!(train.status.code(), Some(2), "{}", file.changed);
        assert_eq!(String::from_utf8(train.stderr).expect("text"), said, "{}", file.changed);
        assert!(train.stdout.is_empty() && !folder.join("out").exists(), "{} was started", file.changed);
    }
    said
}

#[test]
fn verdicts_are_those_of_the_plain_rules() {
    let folder: PathBuf = std::env::temp_dir().join(format!("pleach-verdicts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (mut said, mut wrong, mut times) = (String::new(), vec![], vec![]);
    for file in run_files() {
        let messages = verdict(&folder, &file, &mut times);
        if oracle::is_legal(&file) != messages.is_empty() {
            wrong.push(format!("{}\n{messages}", file.changed));
        }
        if !messages.is_empty() {
            said.push_str(&format!("# {}\n{messages}\n", file.changed));
        }
    }
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(wrong.is_empty(), "{} verdicts differ:\n{}", wrong.len(), wrong.join("\n"));
    times.sort();
    println!("{} verdicts: median {:?}, the longest:", times.len(), times[times.len() / 2].0);
    for (time, changed) in times.iter().rev().take(8) {
        println!("{time:?} {changed}");
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/verdicts.txt");
    if std::env::var_os("RENEW_VERDICTS").is_some() {
        std::fs::write(&golden, &said).expect("written");
    }
    let expected = std::fs::read_to_string(&golden).expect("the golden file");
    let first = expected.lines().zip(said.lines()).find(|(expected, said)| expected != said);
    assert_eq!(first, None, "messages differ; RENEW_VERDICTS=1 keeps the new ones");
    assert_eq!(expected.lines().count(), said.lines().count());
}
