//! From arguments to a legal run and its text.

use std::fmt::Display;

use data::{Document, Split};
use spec::RunConfig;

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
    let mut config =
        RunConfig::load(&name, &text, &arguments.overrides).map_err(|problems| Failure::Input(lines(&problems)))?;
    if let Some(path) = &arguments.data {
        config.data.path = Some(path.clone());
    }
    Ok(config)
}

fn lines(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The text of a run, in its two parts.
///
/// # Errors
/// Text that cannot be read.
pub fn text(config: &RunConfig) -> Result<Split, Failure> {
    let documents: Vec<Document> = match &config.data.path {
        None => data::embedded(),
        Some(path) => data::read(path).map_err(|error| Failure::Input(error.to_string()))?,
    };
    Ok(data::split(documents))
}
