//! Pages of figures: which files each one vouches for, when its figures were made, and whether those files have changed
//! since.
//!
//! A page ends with a stamp that this module alone writes. The stamp has the date, the commit and the hash of the code
//! for the full count, and for the last confirmation: a sample of the figures, made again on newer code with the same
//! verdicts.

mod code;
mod commands;
mod date;
mod git;
mod stamp;
mod table;

use std::fmt;

pub use code::Code;
pub use commands::{confirm, renew, stamp_as_of};
pub use git::{Commit, Git};
pub use stamp::{Entry, Stamps, split, with_stamps};
pub use table::{Confirmation, PAGES, Page, Renewal, page};

use crate::repository::Repository;

/// How old the figures of a page are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The code is that of the full count.
    Fresh,
    /// The code is that of the last confirmation.
    Confirmed,
    /// The code has changed since the newest stamp.
    Stale {
        /// Commit of the newest stamp.
        since: String,
    },
    /// The page has no stamp, or is not there.
    Unstamped,
}

impl State {
    /// Whether the figures are those of the code.
    pub fn is_current(&self) -> bool {
        match self {
            State::Fresh | State::Confirmed => true,
            State::Stale { .. } | State::Unstamped => false,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Fresh => f.write_str("fresh"),
            State::Confirmed => f.write_str("confirmed"),
            State::Stale { since } => write!(f, "stale: code has changed since {since}"),
            State::Unstamped => f.write_str("no stamp"),
        }
    }
}

/// The state of `page` in `repository`.
pub fn state(page: &Page, repository: &Repository) -> State {
    let text = repository.file(page.path).and_then(|file| file.text.as_deref()).unwrap_or_default();
    let Some(stamps) = split(text).1 else { return State::Unstamped };
    let hash = Code::of(page, repository).hash();
    if stamps.full.hash == hash {
        return State::Fresh;
    }
    match &stamps.confirmed {
        Some(confirmed) if confirmed.hash == hash => State::Confirmed,
        newest => State::Stale { since: newest.as_ref().unwrap_or(&stamps.full).commit.clone() },
    }
}

/// A sentence for every page whose figures are not those of the code, with the commands that renew them.
pub fn findings(repository: &Repository) -> Vec<String> {
    let mut findings = Vec::new();
    for page in PAGES {
        for files in Code::missing(page, repository) {
            findings
                .push(format!("{}: vouches for {files}, which is not there; see xtask/src/pages/table.rs", page.path));
        }
        let state = state(page, repository);
        let name = page.name;
        let remedy = match state {
            State::Fresh | State::Confirmed => continue,
            State::Stale { .. } => format!(
                "use `cargo run -p xtask -- pages confirm {name}`, or `... pages renew {name}` where figures change"
            ),
            State::Unstamped => format!("use `cargo run -p xtask -- pages renew {name}`"),
        };
        findings.push(format!("{}: {state}; {remedy}", page.path));
    }
    findings
}

/// The list of all pages: state, dates, and of stale pages the files that have changed.
///
/// # Errors
/// Git that cannot be asked.
pub fn listing(repository: &Repository, git: &Git) -> Result<String, String> {
    let mut text = String::new();
    for page in PAGES {
        let state = state(page, repository);
        text += &format!("{:12} {}: {state}\n", page.name, page.path);
        let page_text = repository.file(page.path).and_then(|file| file.text.as_deref()).unwrap_or_default();
        if let Some(stamps) = split(page_text).1 {
            text += &format!("{:14}counted in full {} at {}\n", "", stamps.full.date, stamps.full.commit);
            if let Some(confirmed) = &stamps.confirmed {
                text += &format!("{:14}confirmed {} at {}\n", "", confirmed.date, confirmed.commit);
            }
        }
        if let State::Stale { since } = &state {
            text += &match Code::at(page, git, since) {
                Ok(then) => changed_files(page, &then, &Code::of(page, repository)),
                Err(error) => format!("{:14}{error}\n", ""),
            };
        }
    }
    Ok(text)
}

/// Each entry of the page with a changed file: the file, or how many there are.
fn changed_files(page: &Page, then: &Code, now: &Code) -> String {
    let changed = then.changed(now);
    let mut text = String::new();
    for entry in page.files {
        let here: Vec<&String> = changed.iter().filter(|path| Page::covers(entry, path)).collect();
        text += &match here.as_slice() {
            [] => continue,
            [path] => format!("{:14}changed: {path}\n", ""),
            [first, rest @ ..] => format!("{:14}changed: {first} and {} more in {entry}\n", "", rest.len()),
        };
    }
    text
}
