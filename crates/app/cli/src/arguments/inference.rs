//! Arguments of the commands that read a run's weights. The comments here are the help pages.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use run::source::run_source::WhichWeights;

/// The weights, and the ranks of the command.
#[derive(Debug, Args)]
pub struct FromArguments {
    /// Run folder, checkpoint or Hugging Face folder
    #[arg(long, value_name = "RUN_FOLDER")]
    pub from: PathBuf,
    /// Set a key of the run file, e.g. --set parallelism.tp=2; the default is one rank
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", allow_hyphen_values = true)]
    pub overrides: Vec<String>,
    /// The weights to use
    #[arg(long, value_enum, value_name = "WEIGHTS", default_value_t = WeightsChoice::Trained)]
    pub weights: WeightsChoice,
}

/// The weights of a run that a command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WeightsChoice {
    /// The weights of the last update
    Trained,
    /// Their moving average, of a run with train.ema_decay; from its newest checkpoint
    Ema,
}

impl WeightsChoice {
    /// The same, for the run's source.
    pub fn which(self) -> WhichWeights {
        match self {
            WeightsChoice::Trained => WhichWeights::Trained,
            WeightsChoice::Ema => WhichWeights::Average,
        }
    }
}

/// Arguments of `eval`.
#[derive(Debug, Args)]
pub struct EvalArguments {
    /// The weights.
    #[command(flatten)]
    pub from: FromArguments,
    /// Measure on this text; the default is the held-out part of the run's text
    #[arg(long, value_name = "FILE_OR_FOLDER")]
    pub data: Option<PathBuf>,
    /// Field of JSON lines or column of tables of --data with the text, the tokens or the messages
    #[arg(long, value_name = "NAME", requires = "data")]
    pub column: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArguments {
    /// The weights.
    #[command(flatten)]
    pub from: FromArguments,
    /// Beginning of the text
    #[arg(long, value_name = "TEXT")]
    pub prompt: String,
    /// Number of tokens to generate
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub max_tokens: usize,
    /// Temperature: 0 for the most probable token, 1 for samples of the model's distribution
    #[arg(long, value_name = "NUMBER", default_value_t = 0.8, allow_hyphen_values = true)]
    pub temperature: f32,
    /// Sample from the COUNT most probable tokens
    #[arg(long, value_name = "COUNT")]
    pub top_k: Option<usize>,
    /// Sample from the most probable tokens whose probabilities add up to this
    #[arg(long, value_name = "PROBABILITY", default_value_t = 1.0, allow_hyphen_values = true)]
    pub top_p: f32,
    /// Seed of the random numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// End before this text, which is not printed; may be given several times. The model's end token ends a text, too
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
}

/// Formats of the input and output of `forward`.
pub const FORWARD_FORMAT: &str = "Input, JSON:
  input_ids      [B][S]  tokens
  labels         [B][S]  target at each position (not shifted); -100 for none
  position_ids   [B][S]  optional; default 0, 1, .. S-1
  document_ids   [B][S]  optional; tokens attend to their own document
  prefix_length  [B], or [B][documents] with document_ids: optional; number of
                 leading tokens that attend to each other

Output, safetensors: logits [B, S, V], loss [1], and with --grads grad.NAME";

/// Arguments of `forward`.
#[derive(Debug, Args)]
pub struct ForwardArguments {
    /// The weights.
    #[command(flatten)]
    pub from: FromArguments,
    /// Input sequences; see below
    #[arg(long, value_name = "FILE.json")]
    pub tokens: PathBuf,
    /// Output file; see below
    #[arg(long, value_name = "FILE.safetensors")]
    pub out: PathBuf,
    /// Also compute the gradient of every parameter
    #[arg(long)]
    pub grads: bool,
}
