//! Tables of parquet: one column, page by page.
//!
//! Source of the format: <https://github.com/apache/parquet-format>, version 2.11.

mod codec;
mod deltas;
mod footer;
mod page;
mod runs;
mod thrift;
mod values;

use crate::error::{FormatError, Problem};
use crate::growth::Growth;
use crate::kinds::{Cell, ColumnChoice, Rows};
use footer::{Footer, Physical};
use page::{Next, Page};
use runs::Runs;
use values::Dictionary;

pub use page::MOST_BYTES as MOST_PAGE_BYTES;

/// A table with the place in it that was reached. At most one page and one dictionary are in memory.
#[derive(Debug)]
pub struct Parquet<B> {
    bytes: B,
    footer: Footer,
    growth: Growth,
    /// The row group, and the byte of the next page in it.
    group: usize,
    at: usize,
    /// Rows and values of the group that were read.
    rows: u64,
    values: u64,
    dictionary: Option<Dictionary>,
    page: Option<Box<Page>>,
    /// Levels of a value that were read and belong to the next row.
    peeked: Option<(u32, u32)>,
}

impl<B: AsRef<[u8]>> Parquet<B> {
    /// Opens the table that is in `bytes` and finds the column.
    ///
    /// # Errors
    /// A description that is missing or wrong, with its place.
    pub fn open(bytes: B, choice: &ColumnChoice) -> Result<Parquet<B>, FormatError> {
        let footer = footer::read(bytes.as_ref(), choice)?;
        let growth = Growth::of_file(bytes.as_ref().len() as u64);
        let at = footer.chunks.first().map_or(0, |chunk| chunk.start);
        Ok(Parquet {
            bytes,
            footer,
            growth,
            group: 0,
            at,
            rows: 0,
            values: 0,
            dictionary: None,
            page: None,
            peeked: None,
        })
    }

    /// Whether the column has tokens.
    pub fn has_tokens(&self) -> bool {
        self.footer.column.physical != Physical::Bytes
    }

    fn text_row(&mut self) -> Result<Option<Cell>, Problem> {
        let Some((_, definition)) = self.levels()? else { return Ok(None) };
        let is_there = definition == self.footer.column.max_definition;
        let Some(page) = self.page.as_mut().filter(|_| is_there) else { return Ok(Some(Cell::Text(String::new()))) };
        let bytes = page.values.next_bytes(&page.bytes, self.dictionary.as_ref())?;
        let text = std::str::from_utf8(bytes).map_err(|error| {
            Problem::damaged(format!("row {} is not UTF-8 at its byte {}", self.rows, error.valid_up_to()))
        })?;
        self.growth.add(text.len() as u64)?;
        Ok(Some(Cell::Text(text.into())))
    }

    fn tokens_row(&mut self) -> Result<Option<Cell>, Problem> {
        let mut tokens = Vec::new();
        let Some((first, mut definition)) = self.levels()? else { return Ok(None) };
        if first != 0 {
            return Err(Problem::damaged(format!("row {} begins within a list", self.rows)));
        }
        loop {
            if definition == self.footer.column.max_definition {
                tokens.push(self.token()?);
            } else if definition >= self.footer.column.element_definition {
                let what = format!("null in the list of tokens of row {}", self.rows);
                return Err(Problem::Unsupported { what, remedy: "write the list without it" });
            }
            match self.levels()? {
                Some((0, next)) => {
                    self.peeked = Some((0, next));
                    break;
                }
                Some((_, next)) => definition = next,
                None => break,
            }
        }
        Ok(Some(Cell::Tokens(tokens)))
    }

    fn token(&mut self) -> Result<u32, Problem> {
        let missing = || Problem::damaged("a value without a page");
        let page = self.page.as_mut().ok_or_else(missing)?;
        let token = page.values.next_integer(&page.bytes, self.dictionary.as_ref())?;
        self.growth.add(4)?;
        u32::try_from(token).map_err(|_| Problem::NotToken(token.into()))
    }

    /// Repetition and definition of the next value of the row group; `None` after its last.
    fn levels(&mut self) -> Result<Option<(u32, u32)>, Problem> {
        if let Some(levels) = self.peeked.take() {
            return Ok(Some(levels));
        }
        loop {
            if let Some(page) = self.page.as_mut().filter(|page| page.left > 0) {
                page.left -= 1;
                self.values += 1;
                let Page { bytes, repetition, definition, .. } = page.as_mut();
                let level = |runs: &mut Option<Runs>| runs.as_mut().map_or(Ok(0), |runs| runs.next(bytes));
                return Ok(Some((level(repetition)?, level(definition)?)));
            }
            self.page = None;
            if !self.next_page()? {
                return Ok(None);
            }
        }
    }

    /// Reads on to the next page with values; false where the row group has no more.
    fn next_page(&mut self) -> Result<bool, Problem> {
        let Some(chunk) = self.footer.chunks.get(self.group) else { return Ok(false) };
        while self.values < chunk.num_values {
            let end = chunk.start + chunk.bytes;
            if self.at >= end {
                let what = format!("its pages have {} values, but {} were announced", self.values, chunk.num_values);
                return Err(Problem::damaged(what));
            }
            let rest = &self.bytes.as_ref()[self.at..end];
            let has_dictionary = self.dictionary.is_some();
            let (next, bytes) = page::read(rest, chunk, &self.footer.column, has_dictionary, &mut self.growth)?;
            self.at += bytes;
            match next {
                Next::Page(page) => {
                    self.page = Some(page);
                    return Ok(true);
                }
                Next::Dictionary(dictionary) => self.dictionary = Some(dictionary),
                Next::Nothing => {}
            }
        }
        Ok(false)
    }

    fn place(&self) -> String {
        format!("row group {}, byte {}", self.group, self.at)
    }

    /// Compares what was read of a row group with what it announces, and continues with the next.
    fn end_group(&mut self) -> Result<bool, Problem> {
        let Some(chunk) = self.footer.chunks.get(self.group) else { return Ok(false) };
        if self.rows != chunk.num_rows {
            let what = format!("it has {} rows, but {} were announced", self.rows, chunk.num_rows);
            return Err(Problem::damaged(what));
        }
        self.group += 1;
        self.at = self.footer.chunks.get(self.group).map_or(0, |chunk| chunk.start);
        (self.rows, self.values, self.dictionary) = (0, 0, None);
        Ok(true)
    }

    fn row(&mut self) -> Result<Option<Cell>, Problem> {
        loop {
            let row = if self.has_tokens() { self.tokens_row()? } else { self.text_row()? };
            if row.is_some() {
                self.rows += 1;
                self.growth.add(1)?;
                return Ok(row);
            }
            if !self.end_group()? {
                return Ok(None);
            }
        }
    }
}

impl<B: AsRef<[u8]>> Rows for Parquet<B> {
    fn next_row(&mut self) -> Result<Option<Cell>, FormatError> {
        self.row().map_err(|problem| problem.at(self.place()))
    }
}
