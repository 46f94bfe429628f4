//! Arguments of `import` and `export`. The comments here are the help pages.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use config::Format;

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
    /// Format of the numbers, to which each is rounded once
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Stored::Fp32)]
    pub dtype: Stored,
}

/// Formats of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stored {
    /// Single precision: to the last bit what pleach has
    Fp32,
    /// Its upper half
    Bf16,
    /// Half precision, up to 65504
    Fp16,
}

impl From<Stored> for Format {
    fn from(stored: Stored) -> Format {
        match stored {
            Stored::Fp32 => Format::Fp32,
            Stored::Bf16 => Format::Bf16,
            Stored::Fp16 => Format::Fp16,
        }
    }
}
