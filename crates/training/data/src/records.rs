//! The documents of a file, one after the other, whatever its format is. Formats are recognised by content: compressed
//! or not; a table of parquet or Arrow; JSON lines; or else text.

use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{InputError, InputKind};
use formats::arrow::Arrow;
use formats::parquet::Parquet;
use formats::{Cell, ColumnChoice, Decompressed, Format, FormatError, Rows};

use crate::error::DataError;
use crate::file_names::{has_name_of_table, inner_ending};
use crate::json_lines;
use crate::learned_tokens::{LEARNED_TOKENS, agrees};
use crate::megatron;
use crate::memory_map::MemoryMap;
use crate::text_parts::{AFTER_BYTES, PART_BYTES, first_cut};
use crate::token_file;

/// Columns and fields that are read where none is named.
pub(crate) const USUAL_COLUMNS: &[&str] = &["text", "input_ids", "tokens"];
/// Columns of conversations that are read where none is named.
const CONVERSATION_COLUMNS: &[&str] = &["messages"];
/// The beginning of the file that a clone without Git LFS has in place of a large one.
const GIT_LFS: &[u8] = b"version https://git-lfs.github.com/spec/";
/// The most bytes of a line of JSON.
const LINE_BYTES: usize = 64 << 20;
/// Bytes that are read at once.
const BLOCK_BYTES: usize = 1 << 18;

/// A document, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place, for messages: a path, with the line or the row.
    pub name: String,
    /// Its text or tokens.
    pub content: Cell,
    /// Whether the document ends with it.
    pub ends: bool,
}

/// The bytes of a file that is used in any order.
#[derive(Clone, Debug)]
enum Bytes {
    Mapped(Arc<MemoryMap>),
    /// The bytes of a pipe.
    Owned(Arc<[u8]>),
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map.bytes(),
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// Where bytes come from.
enum Source {
    Plain(Box<dyn Read + Send>),
    Packed(Box<Decompressed<Box<dyn Read + Send>>>),
}

/// Bytes of text as they come, decompressed.
struct Text {
    source: Source,
    /// Bytes that were read, and how many of them were used; the next one is at `offset` of the content.
    pending: Vec<u8>,
    used: usize,
    offset: usize,
    has_ended: bool,
}

enum Kind {
    Table {
        rows: Box<dyn Rows + Send>,
        /// Columns of [`LEARNED_TOKENS`], where the table is read for the tokens next to them.
        learned: Vec<(&'static str, Box<dyn Rows + Send>)>,
    },
    Lines {
        text: Text,
        line: usize,
    },
    Text {
        text: Text,
        has_begun: bool,
    },
}

/// The content of a line of JSON.
#[derive(Clone, Debug)]
enum LineContent {
    /// The text or the tokens of a field.
    Field(ColumnChoice),
    /// The line itself.
    Whole,
}

/// The records of one file, in its order.
pub struct Records {
    path: PathBuf,
    plain_bytes: u64,
    line_content: LineContent,
    kind: Kind,
    row: u64,
}

impl Records {
    /// Opens the file `path`, or a pipe, and finds out what it is. Without `column`, tables and JSON lines are read
    /// for the first of the usual ones.
    ///
    /// # Errors
    /// A file that cannot be read, or is of a format that is not read.
    pub fn open(path: &Path, column: Option<&str>) -> Result<Records, DataError> {
        let choice = column.map_or(ColumnChoice::FirstOf(USUAL_COLUMNS), |name| ColumnChoice::Named(name.into()));
        Records::open_as(path, &choice, LineContent::Field(choice.clone()))
    }

    /// Opens a file of conversations: its records are whole lines of JSON, or the cells of the column of a table, the
    /// first of the usual ones without `column`.
    ///
    /// # Errors
    /// See [`Records::open`]; a file of text.
    pub fn open_conversations(path: &Path, column: Option<&str>) -> Result<Records, DataError> {
        let usual = ColumnChoice::FirstOf(CONVERSATION_COLUMNS);
        let choice = column.map_or(usual, |name| ColumnChoice::Named(name.into()));
        let records = Records::open_as(path, &choice, LineContent::Whole)?;
        match records.kind {
            Kind::Table { .. } | Kind::Lines { .. } => Ok(records),
            Kind::Text { .. } => Err(DataError::NoRecords(path.to_path_buf())),
        }
    }

    fn open_as(path: &Path, choice: &ColumnChoice, line_content: LineContent) -> Result<Records, DataError> {
        let Opened { whole: bytes, mut stream, bytes: source_bytes } = opened(path)?;
        let mut beginning = vec![0; Format::BEGINNING_BYTES];
        let count = fill(stream.as_mut(), &mut beginning).map_err(unreadable(path))?;
        beginning.truncate(count);
        let whole = || bytes.clone().map_or_else(|| MemoryMap::open(path).map(Arc::new).map(Bytes::Mapped), Ok);
        let bad = |error| DataError::BadTable { path: path.to_path_buf(), error };
        check_tokens(path, &beginning)?;
        let format = Format::of(&beginning);
        if beginning.starts_with(GIT_LFS) {
            return Err(DataError::Pointer(path.to_path_buf()));
        }
        if format.is_none() && has_name_of_table(path) {
            return Err(DataError::NotTable(path.to_path_buf()));
        }
        let plain_bytes = if format.is_none() { source_bytes } else { 0 };
        let kind = match format {
            Some(Format::Parquet) => {
                let bytes = whole().map_err(unreadable(path))?;
                let table = |choice: &ColumnChoice| Parquet::open(bytes.clone(), choice).map(|own| Box::new(own) as _);
                Kind::Table { rows: table(choice).map_err(bad)?, learned: learned(choice, table) }
            }
            Some(Format::ArrowFile | Format::ArrowStream) => {
                let bytes = whole().map_err(unreadable(path))?;
                let table = |choice: &ColumnChoice| Arrow::open(bytes.clone(), choice).map(|own| Box::new(own) as _);
                Kind::Table { rows: table(choice).map_err(bad)?, learned: learned(choice, table) }
            }
            Some(Format::Other(format)) => return Err(DataError::OtherFormat { path: path.to_path_buf(), format }),
            Some(Format::Compressed(compression)) => {
                let stream: Box<dyn Read + Send> = Box::new(Cursor::new(beginning).chain(stream));
                let stream = Decompressed::new(stream, compression, source_bytes);
                text_kind(path, Text::new(Source::Packed(Box::new(stream)), vec![]))?
            }
            None => text_kind(path, Text::new(Source::Plain(stream), beginning))?,
        };
        Ok(Records { path: path.to_path_buf(), plain_bytes, line_content, kind, row: 0 })
    }

    /// Bytes of a text that is stored as it is; 0 for compressed ones and tables.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// Whether it is a table or JSON lines, whose records are read from a column.
    pub fn has_columns(&self) -> bool {
        match self.kind {
            Kind::Table { .. } | Kind::Lines { .. } => true,
            Kind::Text { .. } => false,
        }
    }

    /// The next record; `None` after the last.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn next_record(&mut self) -> Result<Option<Record>, DataError> {
        let path = &self.path;
        match &mut self.kind {
            Kind::Table { rows, learned } => {
                let cell = rows.next_row().map_err(|error| DataError::BadTable { path: path.clone(), error })?;
                let name = format!("{}, row {}", path.display(), self.row);
                self.row += 1;
                if let Some(Cell::Tokens(tokens)) = &cell {
                    for (column, rows) in learned {
                        // A label that is not a token, such as -100, is an error of the table.
                        let same = match rows.next_row() {
                            Ok(Some(Cell::Tokens(own))) => own.is_empty() || agrees(column, tokens, &own),
                            Ok(Some(Cell::Text(_)) | None) | Err(_) => false,
                        };
                        if !same {
                            return Err(DataError::PartlyLearned { document: name, column });
                        }
                    }
                }
                Ok(cell.map(|content| Record { name, content, ends: true }))
            }
            Kind::Lines { text, line } => loop {
                *line += 1;
                let offset = text.offset;
                let Some(own) = text.line(path, *line)? else { return Ok(None) };
                if own.trim().is_empty() {
                    continue;
                }
                let content = match &self.line_content {
                    LineContent::Whole => Cell::Text(own.to_string()),
                    LineContent::Field(column) => {
                        json_lines::cell(own, column).map_err(|problem| problem.in_line(path, *line, offset, column))?
                    }
                };
                let name = format!("{}:{line}", path.display());
                return Ok(Some(Record { name, content, ends: true }));
            },
            Kind::Text { text, has_begun } => {
                let part = text.part(path)?;
                let is_first = !std::mem::replace(has_begun, true);
                Ok(part.filter(|(part, _)| is_first || !part.is_empty()).map(|(part, ends)| {
                    let name = path.display().to_string();
                    Record { name, content: Cell::Text(part), ends }
                }))
            }
        }
    }
}

/// `error`, or where several of `files` cannot be read, what is wrong with each: all of them are mended at once.
pub(crate) fn of_all_files<'a>(
    error: DataError,
    files: impl Iterator<Item = (&'a Path, Option<&'a str>)>,
) -> DataError {
    let problem = |(path, column): (&Path, Option<&str>)| {
        // A pipe is read once.
        if !path.is_file() {
            return None;
        }
        let read = || -> Result<(), DataError> {
            let mut records = Records::open(path, column)?;
            while records.next_record()?.is_some() {}
            Ok(())
        };
        read().err()
    };
    let problems: Vec<DataError> = files.filter_map(problem).collect();
    if problems.len() > 1 { DataError::Several(problems) } else { error }
}

/// The columns next to tokens, where no column was named and they are there.
fn learned(
    choice: &ColumnChoice,
    open: impl Fn(&ColumnChoice) -> Result<Box<dyn Rows + Send>, FormatError>,
) -> Vec<(&'static str, Box<dyn Rows + Send>)> {
    match choice {
        ColumnChoice::FirstOf(names) if *names == USUAL_COLUMNS => {
            let column = |name: &'static str| Some((name, open(&ColumnChoice::Named(name.into())).ok()?));
            LEARNED_TOKENS.into_iter().filter_map(column).collect()
        }
        ColumnChoice::FirstOf(_) | ColumnChoice::Named(_) => vec![],
    }
}

/// A file that was opened.
struct Opened {
    /// All bytes of a pipe, which is read once.
    whole: Option<Bytes>,
    stream: Box<dyn Read + Send>,
    /// Its length.
    bytes: u64,
}

fn opened(path: &Path) -> Result<Opened, DataError> {
    let refused = |error: InputError| DataError::Unreadable { path: path.to_path_buf(), reason: error.into() };
    let is_file = fs::metadata(path).map_err(unreadable(path))?.is_file();
    if is_file {
        let file = files::open(path, InputKind::Data).map_err(refused)?;
        let bytes = file.metadata().map_err(unreadable(path))?.len();
        return Ok(Opened { whole: None, stream: Box::new(file), bytes });
    }
    let bytes: Arc<[u8]> = files::read(path, InputKind::Text).map_err(refused)?.into();
    let (whole, count) = (Some(Bytes::Owned(bytes.clone())), bytes.len() as u64);
    Ok(Opened { whole, stream: Box::new(Cursor::new(bytes)), bytes: count })
}

/// Tokens are recognised by their names, which decide what else a run needs.
fn check_tokens(path: &Path, beginning: &[u8]) -> Result<(), DataError> {
    let ending = if beginning.starts_with(token_file::MAGIC) {
        ".tokens"
    } else if beginning.starts_with(megatron::MAGIC) {
        ".idx"
    } else {
        return Ok(());
    };
    Err(DataError::TokensByName { path: path.to_path_buf(), ending })
}

fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> DataError {
    move |reason| DataError::Unreadable { path: path.to_path_buf(), reason }
}

fn fill(stream: &mut (dyn Read + Send), buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// JSON lines where the name promises them or the first line is a JSON object; or else text.
fn text_kind(path: &Path, mut text: Text) -> Result<Kind, DataError> {
    text.reach(path, Format::BEGINNING_BYTES)?;
    // Tables are read in any order, and streams are not; so one within a compressed file is another file first.
    if let Source::Packed(_) = text.source
        && let Some(format) = Format::of(text.rest())
    {
        return Err(DataError::FormatWithin { path: path.to_path_buf(), format });
    }
    if text.rest().starts_with(BYTE_ORDER_MARK) {
        text.take(BYTE_ORDER_MARK.len());
    }
    let ending = inner_ending(path).unwrap_or_default();
    let is_promised = ["jsonl", "ndjson"].contains(&ending.as_str());
    if (is_promised || ending == "json") && json_lines::is_array_of_objects(text.rest()) {
        return Err(DataError::JsonArray(path.to_path_buf()));
    }
    if is_promised || text.begins_with_object(path)? {
        return Ok(Kind::Lines { text, line: 0 });
    }
    Ok(Kind::Text { text, has_begun: false })
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl Text {
    fn new(source: Source, pending: Vec<u8>) -> Text {
        Text { source, pending, used: 0, offset: 0, has_ended: false }
    }

    /// Bytes that were read and not used.
    fn rest(&self) -> &[u8] {
        &self.pending[self.used..]
    }

    /// Reads until there are `count` bytes, or all.
    fn reach(&mut self, path: &Path, count: usize) -> Result<(), DataError> {
        while self.rest().len() < count && !self.has_ended {
            self.read_block(path)?;
        }
        Ok(())
    }

    fn read_block(&mut self, path: &Path) -> Result<(), DataError> {
        self.pending.drain(..self.used);
        self.used = 0;
        let start = self.pending.len();
        self.pending.resize(start + BLOCK_BYTES, 0);
        let block = &mut self.pending[start..];
        let count = match &mut self.source {
            Source::Plain(stream) => fill(stream.as_mut(), block).map_err(unreadable(path))?,
            Source::Packed(stream) => {
                stream.fill(block).map_err(|error| DataError::BadTable { path: path.to_path_buf(), error })?
            }
        };
        self.pending.truncate(start + count);
        self.has_ended = count < BLOCK_BYTES;
        Ok(())
    }

    fn take(&mut self, count: usize) -> &[u8] {
        let start = self.used;
        self.offset += count;
        self.used += count;
        &self.pending[start..self.used]
    }

    /// Bytes up to the end of the line in which byte `from` of the rest is.
    fn line_bytes(&mut self, path: &Path, line: usize, from: usize) -> Result<usize, DataError> {
        let mut searched = from;
        loop {
            if let Some(at) = self.rest()[searched..].iter().position(|byte| *byte == b'\n') {
                return Ok(searched + at + 1);
            }
            searched = self.rest().len();
            if searched > LINE_BYTES {
                return Err(DataError::LongLine { path: path.to_path_buf(), line, limit_bytes: LINE_BYTES });
            }
            if self.has_ended {
                return Ok(searched);
            }
            self.read_block(path)?;
        }
    }

    fn begins_with_object(&mut self, path: &Path) -> Result<bool, DataError> {
        let blank = self.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if self.rest().get(blank) != Some(&b'{') {
            return Ok(false);
        }
        match self.line_bytes(path, 1, blank) {
            Ok(end) => Ok(json_lines::is_object(&self.rest()[blank..end])),
            Err(DataError::LongLine { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next line with its end; `None` after the last.
    fn line(&mut self, path: &Path, line: usize) -> Result<Option<&str>, DataError> {
        let count = self.line_bytes(path, line, 0)?;
        if count == 0 {
            return Ok(None);
        }
        let offset = self.offset;
        std::str::from_utf8(self.take(count)).map(Some).map_err(|error| {
            let offset = offset + error.valid_up_to();
            DataError::NotUtf8 { path: path.to_path_buf(), offset }
        })
    }

    /// The next part of the text, and whether it is the last; `None` after that.
    fn part(&mut self, path: &Path) -> Result<Option<(String, bool)>, DataError> {
        self.reach(path, PART_BYTES + AFTER_BYTES)?;
        if self.rest().is_empty() && self.offset > 0 {
            return Ok(None);
        }
        let valid = match std::str::from_utf8(self.rest()) {
            Ok(text) => text,
            // After a part, a character may continue in the next block.
            Err(error) if error.valid_up_to() > PART_BYTES => {
                std::str::from_utf8(&self.rest()[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(error) => {
                let offset = self.offset + error.valid_up_to();
                return Err(DataError::NotUtf8 { path: path.to_path_buf(), offset });
            }
        };
        let cut = first_cut(valid);
        let part = valid[..cut.unwrap_or(valid.len())].to_string();
        self.take(part.len());
        Ok(Some((part, cut.is_none())))
    }
}
