//! Tables of parquet: one column, page by page.
//!
//! Source of the format: <https://github.com/apache/parquet-format>, version 2.11.

mod assemble;
mod codec;
mod columns;
mod deltas;
mod footer;
mod leaf;
mod page;
mod runs;
mod thrift;
mod tree;
mod values;

use crate::error::{FormatError, Problem};
use crate::growth::Growth;
use crate::kinds::{Cell, ColumnChoice, Nesting, Rows};
use assemble::Assembly;
use columns::Physical;
use leaf::LeafReader;
use tree::Tree;

pub use page::MOST_BYTES as MOST_PAGE_BYTES;

/// A table with the place in it that was reached. At most one page and one dictionary of each column of values are in
/// memory.
#[derive(Debug)]
pub struct Parquet<B> {
    bytes: B,
    growth: Growth,
    /// The columns of values of the chosen column: one without a tree.
    leaves: Vec<LeafReader>,
    tree: Option<Tree>,
    /// Rows of the group that were read.
    rows: u64,
}

impl<B: AsRef<[u8]>> Parquet<B> {
    /// Opens the table that is in `bytes` and finds the column.
    ///
    /// # Errors
    /// A description that is missing or wrong, with its place.
    pub fn open(bytes: B, choice: &ColumnChoice, nesting: Nesting) -> Result<Parquet<B>, FormatError> {
        let footer = footer::read(bytes.as_ref(), choice, nesting)?;
        let growth = Growth::of_file(bytes.as_ref().len() as u64);
        let leaves: Vec<LeafReader> = footer.leaves.into_iter().map(LeafReader::new).collect();
        if leaves.is_empty() {
            return Err(Problem::damaged("the column has no values").at("its description"));
        }
        Ok(Parquet { bytes, growth, leaves, tree: footer.tree, rows: 0 })
    }

    /// Whether the column has tokens.
    pub fn has_tokens(&self) -> bool {
        self.tree.is_none() && self.leaves[0].leaf.column.physical != Physical::Bytes
    }

    fn text_row(&mut self) -> Result<Option<Cell>, Problem> {
        let leaf = &mut self.leaves[0];
        let Some((_, definition)) = leaf.levels(self.bytes.as_ref(), &mut self.growth)? else { return Ok(None) };
        if definition != leaf.leaf.column.max_definition {
            return Ok(Some(Cell::Text(String::new())));
        }
        let text = std::str::from_utf8(leaf.bytes()?).map_err(|error| {
            Problem::damaged(format!("row {} is not UTF-8 at its byte {}", self.rows, error.valid_up_to()))
        })?;
        self.growth.add(text.len() as u64)?;
        Ok(Some(Cell::Text(text.into())))
    }

    fn tokens_row(&mut self) -> Result<Option<Cell>, Problem> {
        let (file, leaf) = (self.bytes.as_ref(), &mut self.leaves[0]);
        let (most, least) = (leaf.leaf.column.max_definition, leaf.leaf.column.element_definition);
        let mut tokens = Vec::new();
        let Some((first, mut definition)) = leaf.levels(file, &mut self.growth)? else { return Ok(None) };
        if first != 0 {
            return Err(Problem::damaged(format!("row {} begins within a list", self.rows)));
        }
        loop {
            if definition == most {
                let token = leaf.integer()?;
                self.growth.add(4)?;
                tokens.push(u32::try_from(token).map_err(|_| Problem::NotToken(token.into()))?);
            } else if definition >= least {
                let what = format!("null in the list of tokens of row {}", self.rows);
                return Err(Problem::Unsupported { what, remedy: "write the list without it" });
            }
            match leaf.levels(file, &mut self.growth)? {
                Some((0, next)) => {
                    leaf.put_back((0, next));
                    break;
                }
                Some((_, next)) => definition = next,
                None => break,
            }
        }
        Ok(Some(Cell::Tokens(tokens)))
    }

    fn nested_row(&mut self) -> Result<Option<Cell>, Problem> {
        let Some(tree) = &self.tree else { return Ok(None) };
        let (file, leaves) = (self.bytes.as_ref(), self.leaves.as_mut_slice());
        Assembly { file, leaves, growth: &mut self.growth }.row(tree)
    }

    /// Compares what was read of a row group with what it announces, and continues with the next.
    fn end_group(&mut self) -> Result<bool, Problem> {
        let Some(chunk) = self.leaves[0].chunk() else { return Ok(false) };
        if self.rows != chunk.num_rows {
            let what = format!("it has {} rows, but {} were announced", self.rows, chunk.num_rows);
            return Err(Problem::damaged(what));
        }
        self.leaves.iter_mut().for_each(LeafReader::next_group);
        self.rows = 0;
        Ok(true)
    }

    fn row(&mut self) -> Result<Option<Cell>, Problem> {
        loop {
            let row = match (&self.tree, self.has_tokens()) {
                (Some(_), _) => self.nested_row()?,
                (None, true) => self.tokens_row()?,
                (None, false) => self.text_row()?,
            };
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
        self.row().map_err(|problem| problem.at(self.leaves[0].place()))
    }
}
