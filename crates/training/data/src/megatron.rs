//! Megatron-LM's indexed datasets: tokens in `NAME.bin`, their index in `NAME.idx`.
//!
//! The tokens are one after the other. The index, all numbers little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0..9 | magic `MMIDIDX` and two zeros |
//! | 9..17 | version, 1 |
//! | 17 | type of a token: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16 (6 and 7 are floating-point numbers, which tokens are not) |
//! | 18..26 | number of sequences S |
//! | 26..34 | number of entries of the last table, D: one more than documents |
//! | then | S numbers of 32 bits: tokens of each sequence |
//! | then | S numbers of 64 bits: where each sequence begins in the tokens, in bytes |
//! | then | D numbers of 64 bits: the first sequence of each document, and S |
//!
//! A table of S bytes may follow, the modes of multimodal sequences; it is not read. A pair holds neither hash nor
//! tokenizer.

mod write;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::corpus::Corpus;
use crate::error::DataError;
use crate::fields::{announced_len, u32_at, u64_at};
use crate::file_problem::FileProblem;
use crate::tokens::{TokenType, Tokens, map};

pub use write::MegatronWriter;

pub(crate) const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
pub(crate) const VERSION: u64 = 1;
const TYPE_AT: usize = 17;
/// Length of what is in front of the tables.
const HEADER_BYTES: usize = 34;
const HEADER_SAYS: &str = "its header announces";

/// Opens the pair of which `path` is either file, or the name without an ending.
///
/// # Errors
/// A file that cannot be read, or the first thing in it that contradicts itself.
pub fn open(path: &Path) -> Result<Corpus, DataError> {
    let [index_path, tokens_path] = pair(path);
    let (index, tokens) = (map(&index_path)?, map(&tokens_path)?);
    let bad_index = |problem| DataError::BadFile { path: index_path.clone(), problem };
    let tables = Tables::read(index.bytes()).map_err(bad_index)?;
    let ranges = tables.documents().map_err(bad_index)?;
    let width = tables.token_type.width_bytes();
    let (found, expected) = (tokens.bytes().len(), ranges.last().map_or(0, |range| range.end * width));
    let announced_by = "its .idx announces";
    if found < expected {
        let document = ranges.partition_point(|range| range.end * width <= found);
        let (found, expected) = (found as u64, expected as u64);
        let problem = FileProblem::Truncated { found, expected, announced_by, document: Some(document) };
        return Err(DataError::BadFile { path: tokens_path, problem });
    }
    if found > expected {
        let problem = FileProblem::TooLong { found: found as u64, expected: expected as u64, announced_by };
        return Err(DataError::BadFile { path: tokens_path, problem });
    }
    let tokens = Tokens::mapped(tokens, 0, expected / width, tables.token_type);
    Ok(Corpus::of_file(tokens_path, tokens, ranges))
}

/// The index and the tokens of the pair of which `path` is either file, or the name without an ending.
pub fn pair(path: &Path) -> [PathBuf; 2] {
    let is_of_pair = path.extension().is_some_and(|ending| ending == "bin" || ending == "idx");
    let name = if is_of_pair { path.with_extension("") } else { path.to_path_buf() };
    ["idx", "bin"].map(|ending| {
        let mut file = name.clone().into_os_string();
        file.push(".");
        file.push(ending);
        file.into()
    })
}

/// The type of a token by its code.
pub(crate) const TYPES: [(u8, TokenType); 6] = [
    (1, TokenType::U8),
    (2, TokenType::I8),
    (3, TokenType::I16),
    (4, TokenType::I32),
    (5, TokenType::I64),
    (8, TokenType::U16),
];

/// The tables of an index, which are within its bytes.
struct Tables<'a> {
    bytes: &'a [u8],
    token_type: TokenType,
    num_sequences: usize,
    num_entries: usize,
}

impl<'a> Tables<'a> {
    fn read(bytes: &'a [u8]) -> Result<Tables<'a>, FileProblem> {
        let begin = &bytes[..bytes.len().min(MAGIC.len())];
        if begin != MAGIC {
            let (expected, found) = (MAGIC.to_vec(), begin.to_vec());
            return Err(FileProblem::Magic { kind: "an index of Megatron-LM", expected, found });
        }
        let found = bytes.len() as u64;
        let truncated =
            |expected| FileProblem::Truncated { found, expected, announced_by: HEADER_SAYS, document: None };
        let field = |offset| u64_at(bytes, offset).ok_or(truncated(HEADER_BYTES as u64));
        let version = field(MAGIC.len())?;
        if version != VERSION {
            return Err(FileProblem::Version { found: version, expected: VERSION, offset: MAGIC.len() });
        }
        let code = *bytes.get(TYPE_AT).ok_or(truncated(HEADER_BYTES as u64))?;
        let Some((_, token_type)) = TYPES.iter().find(|(known, _)| *known == code) else {
            let expected = "1, 2, 3, 4, 5 or 8";
            return Err(FileProblem::Type { found: code.into(), expected, offset: TYPE_AT });
        };
        let (num_sequences, num_entries) = (field(18)?, field(26)?);
        let expected = announced_len(HEADER_BYTES as u64, &[(num_sequences, 12), (num_entries, 8)]).unwrap_or(u64::MAX);
        if found < expected {
            return Err(truncated(expected));
        }
        // The modes of multimodal sequences may follow.
        if found > expected && found - expected != num_sequences {
            return Err(FileProblem::TooLong { found, expected, announced_by: HEADER_SAYS });
        }
        // Both tables are within a file that is mapped, so their lengths fit.
        let (num_sequences, num_entries) = (num_sequences as usize, num_entries as usize);
        Ok(Tables { bytes, token_type: *token_type, num_sequences, num_entries })
    }

    /// The tokens of each document.
    fn documents(&self) -> Result<Vec<Range<usize>>, FileProblem> {
        let table_at = HEADER_BYTES + 12 * self.num_sequences;
        let mut ranges = Vec::with_capacity(self.num_entries.saturating_sub(1));
        let (mut first, mut token) = (0, 0);
        for entry in 0..self.num_entries {
            let offset = table_at + 8 * entry;
            let sequence = u64_at(self.bytes, offset).unwrap_or(u64::MAX);
            let is_legal = if entry == 0 { sequence == 0 } else { sequence >= first };
            if !is_legal || sequence > self.num_sequences as u64 {
                let what = format!("it begins at sequence {sequence} of {}, after {first}", self.num_sequences);
                return Err(FileProblem::Index { document: entry, what, offset });
            }
            if entry > 0 {
                let start = token;
                for sequence in first as usize..sequence as usize {
                    token += self.sequence(sequence, token, entry - 1)?;
                }
                ranges.push(start..token);
            }
            first = sequence;
        }
        if first != self.num_sequences as u64 {
            let what = format!("the documents end at sequence {first} of {}", self.num_sequences);
            let offset = table_at + 8 * self.num_entries.saturating_sub(1);
            return Err(FileProblem::Index { document: self.num_entries.saturating_sub(1), what, offset });
        }
        Ok(ranges)
    }

    /// Tokens of a sequence of `document`, which has to begin after the `before` tokens in front of it.
    fn sequence(&self, sequence: usize, before: usize, document: usize) -> Result<usize, FileProblem> {
        let length_at = HEADER_BYTES + 4 * sequence;
        let length = u32_at(self.bytes, length_at).unwrap_or_default() as i32;
        let Ok(length) = usize::try_from(length) else {
            let what = format!("sequence {sequence} has {length} tokens");
            return Err(FileProblem::Index { document, what, offset: length_at });
        };
        let pointer_at = HEADER_BYTES + 4 * self.num_sequences + 8 * sequence;
        let pointer = u64_at(self.bytes, pointer_at).unwrap_or(u64::MAX);
        let expected = (before * self.token_type.width_bytes()) as u64;
        if pointer != expected {
            let what = format!(
                "sequence {sequence} begins at byte {pointer} of the tokens, not at {expected} after the one before it,"
            );
            return Err(FileProblem::Index { document, what, offset: pointer_at });
        }
        Ok(length)
    }
}
