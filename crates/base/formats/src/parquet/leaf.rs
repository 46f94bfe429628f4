//! One column of values, page by page.

use super::footer::{Chunk, Leaf};
use super::page::{self, Next, Page};
use super::runs::Runs;
use super::values::Dictionary;
use crate::error::Problem;
use crate::growth::Growth;

/// A column of values with the place in it that was reached. At most one page and one dictionary are in memory.
#[derive(Debug)]
pub struct LeafReader {
    pub leaf: Leaf,
    /// The row group, and the byte of the next page in it.
    group: usize,
    at: usize,
    /// Values of the group that were read.
    values: u64,
    dictionary: Option<Dictionary>,
    page: Option<Box<Page>>,
    /// Levels of a value that were read and belong to the next row.
    peeked: Option<(u32, u32)>,
}

impl LeafReader {
    /// The beginning of `leaf`.
    pub fn new(leaf: Leaf) -> LeafReader {
        let at = leaf.chunks.first().map_or(0, |chunk| chunk.start);
        LeafReader { leaf, group: 0, at, values: 0, dictionary: None, page: None, peeked: None }
    }

    /// The row group that is read; `None` after the last.
    pub fn chunk(&self) -> Option<&Chunk> {
        self.leaf.chunks.get(self.group)
    }

    /// The row group and the byte that were reached.
    pub fn place(&self) -> String {
        format!("row group {}, byte {}", self.group, self.at)
    }

    /// Continues with the next row group.
    pub fn next_group(&mut self) {
        self.group += 1;
        self.at = self.chunk().map_or(0, |chunk| chunk.start);
        (self.values, self.dictionary) = (0, None);
    }

    /// Repetition and definition of the next value of the row group; `None` after its last.
    pub fn levels(&mut self, file: &[u8], growth: &mut Growth) -> Result<Option<(u32, u32)>, Problem> {
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
            if !self.next_page(file, growth)? {
                return Ok(None);
            }
        }
    }

    /// The levels that [`LeafReader::levels`] gives next.
    pub fn peek(&mut self, file: &[u8], growth: &mut Growth) -> Result<Option<(u32, u32)>, Problem> {
        self.peeked = self.levels(file, growth)?;
        Ok(self.peeked)
    }

    /// Gives levels back to the next row.
    pub fn put_back(&mut self, levels: (u32, u32)) {
        self.peeked = Some(levels);
    }

    /// Reads on to the next page with values; false where the row group has no more.
    fn next_page(&mut self, file: &[u8], growth: &mut Growth) -> Result<bool, Problem> {
        let Some(chunk) = self.leaf.chunks.get(self.group) else { return Ok(false) };
        while self.values < chunk.num_values {
            let end = chunk.start + chunk.bytes;
            if self.at >= end {
                let what = format!("its pages have {} values, but {} were announced", self.values, chunk.num_values);
                return Err(Problem::damaged(what));
            }
            let rest = &file[self.at..end];
            let has_dictionary = self.dictionary.is_some();
            let (next, bytes) = page::read(rest, chunk, &self.leaf.column, has_dictionary, growth)?;
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

    /// The bytes of the next value.
    pub fn bytes(&mut self) -> Result<&[u8], Problem> {
        let page = self.page.as_mut().ok_or_else(without_page)?;
        page.values.next_bytes(&page.bytes, self.dictionary.as_ref())
    }

    /// The next whole number.
    pub fn integer(&mut self) -> Result<i64, Problem> {
        let page = self.page.as_mut().ok_or_else(without_page)?;
        page.values.next_integer(&page.bytes, self.dictionary.as_ref())
    }
}

fn without_page() -> Problem {
    Problem::damaged("a value without a page")
}
