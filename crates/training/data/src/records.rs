//! The documents of a file, one after the other, whatever its format is. Formats are recognised by content: compressed
//! or not; a table of parquet or Arrow; JSON lines; or else text. Of text, names distinguish CSV, and JSON with objects
//! over several lines.

use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{InputError, InputKind};
use formats::arrow::Arrow;
use formats::parquet::Parquet;
use formats::{Cell, ColumnChoice, Decompressed, Format, FormatError, Nesting, Rows};

use crate::csv_rows::{CsvRows, Separator};
use crate::error::DataError;
use crate::file_names::{has_name_of_table, inner_ending};
use crate::json_lines;
use crate::json_objects::JsonObjects;
use crate::learned_tokens::{Learned, LearnedColumns};
use crate::megatron;
use crate::memory_map::MemoryMap;
use crate::text_source::{Source, Text, fill, unreadable};
use crate::token_file;
use crate::tools_column;

/// Columns and fields that are read where none is named.
pub(crate) const USUAL_COLUMNS: &[&str] = &["text", "input_ids", "tokens"];
/// Columns of conversations that are read where none is named.
const CONVERSATION_COLUMNS: &[&str] = &["messages"];
/// The beginning of the file that a clone without Git LFS has in place of a large one.
const GIT_LFS: &[u8] = b"version https://git-lfs.github.com/spec/";

/// A document, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place, for messages: a path, with the line or the row.
    pub name: String,
    /// Its text or tokens.
    pub content: Cell,
    /// Whether each of its tokens is learned; `None` where all of it is.
    pub learned: Option<Vec<bool>>,
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

enum Kind {
    Table {
        rows: Box<dyn Rows + Send>,
        /// Columns that say what of the tokens is learned, where no column was named.
        learned: LearnedColumns,
        /// The column of tools, where the table is read for conversations.
        tools: Option<Box<dyn Rows + Send>>,
    },
    Csv {
        text: Text,
        rows: CsvRows,
    },
    Objects {
        text: Text,
        objects: JsonObjects,
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

/// The content of a record with fields.
#[derive(Clone, Debug)]
enum RecordContent {
    /// The text or the tokens of a field.
    Field,
    /// A conversation: an object of JSON itself, or the field of a table with the tools of its row.
    Conversation,
}

/// The records of one file, in its order.
pub struct Records {
    path: PathBuf,
    plain_bytes: u64,
    choice: ColumnChoice,
    content: RecordContent,
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
        Records::open_as(path, choice, RecordContent::Field)
    }

    /// Opens a file of conversations: its records are whole lines of JSON, or the cells of the column of a table, the
    /// first of the usual ones without `column`.
    ///
    /// # Errors
    /// See [`Records::open`]; a file of text.
    pub fn open_conversations(path: &Path, column: Option<&str>) -> Result<Records, DataError> {
        let usual = ColumnChoice::FirstOf(CONVERSATION_COLUMNS);
        let choice = column.map_or(usual, |name| ColumnChoice::Named(name.into()));
        let records = Records::open_as(path, choice, RecordContent::Conversation)?;
        match records.kind {
            Kind::Table { .. } | Kind::Csv { .. } | Kind::Objects { .. } | Kind::Lines { .. } => Ok(records),
            Kind::Text { .. } => Err(DataError::NoRecords(path.to_path_buf())),
        }
    }

    fn open_as(path: &Path, choice: ColumnChoice, content: RecordContent) -> Result<Records, DataError> {
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
                let table = |choice: &ColumnChoice, nesting| {
                    Parquet::open(bytes.clone(), choice, nesting).map(|own| Box::new(own) as _)
                };
                content.table(&choice, table).map_err(bad)?
            }
            Some(Format::ArrowFile | Format::ArrowStream) => {
                let bytes = whole().map_err(unreadable(path))?;
                let table = |choice: &ColumnChoice, nesting| {
                    Arrow::open(bytes.clone(), choice, nesting).map(|own| Box::new(own) as _)
                };
                content.table(&choice, table).map_err(bad)?
            }
            Some(Format::Other(format)) => return Err(DataError::OtherFormat { path: path.to_path_buf(), format }),
            Some(Format::Compressed(compression)) => {
                let stream: Box<dyn Read + Send> = Box::new(Cursor::new(beginning).chain(stream));
                let stream = Decompressed::new(stream, compression, source_bytes);
                text_kind(path, &choice, Text::new(Source::Packed(Box::new(stream)), vec![]))?
            }
            None => text_kind(path, &choice, Text::new(Source::Plain(stream), beginning))?,
        };
        Ok(Records { path: path.to_path_buf(), plain_bytes, choice, content, kind, row: 0 })
    }

    /// Bytes of a text that is stored as it is; 0 for compressed ones and tables.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// Whether it is a table or JSON lines, whose records are read from a column.
    pub fn has_columns(&self) -> bool {
        match self.kind {
            Kind::Table { .. } | Kind::Csv { .. } | Kind::Objects { .. } | Kind::Lines { .. } => true,
            Kind::Text { .. } => false,
        }
    }

    /// The next record; `None` after the last.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn next_record(&mut self) -> Result<Option<Record>, DataError> {
        let path = self.path.as_path();
        match &mut self.kind {
            Kind::Table { rows, learned, tools } => {
                let bad = |error| DataError::BadTable { path: path.to_path_buf(), error };
                let name = format!("{}, row {}", path.display(), self.row);
                let Some(mut cell) = rows.next_row().map_err(bad)? else { return Ok(None) };
                self.row += 1;
                if let Cell::Tokens(tokens) = cell {
                    let refused = |problem| DataError::NotLearned { document: name.clone(), problem };
                    let Learned { tokens, learned } = learned.next(tokens).map_err(refused)?;
                    return Ok(Some(Record { name, content: Cell::Tokens(tokens), learned, ends: true }));
                }
                if let (Some(tools), Cell::Text(text)) = (tools, &mut cell) {
                    let own = tools.next_row().map_err(bad)?;
                    let record = tools_column::with_tools(name_of(&self.choice), std::mem::take(text), own);
                    let refused = |problem| DataError::NotConversation { document: name.clone(), problem };
                    *text = record.map_err(refused)?;
                }
                Ok(Some(Record { name, content: cell, learned: None, ends: true }))
            }
            Kind::Csv { text, rows } => {
                let Some((line, field)) = rows.next_row(text, path)? else { return Ok(None) };
                let name = format!("{}:{line}", path.display());
                Ok(Some(Record { name, content: Cell::Text(field), learned: None, ends: true }))
            }
            Kind::Objects { text, objects } => {
                let Some((line, offset, own)) = objects.next_object(text, path)? else { return Ok(None) };
                self.content.record(&self.choice, (path, line, offset), &own).map(Some)
            }
            Kind::Lines { text, line } => loop {
                *line += 1;
                let offset = text.offset;
                let Some(own) = text.line(path, *line)? else { return Ok(None) };
                if !own.trim().is_empty() {
                    return self.content.record(&self.choice, (path, *line, offset), own).map(Some);
                }
            },
            Kind::Text { text, has_begun } => {
                let part = text.part(path)?;
                let is_first = !std::mem::replace(has_begun, true);
                Ok(part.filter(|(part, _)| is_first || !part.is_empty()).map(|(part, ends)| {
                    let name = path.display().to_string();
                    Record { name, content: Cell::Text(part), learned: None, ends }
                }))
            }
        }
    }
}

impl RecordContent {
    fn nesting(&self) -> Nesting {
        match self {
            RecordContent::Field => Nesting::Refused,
            RecordContent::Conversation => Nesting::Json,
        }
    }

    /// The table that `open` opens for a column.
    fn table(
        &self,
        choice: &ColumnChoice,
        open: impl Fn(&ColumnChoice, Nesting) -> Result<Box<dyn Rows + Send>, FormatError>,
    ) -> Result<Kind, FormatError> {
        let rows = open(choice, self.nesting())?;
        let tools = match self {
            RecordContent::Field => None,
            RecordContent::Conversation => tools_column::open(|own| open(own, Nesting::Json))?,
        };
        let learned = match (self, choice) {
            (RecordContent::Field, ColumnChoice::FirstOf(_)) => LearnedColumns::open(|own| open(own, Nesting::Numbers)),
            (RecordContent::Field | RecordContent::Conversation, _) => LearnedColumns::default(),
        };
        Ok(Kind::Table { rows, learned, tools })
    }

    /// The record of the object `json`, which begins in line `line` of `path`, at byte `offset`.
    fn record(
        &self,
        choice: &ColumnChoice,
        (path, line, offset): (&Path, usize, usize),
        json: &str,
    ) -> Result<Record, DataError> {
        let (content, learned) = match self {
            RecordContent::Conversation => (Cell::Text(json.to_string()), None),
            RecordContent::Field => json_lines::cell(json, choice)
                .map_err(|problem| problem.in_line(path, line, offset, &[name_of(choice)]))?,
        };
        Ok(Record { name: format!("{}:{line}", path.display()), content, learned, ends: true })
    }
}

/// The name of the column, or the first that it may have.
fn name_of(choice: &ColumnChoice) -> &str {
    match choice {
        ColumnChoice::FirstOf(names) => names.first().copied().unwrap_or_default(),
        ColumnChoice::Named(name) => name,
    }
}

/// Bytes of a file that is read a second time to find all that is wrong.
const READ_AGAIN_BYTES: u64 = 256 << 20;

/// `error`, or where several of `files` cannot be read, all of their errors, which are mended at once. Large files are
/// not read a second time.
pub(crate) fn of_all_files<'a>(
    error: DataError,
    files: impl Iterator<Item = (&'a Path, Option<&'a str>)>,
) -> DataError {
    let files: Vec<(&Path, Option<&str>)> = files.collect();
    let problem = |(path, column): &(&Path, Option<&str>)| {
        // A pipe is read once.
        if !fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= READ_AGAIN_BYTES) {
            return None;
        }
        let read = || -> Result<(), DataError> {
            let mut records = Records::open(path, *column)?;
            while records.next_record()?.is_some() {}
            Ok(())
        };
        read().err()
    };
    if files.len() < 2 {
        return error;
    }
    let problems: Vec<DataError> = files.iter().filter_map(problem).collect();
    if problems.len() > 1 { DataError::Several(problems) } else { error }
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

/// JSON lines where the name promises them or the first line is a JSON object; objects of JSON in an array or over
/// several lines, and rows of CSV or TSV, where the name promises these; or else text.
fn text_kind(path: &Path, choice: &ColumnChoice, mut text: Text) -> Result<Kind, DataError> {
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
    if let Some(separator) = Separator::of(&ending) {
        let rows = CsvRows::open(&mut text, path, separator, choice)?;
        return Ok(Kind::Csv { text, rows });
    }
    let is_promised = ["jsonl", "ndjson"].contains(&ending.as_str());
    let is_array = (is_promised || ending == "json") && json_lines::is_array_of_objects(text.rest());
    if is_array || (ending == "json" && json_lines::begins_object(text.rest()) && !text.begins_with_object(path)?) {
        return Ok(Kind::Objects { text, objects: JsonObjects::default() });
    }
    if is_promised || text.begins_with_object(path)? {
        return Ok(Kind::Lines { text, line: 0 });
    }
    Ok(Kind::Text { text, has_begun: false })
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
