//! A process next to a launcher that ends the processes of a launcher that was killed. Linux sends them SIGTERM by
//! itself, which a stopped process (SIGSTOP) receives once it continues. Linux continues it where its group has lost
//! its last parent in the session and was stopped before: not one that is stopped at the same moment, nor one whose new
//! parent is in the session of the launcher.

use std::collections::BTreeSet;
use std::io::{BufRead, Write, stdin};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::Failure;
use crate::launch::OWN_VARIABLES;

/// The guard of a launcher: it knows the process groups that live.
pub struct Guard {
    /// The end of this pipe is the end of the launcher.
    input: ChildStdin,
}

impl Guard {
    /// Starts `program` as the guard of this process.
    ///
    /// # Errors
    /// A program that cannot be started.
    pub fn start(program: &Path) -> Result<Guard, Failure> {
        let mut command = Command::new(program);
        command.arg("launch-guard").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        for name in OWN_VARIABLES {
            command.env_remove(name);
        }
        // Signals of a terminal are for the launcher alone.
        command.process_group(0);
        let failed = |reason: String| Failure::Work(format!("the guard of the launcher cannot be started: {reason}"));
        let mut guard = command.spawn().map_err(|error| failed(error.to_string()))?;
        let input = guard.stdin.take().ok_or_else(|| failed("it has no input".into()))?;
        Ok(Guard { input })
    }

    /// Guards the process group `group`.
    pub fn watch(&self, group: u32) {
        self.tell('+', group);
    }

    /// Forgets the process group `group`, whose process has ended: its number may be given to another one.
    pub fn forget(&self, group: u32) {
        self.tell('-', group);
    }

    fn tell(&self, sign: char, group: u32) {
        // A guard that was killed guards nothing, and the run continues.
        let _ = (&self.input).write_all(format!("{sign}{group}\n").as_bytes());
    }
}

/// `pleach launch-guard`: reads process groups until the launcher ends, and ends those that are left.
///
/// # Errors
/// None: a process that has ended needs no signal.
pub fn serve() -> Result<(), Failure> {
    let groups = living(stdin().lock());
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        // Those that are stopped receive the first signal when they continue by the second.
        let _ = kill_process_group(group, Signal::TERM);
        let _ = kill_process_group(group, Signal::CONT);
    }
    Ok(())
}

/// The groups of the lines of `input` that were not forgotten.
fn living(input: impl BufRead) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        match (line.get(..1), line.get(1..).and_then(|group| group.parse().ok())) {
            (Some("+"), Some(group)) if group > 1 => drop(groups.insert(group)),
            (Some("-"), Some(group)) => drop(groups.remove(&group)),
            (Some(_) | None, _) => {}
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_live_until_they_are_forgotten() {
        let groups = living(&b"+12\n+13\n-12\n+x\n+-1\n+0\n\n-99\n+14"[..]);
        assert_eq!(groups.into_iter().collect::<Vec<_>>(), [13, 14]);
    }
}
