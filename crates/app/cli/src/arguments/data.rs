//! Arguments of `data`. The comments here are the help pages.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Commands on text.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Tokenize text to a token file (*.tokens) or a pair of Megatron-LM (*.bin and *.idx)
    #[command(after_help = crate::arguments::exit_codes::EXIT_CODES)]
    Tokenize(TokenizeArguments),
}

/// Arguments of `tokenize`.
#[derive(Clone, Debug, Args)]
pub struct TokenizeArguments {
    /// Text, JSON lines (also in gzip or zstd), parquet or Arrow; folders and patterns of them; token files, or *.idx
    /// of Megatron-LM
    #[arg(required = true, value_name = "IN")]
    pub inputs: Vec<PathBuf>,
    /// Output: FILE.tokens, which holds its tokenizer and hashes, or FILE.bin with FILE.idx
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// "bytes", "bpe:2048" to train a tokenizer of 2048 tokens, or the path of a tokenizer.json; the default is the
    /// tokenizer of the input token files, or bytes
    #[arg(long, value_name = "TOKENIZER")]
    pub tokenizer: Option<String>,
    /// Token before each document, such as "<s>"; "" for none. The default is what the files of the tokenizer say
    #[arg(long, value_name = "TOKEN")]
    pub begin: Option<String>,
    /// Token after each document, such as "</s>"; "" for none. The default is what the files of the tokenizer say
    #[arg(long, value_name = "TOKEN")]
    pub end: Option<String>,
    /// Field of JSON lines or column of tables with the text or the tokens; the default is text, input_ids or tokens
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
    /// Files of folders and patterns that cannot be read: "refuse" names all of them, "skip" leaves them out
    #[arg(long, value_name = "REACTION", default_value = "refuse")]
    pub odd_files: String,
}
