//! Arguments that name a run. The comments here are the help pages.

use std::path::PathBuf;

use clap::Args;
use run::run_file::RunFile;

/// The run: a run file, and changes to it.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Run file (TOML) or preset:NAME; every key has a default
    #[arg(value_name = "RUN.toml")]
    pub file: Option<PathBuf>,
    /// Set a key of the run file, e.g. --set parallelism.dp=4; repeatable, the last value counts
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", allow_hyphen_values = true)]
    pub overrides: Vec<String>,
    /// Text of the run, instead of the built-in text: text, JSON lines, parquet, Arrow or a token file; a file, a
    /// folder, a pattern or an address
    #[arg(long, value_name = "FILE_OR_FOLDER")]
    pub data: Option<PathBuf>,
}

impl RunArguments {
    /// The run that they name.
    pub fn run_file(&self) -> RunFile {
        RunFile { file: self.file.clone(), overrides: self.overrides.clone(), text: self.data.clone() }
    }
}
