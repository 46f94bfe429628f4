//! Arguments of `blame`. The comments here are the help page.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::format::Format;

/// Examples.
pub const BLAME_HELP: &str = "Examples:
  pleach blame runs/latest
  pleach blame runs/latest --list
  pleach blame runs/latest --attempt 3 --json

Each start of a run is an attempt. A failed one leaves a report in the folder
failures of the run: the rank, the host, the step, the instruction, the ranks
that take part in it, the cause, and the last 20 instructions of every rank.";

/// Arguments of `blame`.
#[derive(Debug, Args)]
pub struct BlameArguments {
    /// Run folder
    #[arg(value_name = "RUN_FOLDER")]
    pub run: PathBuf,
    /// Show the report of this attempt; the default is the newest failed attempt
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
    /// List all failed attempts, one per line
    #[arg(long, conflicts_with = "attempt")]
    pub list: bool,
    /// Print the report as JSON, with all instructions
    #[arg(long)]
    pub json: bool,
}

impl BlameArguments {
    /// [`BlameArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}
