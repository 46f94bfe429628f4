//! The description at the end of a parquet file: its columns, and where each row group has the one that is read.

use std::ops::Range;

use super::columns::{Column, Element};
use super::thrift::{Kind, Read, Reader};
use super::tree::{self, Chosen, Tree};
use crate::error::{FormatError, Problem};
use crate::kinds::{ColumnChoice, Nesting};

/// The most bytes of the description.
const MOST_BYTES: u64 = 256 << 20;
const MARK: &[u8] = b"PAR1";
/// Length and mark at the end.
const TAIL_BYTES: usize = 8;

/// The column in one row group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub codec: i64,
    pub num_values: u64,
    pub start: usize,
    pub bytes: usize,
    pub num_rows: u64,
    /// Whether its pages or its description are encrypted.
    pub is_encrypted: bool,
}

/// A column of values, with its place in each row group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub column: Column,
    pub chunks: Vec<Chunk>,
}

/// The description, as far as pages need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The chosen column: one leaf, or those of its tree.
    pub leaves: Vec<Leaf>,
    pub tree: Option<Tree>,
}

/// Reads the description at the end of `file`.
pub fn read(file: &[u8], choice: &ColumnChoice, nesting: Nesting) -> Result<Footer, FormatError> {
    let end = file.len();
    let at_end = |problem: Problem| problem.at(format!("byte {end}"));
    if file.starts_with(b"PARE") || file.ends_with(b"PARE") {
        let (what, remedy) = ("a table that is encrypted".into(), "write the table without encryption");
        return Err(Problem::Unsupported { what, remedy }.at("byte 0"));
    }
    if end < MARK.len() + TAIL_BYTES || !file.ends_with(MARK) {
        return Err(at_end(Problem::Truncated("a table of parquet, which ends with `PAR1`")));
    }
    let tail = &file[end - TAIL_BYTES..];
    let bytes = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
    if u64::from(bytes) > MOST_BYTES {
        let what = "its description";
        return Err(at_end(Problem::TooLarge { what, bytes: bytes.into(), limit_bytes: MOST_BYTES }));
    }
    let Some(start) = (end - TAIL_BYTES).checked_sub(bytes as usize).filter(|start| *start >= MARK.len()) else {
        return Err(at_end(Problem::damaged(format!("its description has {bytes} bytes, and the file {end}"))));
    };
    let mut reader = Reader::new(&file[start..end - TAIL_BYTES]);
    let footer = description(&mut reader, choice, nesting);
    footer
        .and_then(|footer| check(footer, start))
        .map_err(|problem| problem.at(format!("byte {}", start + reader.at())))
}

/// Chunks are before the description, one after the other or not.
fn check(footer: Footer, end: usize) -> Result<Footer, Problem> {
    for (group, chunk) in footer.leaves.iter().flat_map(|leaf| leaf.chunks.iter().enumerate()) {
        if chunk.num_rows == 0 && chunk.num_values == 0 {
            // Nothing of it is read, and some writers give it no place.
            continue;
        }
        if chunk.is_encrypted {
            let what = format!("row group {group} with an encrypted column");
            return Err(Problem::Unsupported { what, remedy: "write the table without encryption" });
        }
        if chunk.start < MARK.len() || chunk.start.checked_add(chunk.bytes).is_none_or(|after| after > end) {
            let what =
                format!("row group {group} has {} bytes from byte {}: outside the file", chunk.bytes, chunk.start);
            return Err(Problem::damaged(what));
        }
    }
    Ok(footer)
}

fn description(reader: &mut Reader, choice: &ColumnChoice, nesting: Nesting) -> Result<Footer, Problem> {
    let mut chosen: Option<Chosen> = None;
    let mut groups: Vec<Vec<Chunk>> = Vec::new();
    reader.fields(|reader, number, kind| match (number, kind) {
        (2, Kind::List) => {
            let mut elements = Vec::new();
            reader.list(|reader, _| {
                elements.push(Element::read(reader)?);
                Ok(())
            })?;
            chosen = Some(tree::choose(&elements, choice, nesting)?);
            Ok(Read::Yes)
        }
        (4, Kind::List) => {
            let chosen = chosen.as_ref().ok_or_else(|| Problem::damaged("row groups come before columns"))?;
            let leaves = chosen.first_leaf..chosen.first_leaf + chosen.columns.len();
            reader.list(|reader, _| {
                groups.push(row_group(reader, &leaves)?);
                Ok(())
            })?;
            Ok(Read::Yes)
        }
        _ => Ok(Read::No),
    })?;
    let chosen = chosen.ok_or_else(|| Problem::damaged("it describes no columns"))?;
    let chunks = |leaf: usize| groups.iter().filter_map(|group| group.get(leaf).cloned()).collect();
    let leaf = |(place, column)| Leaf { column, chunks: chunks(place) };
    Ok(Footer { leaves: chosen.columns.into_iter().enumerate().map(leaf).collect(), tree: chosen.tree })
}

/// The chunks of `leaves` in a row group.
fn row_group(reader: &mut Reader, leaves: &Range<usize>) -> Result<Vec<Chunk>, Problem> {
    let mut chunks = Vec::new();
    let mut num_rows = 0;
    reader.fields(|reader, number, kind| {
        match (number, kind) {
            (1, Kind::List) => reader.list(|reader, index| {
                let own = column_chunk(reader)?;
                if leaves.contains(&index) {
                    chunks.push(own);
                }
                Ok(())
            })?,
            (3, Kind::Integer) => num_rows = reader.length()? as u64,
            _ => return Ok(Read::No),
        }
        Ok(Read::Yes)
    })?;
    if num_rows == 0 && chunks.is_empty() {
        chunks = vec![Chunk::default(); leaves.len()];
    }
    if chunks.len() != leaves.len() {
        return Err(Problem::damaged("a row group lacks the column"));
    }
    chunks.iter_mut().for_each(|chunk| chunk.num_rows = num_rows);
    Ok(chunks)
}

fn column_chunk(reader: &mut Reader) -> Result<Chunk, Problem> {
    let mut chunk = Chunk::default();
    let (mut data, mut dictionary) = (0, None);
    let (mut is_elsewhere, mut is_encrypted) = (false, false);
    reader.fields(|reader, number, kind| match (number, kind) {
        (1, Kind::Binary) => {
            is_elsewhere = !reader.text()?.is_empty();
            Ok(Read::Yes)
        }
        (3, Kind::Struct) => {
            reader.fields(|reader, number, kind| {
                match (number, kind) {
                    (4, Kind::Integer) => chunk.codec = reader.integer()?,
                    (5, Kind::Integer) => chunk.num_values = reader.length()? as u64,
                    (7, Kind::Integer) => chunk.bytes = reader.length()?,
                    (9, Kind::Integer) => data = reader.length()?,
                    (11, Kind::Integer) => dictionary = Some(reader.length()?),
                    _ => return Ok(Read::No),
                }
                Ok(Read::Yes)
            })?;
            Ok(Read::Yes)
        }
        // How it is encrypted, and its description if that is, too.
        (8, Kind::Struct) | (9, Kind::Binary) => {
            is_encrypted = true;
            Ok(Read::No)
        }
        _ => Ok(Read::No),
    })?;
    chunk.is_encrypted = is_encrypted;
    if is_elsewhere {
        let what = "a table whose columns are in other files".into();
        return Err(Problem::Unsupported { what, remedy: "write it as one file" });
    }
    // Some writers give 0 where there is no dictionary.
    chunk.start = dictionary.filter(|dictionary| *dictionary > 0).map_or(data, |dictionary| dictionary.min(data));
    Ok(chunk)
}
