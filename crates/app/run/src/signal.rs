//! The signals that end work.

use std::fmt;
use std::time::Duration;

/// Signals that follow the first one within this time are the same request: GNU `timeout` sends two at once, one to the
/// process and one to its group.
pub const SAME_REQUEST: Duration = Duration::from_secs(1);

/// A signal that ends work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM: the end of a job.
    Terminate,
    /// SIGUSR1: the warning before it, where Slurm is asked for one.
    User1,
}

impl Signal {
    /// Each of them.
    pub const ALL: [Signal; 3] = [Signal::Interrupt, Signal::Terminate, Signal::User1];

    /// Its number.
    pub fn number(self) -> i32 {
        match self {
            Signal::Interrupt => signal_hook::consts::SIGINT,
            Signal::Terminate => signal_hook::consts::SIGTERM,
            Signal::User1 => signal_hook::consts::SIGUSR1,
        }
    }

    /// The exit code of a command that it ended: 128 and its number.
    pub fn exit_code(self) -> u8 {
        128 + self.number() as u8
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Interrupt => "Ctrl-C",
            Signal::Terminate => "SIGTERM",
            Signal::User1 => "SIGUSR1",
        })
    }
}
