//! Errors of a run file, each with its remedy.

use std::fmt;

use crate::secret::{HIDDEN, is_secret_key, without_credentials};

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// In the run file: line and column, counted from 1.
    File {
        /// Name of the file.
        name: String,
        /// Line.
        line: usize,
        /// Column, in characters.
        column: usize,
    },
    /// In an override: what was written after `--set`, as messages repeat it.
    Override(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File { name, line, column } => write!(f, "{name}:{line}:{column}"),
            Location::Override(text) => write!(f, "--set {text}"),
        }
    }
}

/// One rule that a run breaks. Reads as `location: key = value rule; remedy`. It has no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `section.key`; empty where the file as a whole is meant.
    pub key: String,
    /// The value as it would be written in a run file, if the value is what is wrong.
    pub value: Option<String>,
    /// The rule, as the rest of a sentence that begins with the key: "must ...".
    pub rule: String,
    /// Remedy, as an instruction; empty where none is known.
    pub remedy: String,
    /// Where the value was written; `None` for defaults and for values without a file.
    pub location: Option<Location>,
}

impl Problem {
    /// `key = value rule; remedy`.
    pub fn of_value(
        key: &str,
        value: impl fmt::Display,
        rule: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Problem {
        let value = if is_secret_key(key) { HIDDEN.into() } else { without_credentials(&value.to_string()) };
        Problem { value: Some(value), ..Problem::of_key(key, rule, remedy) }
    }

    /// `key rule; remedy`.
    pub fn of_key(key: &str, rule: impl Into<String>, remedy: impl Into<String>) -> Problem {
        let rule = without_credentials(&rule.into());
        Problem { key: key.into(), value: None, rule, remedy: remedy.into(), location: None }
    }

    /// The same problem, found at `location`.
    pub fn at(self, location: Option<Location>) -> Problem {
        Problem { location, ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        let subject = match &self.value {
            Some(value) => format!("{} = {value}", self.key),
            None => self.key.clone(),
        };
        let separator = if subject.is_empty() { "" } else { " " };
        write!(f, "{subject}{separator}{}", self.rule)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
