//! Arguments of the commands that ask about a cluster. The comments here are the help pages.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{Format, RunArguments};

/// Which cluster is meant.
#[derive(Debug, Args)]
pub struct ClusterArguments {
    /// A profile: the name of one that is part of the program, or a file
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub cluster: String,
    /// Take the run for one of the trainer that [software] of the profile describes, not for pleach's
    #[arg(long)]
    pub software: bool,
}

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArguments {
    /// Which run is meant.
    #[command(flatten)]
    pub run: RunArguments,
    /// Which cluster is meant.
    #[command(flatten)]
    pub cluster: ClusterArguments,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Draw the step into this file
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Write every instruction with its time into this file, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
}

impl SimulateArguments {
    /// [`SimulateArguments::json`] as a type.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}
