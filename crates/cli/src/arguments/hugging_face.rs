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
    /// Run folder to create
    #[arg(long, value_name = "RUN_FOLDER")]
    pub out: PathBuf,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// Folder that `pleach train` or `pleach import` wrote
    #[arg(value_name = "RUN_FOLDER")]
    pub from: PathBuf,
    /// Folder to create
    #[arg(long, value_name = "HF_FOLDER")]
    pub out: PathBuf,
    /// Data type of the weights; each weight is rounded once
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Stored::Fp32)]
    pub dtype: Stored,
}

/// Formats of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stored {
    /// Single precision: every bit of pleach's weights
    Fp32,
    /// bfloat16: the upper half of single precision
    Bf16,
    /// Half precision; the largest value is 65504
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
