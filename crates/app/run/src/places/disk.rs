//! The files that a run file names.

use std::path::Path;

use config::{DataSpec, Files, Marks, SourceSpec, TokenizerSpec};
use files::{InputKind, read_text};
use stores::Address;

/// Files as they are named, from the folder that the command was started in.
#[derive(Debug)]
pub struct Disk;

impl Files for Disk {
    fn vocabulary(&self, data: &DataSpec) -> Result<usize, String> {
        let is_address = |source: &&SourceSpec| source.is_tokens() && Address::is_meant(&source.path.to_string_lossy());
        if let Some(source) = data.sources.iter().find(is_address) {
            let path = source.path.display();
            return Err(format!("{path} is not on this machine; set model.vocabulary, or download it"));
        }
        data::vocabulary_of(data).map_err(|error| error.to_string())
    }

    fn marks(&self, tokenizer: &TokenizerSpec) -> Result<Marks, String> {
        data::marks_of(tokenizer).map_err(|error| error.to_string())
    }

    fn text(&self, path: &Path) -> Result<String, String> {
        // The caller says that it cannot be read.
        read_text(path, InputKind::Schedule).map_err(|error| std::io::Error::from(error).to_string())
    }
}
