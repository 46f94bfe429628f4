//! Runs cases and compares each end with its verdict. A file that a command must not write is as it was.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::hostile::case::Case;
use crate::hostile::process::{Ended, end, send_when_handled, start};

/// A folder that ends with its case.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A case that was started.
struct Started {
    case: Case,
    folder: Folder,
    before: BTreeMap<String, String>,
    child: Child,
}

impl Started {
    fn new(case: Case) -> Started {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pleach-hostile-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        let folder = Folder(path);
        for (name, content) in &case.files {
            content.put(&folder.0.join(name));
        }
        let mut before = contents(&folder.0, &case.outputs);
        for (from, to) in &case.renamed {
            let below = contents(&folder.0.join(from), &[]);
            before.extend(below.into_iter().map(|(name, content)| (format!("{to}/{name}"), content)));
            before.insert(to.clone(), "folder".into());
        }
        let child = start(&case, &folder.0);
        Started { case, folder, before, child }
    }

    /// A line of the table; what is wrong with it, if anything is.
    fn judged(self) -> (String, Vec<String>) {
        let Started { case, folder, before, child } = self;
        if let Some(signal) = case.signal {
            send_when_handled(&child, signal);
        }
        let ended = end(child);
        let said = ended.said.replace(&folder.0.display().to_string(), "{}");
        let code = case.code;
        let mut wrong = vec![];
        if ended.code() != Ok(code) {
            let found = ended.code().map_or_else(|signal| signal, |code| format!("exit code {code}"));
            wrong.push(format!("{found}, and {code} is the verdict"));
        }
        let unsaid = case.says.iter().filter(|says| !said.contains(says.as_str()));
        wrong.extend(unsaid.map(|says| format!("does not say {says:?}")));
        if said.contains("panicked at") {
            wrong.push("panics".into());
        }
        // A program that reads the text of a model receives it as it is.
        let is_text = case.arguments.first().is_some_and(|command| command == "generate");
        let shown = if is_text { &ended.warned } else { &ended.said };
        if let Some(c) = shown.chars().find(|c| c.is_control() && *c != '\n' && *c != '\t') {
            wrong.push(format!("prints {c:?}, which steers a terminal"));
        }
        let after = contents(&folder.0, &case.outputs);
        if after != before {
            let differs = |(name, content): &(&String, &String)| before.get(*name) != Some(content);
            let changed: Vec<&String> = after.iter().filter(differs).map(|(name, _)| name).collect();
            let gone: Vec<&String> = before.keys().filter(|name| !after.contains_key(*name)).collect();
            wrong.push(format!("changes {changed:?}, removes {gone:?}"));
        }
        if !wrong.is_empty() {
            wrong.push(format!("pleach {}\n{}", case.arguments.join(" "), beginning(&said)));
        }
        (line(&case, &ended, &said), wrong)
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(600).collect()
}

fn line(case: &Case, ended: &Ended, said: &str) -> String {
    let code = ended.code().map_or_else(|signal| signal, |code| code.to_string());
    let said: String = said.lines().last().unwrap_or_default().chars().take(120).collect();
    format!("{:<60} {code:>3} {:>6.2} s {:>5} MiB  {said}", case.name, ended.wall.as_secs_f64(), ended.peak_mib)
}

/// Runs `cases` one after the other.
pub fn hold(cases: Vec<Case>) {
    judge(cases.into_iter().map(|case| Started::new(case).judged()));
}

/// Starts `cases`, which do nothing but wait, at the same time.
pub fn hold_at_once(cases: Vec<Case>) {
    let started: Vec<Started> = cases.into_iter().map(Started::new).collect();
    judge(started.into_iter().map(Started::judged));
}

fn judge(results: impl Iterator<Item = (String, Vec<String>)>) {
    let mut failed = vec![];
    for (line, wrong) in results {
        println!("{line}");
        if !wrong.is_empty() {
            failed.push(format!("{line}\n  {}", wrong.join("\n  ")));
        }
    }
    assert!(failed.is_empty(), "{} verdicts differ:\n{}", failed.len(), failed.join("\n"));
}

/// Kind and content of all below `folder` but `outputs`.
fn contents(folder: &Path, outputs: &[String]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(folder).expect("inside").display().to_string();
            // With all that is below.
            if outputs.contains(&name) {
                continue;
            }
            let kind = fs::symlink_metadata(&path).expect("it is there");
            let content = if kind.is_symlink() {
                format!("link to {}", fs::read_link(&path).expect("a link").display())
            } else if kind.is_dir() {
                folders.push(path);
                "folder".into()
            } else if kind.file_type().is_fifo() {
                "pipe".into()
            } else if kind.len() > 1 << 26 {
                format!("{} bytes", kind.len())
            } else {
                let mut hasher = DefaultHasher::new();
                fs::read(&path).expect("a file").hash(&mut hasher);
                format!("{} bytes, hash {}", kind.len(), hasher.finish())
            };
            found.insert(name, content);
        }
    }
    found
}
