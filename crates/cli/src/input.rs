//! From arguments to a legal run and its text.

use std::fmt::Display;

use data::Dataset;
use spec::{DataSpec, RunConfig};

use crate::arguments::RunArguments;
use crate::failure::Failure;

/// The run that the arguments mean.
///
/// # Errors
/// A run file that cannot be read, and all that is wrong with the run, one line each.
pub fn load(arguments: &RunArguments) -> Result<RunConfig, Failure> {
    let (name, text) = match &arguments.file {
        None => (String::new(), String::new()),
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::Input(format!("{name} cannot be read: {error}")))?;
            (name, text)
        }
    };
    let mut overrides = arguments.overrides.clone();
    if let Some(path) = &arguments.data {
        // Quoted as JSON quotes, which TOML reads.
        let quoted = serde_json::Value::from(path.to_string_lossy());
        overrides.push(format!("data.path={quoted}"));
    }
    let vocabulary_of = |data: &DataSpec| data::vocabulary_of(data).map_err(|error| error.to_string());
    RunConfig::load_with(&name, &text, &overrides, &vocabulary_of).map_err(|problems| Failure::Input(lines(&problems)))
}

fn lines(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// What a run reads: its tokenizer and its text, in two parts.
///
/// # Errors
/// Text that cannot be used.
pub fn text(config: &RunConfig) -> Result<Dataset, Failure> {
    Dataset::open(&config.data).map_err(|error| Failure::Input(error.to_string()))
}
