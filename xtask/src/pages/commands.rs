//! Runs the commands of a page and stamps it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::code::Code;
use super::date::today;
use super::git::Git;
use super::stamp::{Entry, Stamps, split, with_stamps};
use super::table::{Confirmation, Page, Renewal};
use crate::repository::{Repository, root};

/// How a line of a command begins that has the result of a sample.
const RESULT: &str = "confirmed: ";

/// Makes all figures of `page` again and stamps it.
///
/// # Errors
/// Vouched-for files that are not committed, a command that fails, and pages that are renewed by hand.
pub fn renew(page: &Page) -> Result<String, String> {
    let run = Run::begin(page)?;
    let (command, body) = match page.renewal {
        Renewal::Writes(command) => {
            let command = run.filled(command);
            printed(&command)?;
            (command, run.text()?)
        }
        Renewal::Prints(command) => {
            let command = run.filled(command);
            let body = printed(&command)?;
            (command, body)
        }
        Renewal::ByHand(commands) => {
            return Err(format!(
                "{} is written by hand. Run these on the machines that it names, put the figures in, commit, then run\n\
                 `cargo run -p xtask -- pages stamp {} COMMIT` with the commit that was measured:\n\n{}",
                page.path,
                page.name,
                commands.join("\n")
            ));
        }
    };
    let full = run.entry(&command, "")?;
    run.write(&with_stamps(&body, page.files, &Stamps { full, confirmed: None }))
}

/// Runs the sample of `page` and stamps it where the sample agrees.
///
/// # Errors
/// A page without a stamp, vouched-for files that are not committed, and a sample that does not agree.
pub fn confirm(page: &Page) -> Result<String, String> {
    let run = Run::begin(page)?;
    let text = run.text()?;
    let (body, Some(stamps)) = split(&text) else {
        return Err(format!("{} has no stamp; use `cargo run -p xtask -- pages renew {}`", page.path, page.name));
    };
    let (command, result) = match page.confirmation {
        Confirmation::Samples(commands) => {
            let commands: Vec<String> = commands.iter().map(|command| run.filled(command)).collect();
            let mut results = Vec::new();
            for command in &commands {
                let printed = printed(command)?;
                results.extend(printed.lines().filter_map(|line| line.strip_prefix(RESULT)).map(String::from));
            }
            (commands.join(" && "), results.join("; "))
        }
        Confirmation::Prints(command) => {
            let command = run.filled(command);
            let printed = printed(&command)?;
            if let Some(difference) = first_difference(body, &printed) {
                return Err(format!(
                    "{} is not what `{command}` prints; use `cargo run -p xtask -- pages renew {}`\n{difference}",
                    page.path, page.name
                ));
            }
            (command, format!("all {} lines are the same", printed.trim_end().lines().count()))
        }
    };
    let confirmed = Some(run.entry(&command, &result)?);
    run.write(&with_stamps(&text, page.files, &Stamps { confirmed, ..stamps }))
}

/// Stamps `page` as counted in full at `commit`: for figures that were made before there was a stamp, or by hand.
///
/// # Errors
/// A commit that is not before `HEAD`, and a page that a command writes and whose text at `commit` was another.
pub fn stamp_as_of(page: &Page, commit: &str) -> Result<String, String> {
    let git = Git::new(root());
    if !git.is_ancestor(commit) {
        return Err(format!("COMMIT must be HEAD or before it; got {commit}"));
    }
    let path = root().join(page.path);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", page.path))?;
    let command = match page.renewal {
        Renewal::Writes(command) | Renewal::Prints(command) => {
            let then = git.file_at(commit, page.path)?;
            if let Some(difference) = first_difference(split(&then).0, split(&text).0) {
                return Err(format!("{} was another page at {commit}\n{difference}", page.path));
            }
            command
                .replace("--results target/equality-{hash}.txt ", "")
                .replace("--results target/matrix-{hash}.txt ", "")
                .replace("--results target/expert-pairs-{hash}.txt ", "")
        }
        Renewal::ByHand(_) => String::new(),
    };
    let at = git.commit(commit)?;
    let hash = Code::at(page, &git, commit)?.hash();
    let full = Entry { date: at.date, commit: at.hash, hash, command, result: String::new() };
    let stamped = with_stamps(&text, page.files, &Stamps { full, confirmed: None });
    write(&path, &stamped).map(|()| format!("{}: counted in full at {commit}", page.path))
}

/// A page whose command runs: the code must be the same before and after.
struct Run<'a> {
    page: &'a Page,
    git: Git,
    path: PathBuf,
    hash: String,
}

impl Run<'_> {
    fn begin(page: &Page) -> Result<Run<'_>, String> {
        let run = Run { page, git: Git::new(root()), path: root().join(page.path), hash: hash(page)? };
        run.demand_committed().map(|()| run)
    }

    fn demand_committed(&self) -> Result<(), String> {
        let uncommitted = self.git.uncommitted(self.page.files)?;
        if uncommitted.is_empty() {
            return Ok(());
        }
        Err(format!("{}: these files must be committed first: {}", self.page.path, uncommitted.join(", ")))
    }

    fn filled(&self, command: &str) -> String {
        let seed = self.hash.get(..7).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or_default();
        command.replace("{hash}", &self.hash).replace("{seed}", &seed.to_string())
    }

    fn text(&self) -> Result<String, String> {
        std::fs::read_to_string(&self.path).map_err(|error| format!("{}: {error}", self.page.path))
    }

    /// The entry of what has just run.
    fn entry(&self, command: &str, result: &str) -> Result<Entry, String> {
        self.demand_committed()?;
        if hash(self.page)? != self.hash {
            return Err(format!("{}: the code changed while the command ran", self.page.path));
        }
        let commit = self.git.commit("HEAD")?.hash;
        let result = result.replace('|', "/");
        Ok(Entry { date: today(), commit, hash: self.hash.clone(), command: command.into(), result })
    }

    fn write(&self, text: &str) -> Result<String, String> {
        write(&self.path, text).map(|()| format!("{} is stamped", self.page.path))
    }
}

fn hash(page: &Page) -> Result<String, String> {
    Ok(Code::of(page, &Repository::open()?).hash())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs `command` in the root of the repository; its standard output, which is shown as it comes.
fn printed(command: &str) -> Result<String, String> {
    eprintln!("$ {command}");
    let mut words = command.split_whitespace();
    let mut started = Command::new(words.next().unwrap_or_default());
    started.args(words).current_dir(root()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = started.spawn().map_err(|error| format!("{command}: {error}"))?;
    let mut text = String::new();
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.map_err(|error| format!("{command}: {error}"))?;
        // The screen is for the person who waits; the text is what counts.
        let _ = writeln!(std::io::stdout(), "{line}");
        text += &line;
        text.push('\n');
    }
    let status = child.wait().map_err(|error| format!("{command}: {error}"))?;
    if status.success() { Ok(text) } else { Err(format!("{command}: {status}")) }
}

/// The first line that differs, as both have it; `None` where all lines are the same, but for white space at the end.
fn first_difference(expected: &str, got: &str) -> Option<String> {
    let (expected, got) = (expected.trim_end(), got.trim_end());
    if expected == got {
        return None;
    }
    let (mut left, mut right) = (expected.lines(), got.lines());
    for number in 1.. {
        let (expected, got) = (left.next(), right.next());
        if expected != got {
            let shown = |line: Option<&str>| line.unwrap_or("(no more lines)").to_string();
            return Some(format!("line {number}: expected {}\ngot {}", shown(expected), shown(got)));
        }
        if expected.is_none() {
            break;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn the_first_line_that_differs_is_shown() {
        assert_eq!(first_difference("a\nb\n", "a\nb"), None);
        assert_eq!(first_difference("a\nb", "a\nc\nd"), Some("line 2: expected b\ngot c".into()));
        assert_eq!(first_difference("a\nb", "a"), Some("line 2: expected b\ngot (no more lines)".into()));
    }
}
