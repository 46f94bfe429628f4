//! Why a command failed, and the exit code that says so.

use blame::CauseKind;
use checkpoint::CheckpointError;
use config::Problem;
use interchange::InterchangeError;

use crate::signal::Signal;

/// A failure with its message.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Invalid input: arguments or files of the user.
    #[error("{0}")]
    Input(String),
    /// All that is wrong with a run, one line each.
    #[error("{}", lines(.0))]
    Run(Vec<Problem>),
    /// The work itself failed.
    #[error("{0}")]
    Work(String),
    /// A file of a run, or the output, cannot be written.
    #[error("{0}")]
    Write(String),
    /// A failure of process 0, which prints it.
    #[error("{0}")]
    OfFirst(String),
    /// A failure that all processes of the run know.
    #[error("{0}")]
    Reported(Box<Failure>),
    /// A process that this one started has failed or was stopped.
    #[error("{message}")]
    Process {
        /// Its exit code; 128 and the number of the signal that ended it.
        code: u8,
        /// Its name and its end, for the user.
        message: String,
    },
    /// A step that was not as usual: the run is to return to a checkpoint. No weight was changed.
    #[error("{reason}")]
    RollBack {
        /// The step, counted from 1.
        step: u32,
        /// Its anomaly, as a report names it.
        kind: CauseKind,
        /// For the user.
        reason: String,
    },
    /// A signal; everything was written.
    #[error("{told}")]
    Interrupted {
        /// Which.
        signal: Signal,
        /// The state of the work.
        told: String,
    },
}

impl From<sync::NoThread> for Failure {
    fn from(error: sync::NoThread) -> Failure {
        Failure::Work(error.to_string())
    }
}

impl From<InterchangeError> for Failure {
    fn from(error: InterchangeError) -> Failure {
        Failure::Input(error.to_string())
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Failure {
        Failure::Input(error.to_string())
    }
}

/// The most lines of a message about a run.
const MOST_LINES: usize = 128;

fn lines(problems: &[Problem]) -> String {
    let mut lines: Vec<String> = problems.iter().take(MOST_LINES).map(ToString::to_string).collect();
    if problems.len() > MOST_LINES {
        lines.push(format!("and {} more; correct these first", problems.len() - MOST_LINES));
    }
    lines.join("\n")
}

impl Failure {
    /// The exit code of work that failed.
    pub const WORK: u8 = 1;
    /// The exit code of input that is refused.
    pub const INPUT: u8 = 2;

    /// Whether it is about what the user wrote or named.
    pub fn is_input(&self) -> bool {
        match self {
            Failure::Input(_) | Failure::Run(_) => true,
            Failure::Reported(failure) => failure.is_input(),
            Failure::Work(_)
            | Failure::Write(_)
            | Failure::OfFirst(_)
            | Failure::Process { .. }
            | Failure::RollBack { .. }
            | Failure::Interrupted { .. } => false,
        }
    }

    /// 2 for the user's input, 128 and its number for a signal, 1 for the rest. The command line's parser uses 2 too.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Input(_) | Failure::Run(_) => Failure::INPUT,
            Failure::Work(_) | Failure::Write(_) | Failure::OfFirst(_) | Failure::RollBack { .. } => Failure::WORK,
            Failure::Reported(failure) => failure.exit_code(),
            Failure::Process { code, .. } => *code,
            Failure::Interrupted { signal, .. } => signal.exit_code(),
        }
    }
}
