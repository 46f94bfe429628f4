//! `pleach fetch`: a run of a store in a folder of this machine.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::run::stored::{self, Patient};

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

/// Downloads the newest checkpoint that is whole, and the files of the run.
///
/// # Errors
/// A store without an answer or without a checkpoint, and a folder that cannot be written.
pub fn fetch(arguments: &FetchArguments) -> Result<(), Failure> {
    let stored = stored::open("the address", &arguments.address, Patient::Fixed)?;
    if stored.newest().map_err(stored::of_store)?.is_none() {
        return Err(stored::none(&stored));
    }
    stored::bring_newest(&stored, &arguments.out)
}
