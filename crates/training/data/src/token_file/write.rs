//! Writing token files.

use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
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
        let token_type = TokenType::of_vocabulary(tokenizer.vocabulary());
        let front = front(tokenizer, num_documents)?;
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

/// Everything in front of the tokens of `num_documents` documents; numbers that are not known yet are 0.
fn front(tokenizer: &Tokenizer, num_documents: usize) -> Result<Vec<u8>, DataError> {
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
    Ok(front)
}

/// Bytes that are copied at once.
const BLOCK_BYTES: usize = 1 << 20;

/// Writes the token file `path` from two streams: of where each document ends, in tokens, and of the tokens as the
/// file has them. Returns its hash.
///
/// # Errors
/// A stream that is shorter than `(documents, tokens)` say, a file that cannot be written.
pub(crate) fn assemble(
    path: &Path,
    tokenizer: &Tokenizer,
    (documents, tokens): (u64, u64),
    mut ends: impl Read,
    mut stream: impl Read,
) -> Result<u64, DataError> {
    let unwritable = |reason| DataError::Unwritable { path: path.to_path_buf(), reason };
    let mut front = front(tokenizer, documents as usize)?;
    front[24..32].copy_from_slice(&tokens.to_le_bytes());
    ends.read_exact(&mut front[HEADER_BYTES + 8..HEADER_BYTES + 8 * (documents as usize + 1)]).map_err(unwritable)?;
    let mut file = Draft::create(path).map_err(unwritable)?;
    file.write_all(&front).map_err(unwritable)?;
    let width = TokenType::of_vocabulary(tokenizer.vocabulary()).width_bytes() as u64;
    let mut left = tokens * width;
    let (mut hash, mut block) = (Xxh3Default::new(), vec![0; BLOCK_BYTES]);
    while left > 0 {
        let block = &mut block[..(BLOCK_BYTES as u64).min(left) as usize];
        stream.read_exact(block).and_then(|()| file.write_all(block)).map_err(unwritable)?;
        hash.update(block);
        left -= block.len() as u64;
    }
    let hash = finish_hash(hash, &front);
    front[HASH_AT..HEADER_BYTES].copy_from_slice(&hash.to_le_bytes());
    let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&front[..HEADER_BYTES]));
    written.and_then(|()| file.file.sync_all()).and_then(|()| file.keep()).map_err(unwritable)?;
    Ok(hash)
}
