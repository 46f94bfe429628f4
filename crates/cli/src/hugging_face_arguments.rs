//! Arguments of `import` and `export`. The comments here are the help pages.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// Folder with config.json and model.safetensors, in one file or in several with an index
    #[arg(value_name = "HF_FOLDER")]
    pub from: PathBuf,
    /// Folder of the run that is made of it
    #[arg(long, value_name = "RUN_FOLDER")]
    pub out: PathBuf,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// Folder that `pleach train` or `pleach import` wrote
    #[arg(value_name = "RUN_FOLDER")]
    pub from: PathBuf,
    /// Folder that is made of it
    #[arg(long, value_name = "HF_FOLDER")]
    pub out: PathBuf,
}
