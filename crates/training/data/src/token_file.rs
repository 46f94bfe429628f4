//! Token files: text that became tokens once, to be mapped by every run.
//!
//! | bytes | content, all numbers little-endian |
//! |---|---|
//! | 0..8 | magic `PLEACHTK` |
//! | 8..12 | version, 1 |
//! | 12..16 | bytes per token: 1, 2 or 4, unsigned |
//! | 16..24 | number of documents N |
//! | 24..32 | number of tokens T |
//! | 32..40 | vocabulary: all tokens are below it |
//! | 40..48 | length of the tokenizer's description |
//! | 48..56 | XXH3 of the tokenizer's description: its identity |
//! | 56..64 | XXH3 of the tokens followed by everything before them, with this field as 0 |
//! | 64.. | N + 1 numbers of 64 bits: the first token of each document, and T |
//! | then | the tokenizer's description: `tokenizer.json`, or a note where tokens are bytes |
//! | then | zeros up to a multiple of 8 |
//! | then | T tokens |
//!
//! Opening one reads it once, to compare its hash: what a run maps is what was written. After that a document is found
//! by one look at the index.

mod write;

use std::ops::Range;
use std::path::Path;

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::corpus::Corpus;
use crate::error::DataError;
use crate::fields::{announced_len, u32_at, u64_at};
use crate::file_problem::FileProblem;
use crate::tokenizer::Tokenizer;
use crate::tokens::{TokenType, Tokens, map};

pub use write::TokenFileWriter;
pub(crate) use write::assemble;

pub(crate) const MAGIC: &[u8; 8] = b"PLEACHTK";
pub(crate) const VERSION: u32 = 1;
/// Length of the fixed part.
pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const HASH_AT: usize = 56;
const WIDTH_AT: usize = 12;
const VOCABULARY_AT: usize = 32;
const IDENTITY_AT: usize = 48;
/// The kind of file in messages, with the remedy for text.
const TOKEN_FILE: &str = "a token file of `pleach data tokenize`; give text another ending than .tokens";
const HEADER_SAYS: &str = "its header announces";

/// An open token file.
#[derive(Clone, Debug)]
pub struct TokenFile {
    /// Its documents.
    pub corpus: Corpus,
    /// The tokenizer of its tokens.
    pub tokenizer: Tokenizer,
    /// Hash of its content.
    pub hash: u64,
}

/// The numbers of the header that places in the file follow from.
struct Header {
    token_type: TokenType,
    num_documents: usize,
    num_tokens: usize,
    vocabulary: u64,
    tokenizer: Range<usize>,
    tokens: Range<usize>,
}

impl TokenFile {
    /// Opens and verifies the file at `path`.
    ///
    /// # Errors
    /// A file that cannot be read, or the first thing in it that is not as it was written.
    pub fn open(path: &Path) -> Result<TokenFile, DataError> {
        let map = map(path)?;
        let bad = |problem| DataError::BadFile { path: path.to_path_buf(), problem };
        let header = header(map.bytes()).map_err(bad)?;
        let ranges = verify(map.bytes(), &header).map_err(bad)?;
        let hash = u64_at(map.bytes(), HASH_AT).unwrap_or_default();
        let tokenizer = tokenizer(path, map.bytes(), &header)?;
        let tokens = Tokens::mapped(map, header.tokens.start, header.num_tokens, header.token_type);
        let corpus = Corpus::of_file(path.to_path_buf(), tokens, ranges);
        // A token that its own tokenizer does not know was not made by it.
        corpus.check_vocabulary(tokenizer.vocabulary())?;
        Ok(TokenFile { corpus, tokenizer, hash })
    }

    /// Compares the hash of the file at `path`, in memory that does not grow with it.
    ///
    /// # Errors
    /// A file that cannot be read, or whose content is not that which was written.
    pub fn verify(path: &Path) -> Result<(), DataError> {
        let map = map(path)?;
        let checked = header(map.bytes()).and_then(|header| {
            let expected = u64_at(map.bytes(), HASH_AT).unwrap_or_default();
            let found = content_hash(&map.bytes()[header.tokens.clone()], &map.bytes()[..header.tokens.start]);
            if found == expected { Ok(()) } else { Err(FileProblem::Hash { found, expected, offset: HASH_AT }) }
        });
        checked.map_err(|problem| DataError::BadFile { path: path.to_path_buf(), problem })
    }

    /// The vocabulary that the header names, without reading more of the file.
    ///
    /// # Errors
    /// A file that cannot be read, or whose header is wrong.
    pub fn vocabulary(path: &Path) -> Result<usize, DataError> {
        let map = map(path)?;
        let header = header(map.bytes());
        let header = header.map_err(|problem| DataError::BadFile { path: path.to_path_buf(), problem })?;
        Ok(header.vocabulary as usize)
    }
}

fn header(bytes: &[u8]) -> Result<Header, FileProblem> {
    let begin = &bytes[..bytes.len().min(MAGIC.len())];
    if begin != MAGIC {
        let (expected, found) = (MAGIC.to_vec(), begin.to_vec());
        return Err(FileProblem::Magic { kind: TOKEN_FILE, expected, found });
    }
    let found = bytes.len() as u64;
    let truncated =
        |expected, document| FileProblem::Truncated { found, expected, announced_by: HEADER_SAYS, document };
    let field = |offset| u64_at(bytes, offset).ok_or(truncated(HEADER_BYTES as u64, None));
    let (Some(version), Some(width)) = (u32_at(bytes, 8), u32_at(bytes, WIDTH_AT)) else {
        return Err(truncated(HEADER_BYTES as u64, None));
    };
    if version != VERSION {
        return Err(FileProblem::Version { found: version.into(), expected: VERSION.into(), offset: 8 });
    }
    let token_type = match width {
        1 => TokenType::U8,
        2 => TokenType::U16,
        4 => TokenType::U32,
        _ => return Err(FileProblem::Type { found: width.into(), expected: "1, 2 or 4 bytes", offset: WIDTH_AT }),
    };
    let (num_documents, num_tokens, vocabulary) = (field(16)?, field(24)?, field(VOCABULARY_AT)?);
    let description_len = field(40)?;
    field(HASH_AT)?;
    // A length that does not fit 64 bits is longer than any file.
    let front = announced_len(HEADER_BYTES as u64 + 8, &[(num_documents, 8), (description_len, 1)]);
    let front = front.and_then(|front| front.checked_next_multiple_of(8)).unwrap_or(u64::MAX);
    let expected = announced_len(front, &[(num_tokens, width.into())]).unwrap_or(u64::MAX);
    if found < expected {
        // The index is there, if what is in front of the tokens is.
        let document = (found >= front).then(|| {
            let token = (found - front) / u64::from(width);
            let index = (0..num_documents).take_while(|index| {
                u64_at(bytes, HEADER_BYTES + 8 * (*index as usize + 1)).is_some_and(|behind| behind <= token)
            });
            index.count()
        });
        return Err(truncated(expected, document));
    }
    if found > expected {
        return Err(FileProblem::TooLong { found, expected, announced_by: HEADER_SAYS });
    }
    // Everything is within a file that is mapped, so offsets fit.
    let description_at = HEADER_BYTES + 8 * (num_documents as usize + 1);
    let tokenizer = description_at..description_at + description_len as usize;
    let tokens = front as usize..expected as usize;
    let (num_documents, num_tokens) = (num_documents as usize, num_tokens as usize);
    Ok(Header { token_type, num_documents, num_tokens, vocabulary, tokenizer, tokens })
}

/// Compares the hash and reads the index: the tokens of each document.
fn verify(bytes: &[u8], header: &Header) -> Result<Vec<Range<usize>>, FileProblem> {
    let expected = u64_at(bytes, HASH_AT).unwrap_or_default();
    let found = content_hash(&bytes[header.tokens.clone()], &bytes[..header.tokens.start]);
    if found != expected {
        return Err(FileProblem::Hash { found, expected, offset: HASH_AT });
    }
    let start_of = |document: usize| {
        let offset = HEADER_BYTES + 8 * document;
        (offset, u64_at(bytes, offset).unwrap_or(u64::MAX))
    };
    let mut ranges = Vec::with_capacity(header.num_documents);
    let mut last = 0;
    for document in 0..=header.num_documents {
        let (offset, start) = start_of(document);
        let is_legal = match document {
            0 => start == 0,
            _ if document == header.num_documents => start == header.num_tokens as u64 && start >= last,
            _ => start >= last && start <= header.num_tokens as u64,
        };
        if !is_legal {
            let what = format!("{start} must be a place among {} tokens after {last}", header.num_tokens);
            return Err(FileProblem::Index { document, what, offset });
        }
        if document > 0 {
            ranges.push(last as usize..start as usize);
        }
        last = start;
    }
    Ok(ranges)
}

/// The hash that the header holds: of the tokens, then of what is in `front` of them with the hash itself as 0.
pub(crate) fn content_hash(tokens: &[u8], front: &[u8]) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(tokens);
    finish_hash(hash, front)
}

/// Returns the same as [`content_hash`], where `hash` has seen the tokens.
pub(crate) fn finish_hash(mut hash: Xxh3Default, front: &[u8]) -> u64 {
    hash.update(&front[..HASH_AT]);
    hash.update(&[0; 8]);
    hash.update(&front[HEADER_BYTES..]);
    hash.digest()
}

fn tokenizer(path: &Path, bytes: &[u8], header: &Header) -> Result<Tokenizer, DataError> {
    let offset = header.tokenizer.start;
    let bad = |what: String| {
        let problem = FileProblem::Tokenizer { what, offset };
        DataError::BadFile { path: path.to_path_buf(), problem }
    };
    let description = &bytes[header.tokenizer.clone()];
    let text = std::str::from_utf8(description).map_err(|error| bad(error.to_string()))?;
    if u64_at(bytes, IDENTITY_AT) != Some(xxh3_64(description)) {
        return Err(bad("it is not the one that the header names".into()));
    }
    let name = format!("in {}", path.display());
    let tokenizer = Tokenizer::from_description(text, name).map_err(|error| bad(error.to_string()))?;
    // That of a trained one counts tokens for which the text was too short.
    if (tokenizer.vocabulary() as u64) > header.vocabulary || header.vocabulary > 1 << 31 {
        let what = format!("it has {} tokens, but the header says {}", tokenizer.vocabulary(), header.vocabulary);
        return Err(bad(what));
    }
    Ok(tokenizer.with_vocabulary(header.vocabulary as usize))
}
