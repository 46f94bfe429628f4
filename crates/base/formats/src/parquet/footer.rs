//! The description at the end of a parquet file: its columns, and where each row group has the one that is read.

use super::thrift::{Kind, Read, Reader};
use crate::error::{FormatError, Problem};
use crate::kinds::ColumnChoice;

/// The most bytes of the description.
const MOST_BYTES: u64 = 256 << 20;
const MARK: &[u8] = b"PAR1";
/// Length and mark at the end.
const TAIL_BYTES: usize = 8;

/// How values of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Physical {
    Int32,
    Int64,
    Bytes,
}

/// The column that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub physical: Physical,
    /// Definition level of a value that is there.
    pub max_definition: u32,
    /// Definition level from which on a list has an element.
    pub element_definition: u32,
    /// 0 for one value in a row, 1 for a list of them.
    pub max_repetition: u32,
}

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

/// The description, as far as pages need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    pub column: Column,
    pub chunks: Vec<Chunk>,
}

/// Reads the description at the end of `file`.
pub fn read(file: &[u8], choice: &ColumnChoice) -> Result<Footer, FormatError> {
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
    let footer = description(&mut reader, choice);
    footer
        .and_then(|footer| check(footer, start))
        .map_err(|problem| problem.at(format!("byte {}", start + reader.at())))
}

/// Chunks are before the description, one after the other or not.
fn check(footer: Footer, end: usize) -> Result<Footer, Problem> {
    for (group, chunk) in footer.chunks.iter().enumerate() {
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

/// An element of the tree of columns, in the order of a walk from the root.
#[derive(Clone, Debug, Default)]
struct Element {
    name: String,
    kind: Option<i64>,
    repetition: i64,
    children: usize,
}

fn description(reader: &mut Reader, choice: &ColumnChoice) -> Result<Footer, Problem> {
    let mut column: Option<(usize, Column)> = None;
    let mut chunks = Vec::new();
    reader.fields(|reader, number, kind| match (number, kind) {
        (2, Kind::List) => {
            let mut elements = Vec::new();
            reader.list(|reader, _| {
                elements.push(element(reader)?);
                Ok(())
            })?;
            column = Some(find(&elements, choice)?);
            Ok(Read::Yes)
        }
        (4, Kind::List) => {
            let (leaf, _) = column.as_ref().ok_or_else(|| Problem::damaged("row groups come before columns"))?;
            reader.list(|reader, _| {
                chunks.push(row_group(reader, *leaf)?);
                Ok(())
            })?;
            Ok(Read::Yes)
        }
        _ => Ok(Read::No),
    })?;
    let (_, column) = column.ok_or_else(|| Problem::damaged("it describes no columns"))?;
    Ok(Footer { column, chunks })
}

fn element(reader: &mut Reader) -> Result<Element, Problem> {
    let mut element = Element::default();
    reader.fields(|reader, number, kind| {
        match (number, kind) {
            (1, Kind::Integer) => element.kind = Some(reader.integer()?),
            (3, Kind::Integer) => element.repetition = reader.integer()?,
            (4, Kind::Binary) => element.name = reader.text()?,
            (5, Kind::Integer) => element.children = reader.length()?,
            _ => return Ok(Read::No),
        }
        Ok(Read::Yes)
    })?;
    Ok(element)
}

fn row_group(reader: &mut Reader, leaf: usize) -> Result<Chunk, Problem> {
    let mut chunk = None;
    let mut num_rows = 0;
    reader.fields(|reader, number, kind| {
        match (number, kind) {
            (1, Kind::List) => reader.list(|reader, index| {
                let own = column_chunk(reader)?;
                if index == leaf {
                    chunk = Some(own);
                }
                Ok(())
            })?,
            (3, Kind::Integer) => num_rows = reader.length()? as u64,
            _ => return Ok(Read::No),
        }
        Ok(Read::Yes)
    })?;
    match (chunk, num_rows) {
        (Some(chunk), _) => Ok(Chunk { num_rows, ..chunk }),
        (None, 0) => Ok(Chunk::default()),
        (None, _) => Err(Problem::damaged("a row group lacks the column")),
    }
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

/// The chosen column: its place among all that hold values, and its type.
fn find(elements: &[Element], choice: &ColumnChoice) -> Result<(usize, Column), Problem> {
    let root = elements.first().ok_or_else(|| Problem::damaged("it describes no columns"))?;
    let mut tops = Vec::new();
    let mut at = 1;
    for _ in 0..root.children {
        let after = after(elements, at)?;
        tops.push((at, after));
        at = after;
    }
    let names: Vec<&str> = tops.iter().map(|(at, _)| elements[*at].name.as_str()).collect();
    let (start, end) = tops[choice.place(&names)?];
    let own = &elements[start..end];
    let leaf = elements[1..start].iter().filter(|element| element.children == 0).count();
    let remedy = "use a column of strings, or of lists of whole numbers".to_string();
    let wrong = |found: String| Problem::Column { found, remedy: remedy.clone() };
    let name = &own[0].name;
    let (mut max_definition, mut max_repetition, mut element_definition) = (0, 0, 0);
    for element in own {
        // Required, optional, repeated.
        max_definition += u32::from(element.repetition != 0);
        if element.repetition == 2 {
            max_repetition += 1;
            element_definition = max_definition;
        }
    }
    let is_chain = own.iter().rev().skip(1).all(|element| element.children == 1);
    let last = own.last().ok_or_else(|| wrong(format!("column {name:?} has no values")))?;
    if !is_chain || max_repetition > 1 || (max_repetition == 0 && own.len() > 1) {
        return Err(wrong(format!("column {name:?} is nested deeper than a list")));
    }
    let physical = match (last.kind, max_repetition) {
        (Some(1), 1) => Physical::Int32,
        (Some(2), 1) => Physical::Int64,
        (Some(6), 0) => Physical::Bytes,
        (kind, repetition) => {
            let what = if repetition == 1 { "lists of" } else { "values of" };
            return Err(wrong(format!("column {name:?} has {what} type {}", name_of(kind))));
        }
    };
    Ok((leaf, Column { physical, max_definition, element_definition, max_repetition }))
}

/// The types of values, in the order of the format.
const TYPES: [&str; 8] =
    ["BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"];

fn name_of(kind: Option<i64>) -> &'static str {
    let place = kind.and_then(|kind| usize::try_from(kind).ok());
    place.and_then(|place| TYPES.get(place)).unwrap_or(&"unknown")
}

/// The element after `at` and all that is below it.
fn after(elements: &[Element], at: usize) -> Result<usize, Problem> {
    // Without recursion: a chain of columns may be as long as the description.
    let mut left = 1_usize;
    let mut next = at;
    while left > 0 {
        let element =
            elements.get(next).ok_or_else(|| Problem::damaged("a column announces more columns than there are"))?;
        left = (left - 1).saturating_add(element.children);
        next += 1;
    }
    Ok(next)
}
