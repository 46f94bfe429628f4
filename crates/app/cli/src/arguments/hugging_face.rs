//! Arguments of `import` and `export`. The comments here are the help pages.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use config::Format;

use crate::arguments::inference::WeightsChoice;

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// Folder with config.json and model.safetensors (one file, or shards with an index)
    #[arg(value_name = "HF_FOLDER")]
    pub from: PathBuf,
    /// Run folder to create
    #[arg(long, value_name = "RUN_FOLDER")]
    pub out: PathBuf,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// Run folder of train or import
    #[arg(value_name = "RUN_FOLDER")]
    pub from: PathBuf,
    /// Folder to create
    #[arg(long, value_name = "HF_FOLDER")]
    pub out: PathBuf,
    /// Data type of the weights; each weight is rounded once
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Stored::Fp32)]
    pub dtype: Stored,
    /// The weights to write
    #[arg(long, value_enum, value_name = "WEIGHTS", default_value_t = WeightsChoice::Trained)]
    pub weights: WeightsChoice,
    /// The form of a run with model.lora: adapters merged into the model, or alone as PEFT reads them
    #[arg(long = "as", value_enum, value_name = "FORM", default_value_t = ExportedForm::Merged)]
    pub form: ExportedForm,
    /// Replace the files of an earlier export in the folder; other files stay. By default the folder must be empty
    #[arg(long)]
    pub overwrite: bool,
}

/// Forms of exported weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportedForm {
    /// The whole model, with its adapters added to its matrices
    Merged,
    /// adapter_config.json and adapter_model.safetensors, for PEFT
    Adapters,
}

/// Data types of exported weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stored {
    /// Single precision, the bits of the run's weights
    Fp32,
    /// bfloat16
    Bf16,
    /// Half precision; the largest value is 65,504
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
