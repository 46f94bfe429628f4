//! Writing token files.

use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use files::Draft;
use xxhash_rust::xxh3::Xxh3Default;

use super::{HASH_AT, HEADER_BYTES, MAGIC, VERSION, finish_hash};
use crate::error::DataError;
use crate::tokenizer::Tokenizer;
use crate::tokens::TokenType;

/// Writes a token file document by document. It has another name until it is whole.
pub struct TokenFileWriter {
    path: PathBuf,
    file: BufWriter<Draft>,
    token_type: TokenType,
    /// Everything in front of the tokens; numbers that are not known yet are 0.
    front: Vec<u8>,
    num_documents: usize,
    starts: Vec<u64>,
    hash: Xxh3Default,
    row: Vec<u8>,
}

impl TokenFileWriter {
    /// Begins the file `path` with `num_documents` documents of tokens of `tokenizer`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(path: &Path, tokenizer: &Tokenizer, num_documents: usize) -> Result<TokenFileWriter, DataError> {
        let description = tokenizer.description()?;
        let token_type = TokenType::of_vocabulary(tokenizer.vocabulary());
        let mut front = MAGIC.to_vec();
        front.extend(VERSION.to_le_bytes());
        front.extend((token_type.width_bytes() as u32).to_le_bytes());
        let numbers = [num_documents, 0, tokenizer.vocabulary(), description.len()];
        numbers.iter().for_each(|number| front.extend((*number as u64).to_le_bytes()));
        front.extend(tokenizer.identity()?.to_le_bytes());
        front.resize(HEADER_BYTES + 8 * (num_documents + 1), 0);
        front.extend(description.as_bytes());
        front.resize(front.len().next_multiple_of(8), 0);

        let unwritable = |reason| DataError::Unwritable { path: path.to_path_buf(), reason };
        let mut file = BufWriter::new(Draft::create(path).map_err(unwritable)?);
        file.write_all(&front).map_err(unwritable)?;
        let (path, starts, hash) = (path.to_path_buf(), vec![0], Xxh3Default::new());
        Ok(TokenFileWriter { path, file, token_type, front, num_documents, starts, hash, row: vec![] })
    }

    /// Appends a document.
    ///
    /// # Errors
    /// A file that cannot be written.
    ///
    /// # Panics
    /// When there are more documents than were announced.
    pub fn push(&mut self, tokens: &[u32]) -> Result<(), DataError> {
        assert!(self.starts.len() <= self.num_documents, "{} documents were announced", self.num_documents);
        self.row.clear();
        tokens.iter().for_each(|token| self.token_type.encode(*token, &mut self.row));
        self.hash.update(&self.row);
        let start = self.starts.last().copied().unwrap_or_default();
        self.starts.push(start + tokens.len() as u64);
        self.file.write_all(&self.row).map_err(|reason| DataError::Unwritable { path: self.path.clone(), reason })
    }

    /// Writes the index and gives the file its name.
    ///
    /// # Errors
    /// A file that cannot be written.
    ///
    /// # Panics
    /// When there are fewer documents than were announced.
    pub fn finish(mut self) -> Result<(), DataError> {
        assert!(self.starts.len() == self.num_documents + 1, "{} documents were announced", self.num_documents);
        let num_tokens = self.starts.last().copied().unwrap_or_default();
        self.front[24..32].copy_from_slice(&num_tokens.to_le_bytes());
        for (place, start) in self.front[HEADER_BYTES..].chunks_exact_mut(8).zip(&self.starts) {
            place.copy_from_slice(&start.to_le_bytes());
        }
        let hash = finish_hash(self.hash, &self.front);
        self.front[HASH_AT..HEADER_BYTES].copy_from_slice(&hash.to_le_bytes());
        let written = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(&self.front));
        let written = written.and_then(|()| self.file.flush()).and_then(|()| self.file.get_ref().file.sync_all());
        // A writer that has written everything gives its file back.
        let renamed = written.and_then(|()| self.file.into_inner().map_err(io::IntoInnerError::into_error));
        let renamed = renamed.and_then(Draft::keep);
        renamed.map_err(|reason| DataError::Unwritable { path: self.path, reason })
    }
}
