//! Commands that read the weights of a run: `eval`, `generate` and `forward`.

pub mod eval;
pub mod forward;
pub mod generate;
mod printer;
mod sequences;

use run::failure::Failure;
use run::source::run_source::RunSource;

use crate::arguments::inference::FromArguments;

/// The run that `arguments` name; `changes` replace keys of its file.
///
/// # Errors
/// The errors of [`RunSource::open_weights`].
fn source(arguments: &FromArguments, changes: &[(&str, toml::Value)]) -> Result<RunSource, Failure> {
    RunSource::open_weights(&arguments.from, arguments.weights.which(), changes, &arguments.overrides)
}
