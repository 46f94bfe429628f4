//! Arguments of `fetch`. The comments here are the help page.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `fetch`.
#[derive(Debug, Args)]
pub struct FetchArguments {
    /// Address of the run: its run.store
    #[arg(value_name = "s3://BUCKET/PREFIX")]
    pub address: String,
    /// Folder for the run; what it has already is kept where it is as new
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
}
