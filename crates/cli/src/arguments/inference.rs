//! Arguments of the commands that read a run's weights. The comments here are the help pages.

use std::path::PathBuf;

use clap::Args;

/// Whose weights, on how many ranks.
#[derive(Debug, Args)]
pub struct FromArguments {
    /// Folder that `pleach train` wrote: run.toml, the tokenizer and weights.safetensors; or one of its checkpoints, or a Hugging Face folder
    #[arg(long, value_name = "RUN_FOLDER")]
    pub from: PathBuf,
    /// Set a key of the run file; by default the command runs on one rank, with --set parallelism.tp=2 on two
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", allow_hyphen_values = true)]
    pub overrides: Vec<String>,
}

/// Arguments of `eval`.
#[derive(Debug, Args)]
pub struct EvalArguments {
    /// Whose weights.
    #[command(flatten)]
    pub from: FromArguments,
    /// Measure on all of this text (file or folder); by default on the held-out part of the run's own text
    #[arg(long, value_name = "FILE_OR_FOLDER")]
    pub data: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArguments {
    /// Whose weights.
    #[command(flatten)]
    pub from: FromArguments,
    /// Beginning of the text
    #[arg(long, value_name = "TEXT")]
    pub prompt: String,
    /// Tokens to add
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub max_tokens: usize,
    /// Temperature: 0 takes the most probable token, 1 samples from the model's distribution
    #[arg(long, value_name = "NUMBER", default_value_t = 0.8, allow_hyphen_values = true)]
    pub temperature: f32,
    /// Sample from this number of most probable tokens
    #[arg(long, value_name = "COUNT")]
    pub top_k: Option<usize>,
    /// Sample from the most probable tokens that together have this probability
    #[arg(long, value_name = "PROBABILITY", default_value_t = 1.0, allow_hyphen_values = true)]
    pub top_p: f32,
    /// Seed of the random numbers: the same seed gives the same text
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
}

/// What `forward` reads and writes.
pub const FORWARD_FORMAT: &str = "Input, JSON:
  input_ids      [B][S]  tokens
  labels         [B][S]  the target at each place (not shifted); -100 does not count
  position_ids   [B][S]  optional; else 0, 1, .. S-1
  document_ids   [B][S]  optional; a token sees its own document only
  prefix_length  [B], or [B][documents] with document_ids: optional;
                 so many leading tokens all see each other

Output, safetensors: logits [B, S, V], loss [1], and with --grads grad.NAME of every parameter";

/// Arguments of `forward`.
#[derive(Debug, Args)]
pub struct ForwardArguments {
    /// Whose weights.
    #[command(flatten)]
    pub from: FromArguments,
    /// The sequences
    #[arg(long, value_name = "FILE.json")]
    pub tokens: PathBuf,
    /// File for the results
    #[arg(long, value_name = "FILE.safetensors")]
    pub out: PathBuf,
    /// Also compute the gradient of every parameter
    #[arg(long)]
    pub grads: bool,
}
