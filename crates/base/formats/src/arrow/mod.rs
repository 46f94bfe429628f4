//! Arrow files and streams: one column, batch by batch, each as streams of its buffers.
//!
//! Source of the format: <https://arrow.apache.org/docs/format/Columnar.html>, version 1.5.

mod batch;
mod buffer;
mod flat;
mod nested;
mod parts;
mod reader;
mod schema;
mod views;

use crate::error::{FormatError, Problem};
use crate::growth::Growth;
use crate::kinds::{Cell, ColumnChoice, Nesting, Rows};
use batch::Batch;
use flat::Table;
use schema::{Column, Content};

pub use parts::MOST_BYTES as MOST_STRING_BYTES;

const FILE_MARK: &[u8] = b"ARROW1";
/// The mark of a file, filled up.
const FILE_HEAD_BYTES: usize = 8;
const CONTINUATION: u32 = u32::MAX;
/// The most bytes of a message's description.
const MOST_DESCRIPTION_BYTES: usize = 64 << 20;

/// A table with the place in it that was reached.
pub struct Arrow<B: AsRef<[u8]>> {
    bytes: B,
    column: Column,
    growth: Growth,
    /// The next message.
    at: usize,
    /// Batches that have begun, and the rows before the one that is read.
    batches: u64,
    rows: u64,
    batch: Option<Batch<B>>,
    is_file: bool,
}

/// A message: its description, and where its body is.
struct Message<'a> {
    kind: u64,
    header: Table<'a>,
    body: usize,
    end: usize,
}

impl<B: AsRef<[u8]> + Clone> Arrow<B> {
    /// Opens the file or the stream that is in `bytes` and finds the column.
    ///
    /// # Errors
    /// A description that is missing or wrong, with its place.
    pub fn open(bytes: B, choice: &ColumnChoice, nesting: Nesting) -> Result<Arrow<B>, FormatError> {
        let file = bytes.as_ref();
        let is_file = file.starts_with(FILE_MARK);
        if is_file && (!file.ends_with(FILE_MARK) || file.len() < 2 * FILE_HEAD_BYTES) {
            let problem = Problem::Truncated("an Arrow file, which ends with `ARROW1`");
            return Err(problem.at(format!("byte {}", file.len())));
        }
        let start = if is_file { FILE_HEAD_BYTES } else { 0 };
        let opened = message(file, start).and_then(|message| match message {
            Some(Message { kind: SCHEMA, header, end, .. }) => Ok((schema::find(&header, choice, nesting)?, end)),
            Some(_) | None => Err(Problem::damaged("the columns come first, and they are missing")),
        });
        let (column, at) = opened.map_err(|problem| problem.at(format!("byte {start}")))?;
        let growth = Growth::of_file(file.len() as u64);
        Ok(Arrow { bytes, column, growth, at, batches: 0, rows: 0, batch: None, is_file })
    }

    /// Whether the column has tokens.
    pub fn has_tokens(&self) -> bool {
        match self.column.content {
            Content::Lists(..) => true,
            Content::Strings(_) | Content::Views | Content::Json(_) => false,
        }
    }

    fn row(&mut self) -> Result<Option<Cell>, Problem> {
        loop {
            if let Some(batch) = self.batch.as_mut().filter(|batch| batch.left > 0) {
                let cell = batch.next(&mut self.growth)?;
                self.rows += 1;
                return Ok(Some(cell));
            }
            self.batch = None;
            let bytes = self.bytes.clone();
            let Some(Message { kind, header, body, end }) = message(bytes.as_ref(), self.at)? else { return Ok(None) };
            self.growth.add(1)?;
            self.at = end;
            if kind == RECORD_BATCH {
                self.batches += 1;
                self.rows = 0;
                self.batch = Some(Batch::new(&self.bytes, &header, &self.column, (body, end), &mut self.growth)?);
            }
        }
    }
}

const SCHEMA: u64 = 1;
const RECORD_BATCH: u64 = 3;

/// The message at byte `at`; `None` at the end of the stream.
fn message(file: &[u8], at: usize) -> Result<Option<Message<'_>>, Problem> {
    let early = || Problem::Truncated("a message of Arrow");
    let word = |at: usize| {
        let bytes = file.get(at..at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    if at == file.len() {
        // A stream may end without saying so.
        return Ok(None);
    }
    // The first version had no mark in front of the length.
    let (length, start) = match word(at).ok_or_else(early)? {
        CONTINUATION => (word(at + 4).ok_or_else(early)? as usize, at + 8),
        length => (length as usize, at + 4),
    };
    if length == 0 {
        return Ok(None);
    }
    if length > MOST_DESCRIPTION_BYTES {
        let (what, limit_bytes) = ("a message's description", MOST_DESCRIPTION_BYTES as u64);
        return Err(Problem::TooLarge { what, bytes: length as u64, limit_bytes });
    }
    let description = file.get(start..start + length).ok_or_else(early)?;
    let table = Table::root(description)?;
    let kind = table.number(1, 1)?;
    let header = table.table(2)?.ok_or_else(|| Problem::damaged("a message has no content"))?;
    let body = start + length;
    let end = body.checked_add(table.length(3)?).filter(|end| *end <= file.len()).ok_or_else(early)?;
    Ok(Some(Message { kind, header, body, end }))
}

impl<B: AsRef<[u8]> + Clone> Rows for Arrow<B> {
    fn next_row(&mut self) -> Result<Option<Cell>, FormatError> {
        let row = self.row();
        let file = if self.is_file { "file" } else { "stream" };
        row.map_err(|problem| match self.batches {
            0 => problem.at(format!("Arrow {file}, byte {}", self.at)),
            batch => {
                problem.at(format!("record batch {}, row {}, message before byte {}", batch - 1, self.rows, self.at))
            }
        })
    }
}
