//! Writing pairs.

use std::io::{BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};

use files::Draft;

use super::{MAGIC, TYPES, VERSION, pair};
use crate::error::DataError;
use crate::tokens::TokenType;

/// Vocabularies below this are written in 16 bits, others in 32: so does Megatron-LM.
const SHORT_VOCABULARY: usize = 65_500;

/// Writes a pair document by document, each as one sequence. The files have other names until they are whole.
#[derive(Debug)]
pub struct MegatronWriter {
    paths: [PathBuf; 2],
    tokens: BufWriter<Draft>,
    token_type: TokenType,
    lengths: Vec<i32>,
    row: Vec<u8>,
}

impl MegatronWriter {
    /// Begins the pair of which `path` is either file, or the name without an ending.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(path: &Path, vocabulary: usize) -> Result<MegatronWriter, DataError> {
        let paths = pair(path);
        let token_type = if vocabulary < SHORT_VOCABULARY { TokenType::U16 } else { TokenType::I32 };
        let draft = Draft::create(&paths[1]);
        let tokens = BufWriter::new(draft.map_err(|reason| unwritable(&paths[1], reason))?);
        Ok(MegatronWriter { paths, tokens, token_type, lengths: vec![], row: vec![] })
    }

    /// Appends a document.
    ///
    /// # Errors
    /// A file that cannot be written, or a document of 2^31 tokens.
    pub fn push(&mut self, tokens: &[u32]) -> Result<(), DataError> {
        let length = i32::try_from(tokens.len()).map_err(|_| {
            unwritable(&self.paths[1], std::io::Error::other("a document has 2147483648 tokens or more"))
        })?;
        self.lengths.push(length);
        self.row.clear();
        tokens.iter().for_each(|token| self.token_type.encode(*token, &mut self.row));
        self.tokens.write_all(&self.row).map_err(|reason| unwritable(&self.paths[1], reason))
    }

    /// Writes the index and gives both files their names.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(self) -> Result<(), DataError> {
        let [index, tokens] = &self.paths;
        let written = self.tokens.into_inner().map_err(IntoInnerError::into_error);
        let of_tokens = written.and_then(|draft| draft.file.sync_all().map(|()| draft));
        let of_tokens = of_tokens.map_err(|reason| unwritable(tokens, reason))?;
        let mut of_index = Draft::create(index).map_err(|reason| unwritable(index, reason))?;
        let written = of_index.file.write_all(&index_of(&self.lengths, self.token_type));
        written.map_err(|reason| unwritable(index, reason))?;
        of_tokens.keep().map_err(|reason| unwritable(tokens, reason))?;
        of_index.keep().map_err(|reason| unwritable(index, reason))
    }
}

fn index_of(lengths: &[i32], token_type: TokenType) -> Vec<u8> {
    let code = TYPES.iter().find(|(_, known)| *known == token_type).map_or(0, |(code, _)| *code);
    let mut index = MAGIC.to_vec();
    index.extend(VERSION.to_le_bytes());
    index.push(code);
    index.extend((lengths.len() as u64).to_le_bytes());
    index.extend((lengths.len() as u64 + 1).to_le_bytes());
    lengths.iter().for_each(|length| index.extend(length.to_le_bytes()));
    let mut pointer = 0;
    for length in lengths {
        index.extend(i64::to_le_bytes(pointer));
        pointer += i64::from(*length) * token_type.width_bytes() as i64;
    }
    (0..=lengths.len() as u64).for_each(|document| index.extend(document.to_le_bytes()));
    index
}

fn unwritable(path: &Path, reason: std::io::Error) -> DataError {
    DataError::Unwritable { path: path.to_path_buf(), reason }
}
