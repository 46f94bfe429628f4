//! Answers of git: the commit, what is not committed, and files as of a commit.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A commit, by the first twelve digits of its hash, and its date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Twelve hexadecimal digits.
    pub hash: String,
    /// `2026-11-23`, the day on which it was committed.
    pub date: String,
}

/// The clone at a folder.
#[derive(Clone, Debug)]
pub struct Git {
    root: PathBuf,
}

impl Git {
    /// The clone at `root`.
    pub fn new(root: PathBuf) -> Git {
        Git { root }
    }

    /// The commit that `name` names, such as `HEAD`.
    ///
    /// # Errors
    /// No such commit.
    pub fn commit(&self, name: &str) -> Result<Commit, String> {
        let line = self.said(&["log", "-1", "--abbrev=12", "--date=short", "--format=%h %cd", name])?;
        let (hash, date) = line.trim().split_once(' ').ok_or_else(|| format!("{name}: git log prints {line}"))?;
        Ok(Commit { hash: hash.into(), date: date.into() })
    }

    /// Files below `paths` that are not as they were committed.
    ///
    /// # Errors
    /// A folder that is not a clone.
    pub fn uncommitted(&self, paths: &[&str]) -> Result<Vec<String>, String> {
        let said = self.said(&[&["status", "--porcelain", "--untracked-files=all", "--"], paths].concat())?;
        Ok(said.lines().map(|line| line.get(3..).unwrap_or(line).to_string()).collect())
    }

    /// The file at `path` as of `commit`.
    ///
    /// # Errors
    /// No such commit or file.
    pub fn file_at(&self, commit: &str, path: &str) -> Result<String, String> {
        self.said(&["show", &format!("{commit}:{path}")])
    }

    /// Whether `commit` is `HEAD` or before it.
    pub fn is_ancestor(&self, commit: &str) -> bool {
        self.said(&["merge-base", "--is-ancestor", commit, "HEAD"]).is_ok()
    }

    /// The files below `paths` as of `commit`, with their content.
    ///
    /// # Errors
    /// No such commit.
    pub fn files_at(&self, commit: &str, paths: &[&str]) -> Result<Vec<(String, Vec<u8>)>, String> {
        let listed = self.said(&[&["ls-tree", "-r", "-z", "--name-only", commit, "--"], paths].concat())?;
        let listed: Vec<String> = listed.split('\0').filter(|path| !path.is_empty()).map(String::from).collect();
        let names: String = listed.iter().map(|path| format!("{commit}:{path}\n")).collect();
        let mut child = self.command(&["cat-file", "--batch"]).spawn().map_err(|error| format!("git: {error}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut answer = Vec::new();
        let read = std::thread::scope(|scope| {
            // Both pipes fill up, so one thread asks while the other reads.
            scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(names.as_bytes())));
            stdout.map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut answer))
        });
        read.and_then(|_| child.wait()).map_err(|error| format!("git cat-file: {error}"))?;
        let mut files = Vec::with_capacity(listed.len());
        let mut rest = answer.as_slice();
        for path in listed {
            let (bytes, after) = object(rest).ok_or_else(|| format!("git cat-file: no content of {commit}:{path}"))?;
            files.push((path, bytes.to_vec()));
            rest = after;
        }
        Ok(files)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(&self.root);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn said(&self, arguments: &[&str]) -> Result<String, String> {
        let failed = |why: String| format!("git {}: {}", arguments.join(" "), why.trim());
        let output = self.command(arguments).output().map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).into()));
        }
        String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
    }
}

/// The first object that `git cat-file --batch` printed (`HASH blob BYTES`, the content, a line end), and the rest.
fn object(printed: &[u8]) -> Option<(&[u8], &[u8])> {
    let line_end = printed.iter().position(|byte| *byte == b'\n')?;
    let header = std::str::from_utf8(&printed[..line_end]).ok()?;
    let bytes: usize = header.rsplit(' ').next()?.parse().ok()?;
    let start = line_end + 1;
    Some((printed.get(start..start + bytes)?, printed.get(start + bytes + 1..)?))
}
