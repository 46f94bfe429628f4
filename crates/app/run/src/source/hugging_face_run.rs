//! A folder of the Hugging Face library in place of a run's.

use std::path::{Path, PathBuf};

use config::{Marks, ModelSpec, RunConfig, TokenizerSpec};
use data::TOKENIZER_FILE;
use files::InputKind;
use interchange::special_tokens;

use crate::failure::Failure;

/// Files of the library about tokenization and generation, in addition to `tokenizer.json`; they are copied with the
/// weights.
pub const TOKENIZER_FILES: [&str; 10] = [
    TOKENIZER_FILE,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    special_tokens::GENERATION_CONFIG,
];

/// Whether `folder` is of the library and no run's.
pub fn is_folder(folder: &Path) -> bool {
    folder.join(interchange::folder::CONFIG).is_file() && !folder.join("run.toml").is_file()
}

/// The run that begins with a folder of the library: its model, and defaults.
///
/// # Errors
/// Files of a tokenizer that cannot be read.
pub fn run_file(model: &ModelSpec, folder: &Path) -> Result<String, Failure> {
    let mut config = RunConfig::quick_start();
    config.model = model.clone();
    config.train.sequence_length = model.context;
    config.data.tokenizer = tokenizer_of(folder);
    let Marks { begin, end } =
        data::marks_of(&config.data.tokenizer).map_err(|error| Failure::Input(error.to_string()))?;
    (config.data.begin, config.data.end) = (begin, end);
    Ok(config.to_toml())
}

/// The tokenizer of a folder: its file, or that of token files where it has none.
pub fn tokenizer_of(folder: &Path) -> TokenizerSpec {
    let file = folder.join(TOKENIZER_FILE);
    if file.is_file() { TokenizerSpec::File(file) } else { TokenizerSpec::OfTokenFiles }
}

/// Copies the files that say how text becomes tokens, as far as they are there, and the special tokens of a folder of
/// the library. Returns the names of the files.
///
/// # Errors
/// A folder that cannot be written.
pub fn copy_tokenizer(from: &Path, to: &Path) -> Result<Vec<&'static str>, Failure> {
    let mut names = vec![];
    for name in TOKENIZER_FILES {
        let (source, target): (PathBuf, PathBuf) = (from.join(name), to.join(name));
        if source.is_file() {
            let copied = files::copy(&source, InputKind::Tokenizer, &target);
            copied.map_err(|error| Failure::Input(format!("{} cannot be written: {error}", target.display())))?;
            names.push(name);
        }
    }
    special_tokens::keep(from, to)?;
    Ok(names)
}
