//! Values that make a command run, listen, send or write: only the user may choose them.

use std::fmt;
use std::ops::Deref;

/// A value that the user has chosen: on the command line, in a run file that the command line names, or in a run file
/// of a folder that the user's own secret confirms. Code that runs, listens, sends or writes takes its values in this
/// form, so that those of a stranger's file do not reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct Trusted<T>(T);

impl<T> Trusted<T> {
    pub(crate) fn new(value: T) -> Trusted<T> {
        Trusted(value)
    }

    /// A value of the command line, or one that follows from it alone. `cargo run -p xtask -- tidy` lists the files
    /// that may say so.
    pub fn of_command_line(value: T) -> Trusted<T> {
        Trusted(value)
    }

    /// A value that follows from this one alone.
    pub fn map<U>(self, follows: impl FnOnce(T) -> U) -> Trusted<U> {
        Trusted(follows(self.0))
    }
}

impl<T> Deref for Trusted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Trusted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: fmt::Display> fmt::Display for Trusted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who answers for the text of a run file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Author {
    /// The user of this process, who named the file on the command line, or whose secret confirms it.
    User,
    /// Anyone.
    #[default]
    Unknown,
}

/// Requests to the addresses of `[data]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests;

/// The most that the value of a key can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// It changes what is computed, what is shown, and which files the run's folder has. It may open libraries of the
    /// system, connections between the run's processes, and this user's caches: at places that no key names.
    Within,
    /// It names files of this machine that are read.
    Reads,
    /// It names an address to which requests may be sent.
    Sends,
    /// It names a place where files are written.
    Writes,
    /// It names an address where the run listens.
    Listens,
    /// It is a command that is run.
    Runs,
}

impl Consequence {
    /// Whether only the user may choose such a value: its key is read as [`Trusted`].
    pub fn is_for_user_alone(self) -> bool {
        match self {
            Consequence::Within | Consequence::Reads => false,
            Consequence::Sends | Consequence::Writes | Consequence::Listens | Consequence::Runs => true,
        }
    }
}
