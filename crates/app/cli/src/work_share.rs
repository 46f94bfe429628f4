//! The processes that do the work of a command, where a launcher started several.

use run::failure::Failure;
use run::process_group::place::own_number;

use crate::arguments::Command;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkShare {
    /// Each has ranks; they meet.
    Ranks,
    /// Each by itself: the command describes its own process, or starts others.
    Every,
    /// Process 0, so that nothing is printed or written twice.
    First,
}

impl WorkShare {
    fn of(command: &Command) -> WorkShare {
        match command {
            Command::Train(_)
            | Command::Prove(_)
            | Command::Diff(_)
            | Command::Eval(_)
            | Command::Generate(_)
            | Command::Forward(_) => WorkShare::Ranks,
            Command::Launch(_)
            | Command::LaunchAgent
            | Command::LaunchGuard
            | Command::Doctor(_)
            | Command::MpiAnswers(_) => WorkShare::Every,
            Command::Check(_)
            | Command::Explain(_)
            | Command::Simulate(_)
            | Command::Plan(_)
            | Command::Validate(_)
            | Command::Cluster(_)
            | Command::Import(_)
            | Command::Export(_)
            | Command::Presets(_)
            | Command::Data(_)
            | Command::Fetch(_)
            | Command::Inspect(_)
            | Command::Report(_)
            | Command::Blame(_)
            | Command::Completions(_) => WorkShare::First,
        }
    }
}

/// Whether this process has a part in `command`. Another one ends at once and prints nothing.
///
/// # Errors
/// Variables of launchers that contradict each other, where they decide.
pub fn has_part(command: &Command) -> Result<bool, Failure> {
    match WorkShare::of(command) {
        WorkShare::Ranks | WorkShare::Every => Ok(true),
        WorkShare::First => Ok(own_number()? == 0),
    }
}
