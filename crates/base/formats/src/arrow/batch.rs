//! Rows of one batch, from streams of its buffers.

use super::flat::Table;
use super::parts::{Cursor, Parts, Row, Validity, room};
use super::reader::Reader;
use super::schema::{Column, Content, Integers};
use super::views::Views;
use crate::error::Problem;
use crate::growth::Growth;
use crate::json::JsonText;
use crate::kinds::Cell;

/// Values of the rows.
enum Values<B: AsRef<[u8]>> {
    Strings(Row<B>),
    Views(Views<B>),
    Lists { row: Row<B>, elements: Validity<B>, integers: Integers },
    Json(Reader<B>),
}

/// A batch with the rows that are left.
pub struct Batch<B: AsRef<[u8]>> {
    pub left: u64,
    validity: Validity<B>,
    values: Values<B>,
}

impl<B: AsRef<[u8]> + Clone> Batch<B> {
    /// The batch that `record` describes, whose buffers begin at byte `body` of `file` and end before `end`.
    pub fn new(
        file: &B,
        record: &Table,
        column: &Column,
        (body, end): (usize, usize),
        growth: &mut Growth,
    ) -> Result<Batch<B>, Problem> {
        let left = record.length(0)? as u64;
        let parts = Parts::new(file, record, (body, end))?;
        let (length, nulls) = parts.node(column.first_node)?;
        if length != left {
            return Err(Problem::damaged(format!("a column has {length} rows in a batch of {left}")));
        }
        let first = parts.first_buffer(column.first_buffer, column.views_before);
        let values = match &column.content {
            Content::Strings(offsets) => {
                Values::Strings(Row::new(&parts, (first + 1, first + 2), *offsets, left, growth)?)
            }
            Content::Views => Values::Views(Views::new(&parts, first + 1, parts.view_buffers(column.views_before))?),
            Content::Lists(offsets, integers) => {
                let (_, nulls) = parts.node(column.first_node + 1)?;
                let row = Row::new(&parts, (first + 1, first + 3), *offsets, left, growth)?;
                Values::Lists { row, elements: parts.validity(first + 2, nulls)?, integers: *integers }
            }
            Content::Json(kind) => {
                let mut at = Cursor { node: column.first_node, buffer: first, view: column.views_before };
                let values = Values::Json(Reader::new(kind, &parts, &mut at, growth)?);
                return Ok(Batch { left, validity: Validity::all(), values });
            }
        };
        Ok(Batch { left, validity: parts.validity(first, nulls)?, values })
    }

    /// The next row.
    pub fn next(&mut self, growth: &mut Growth) -> Result<Cell, Problem> {
        self.left -= 1;
        growth.add(1)?;
        let is_there = self.validity.next()?;
        match &mut self.values {
            Values::Strings(row) => {
                let mut bytes = room(row.next(1)?, growth)?;
                row.values.fill(&mut bytes)?;
                text(is_there, bytes)
            }
            Values::Views(views) => {
                let bytes = views.next(growth)?;
                text(is_there, bytes)
            }
            Values::Json(reader) => {
                let mut json = JsonText::default();
                reader.next(&mut json, growth)?;
                json.finish(growth)
            }
            Values::Lists { row, elements, integers } => {
                let count = row.next(integers.bytes as u64)?;
                let mut tokens = Vec::new();
                for _ in 0..count {
                    growth.add(4)?;
                    let token = token(row.values.number(integers.bytes)?, *integers)?;
                    if !elements.next()? {
                        let what = "null in a list of tokens".into();
                        return Err(Problem::Unsupported { what, remedy: "write the list without it" });
                    }
                    tokens.push(token);
                }
                Ok(Cell::Tokens(if is_there { tokens } else { vec![] }))
            }
        }
    }
}

fn text(is_there: bool, bytes: Vec<u8>) -> Result<Cell, Problem> {
    if !is_there {
        return Ok(Cell::Text(String::new()));
    }
    let text = String::from_utf8(bytes);
    text.map(Cell::Text).map_err(|error| {
        Problem::damaged(format!("a string is not UTF-8 at its byte {}", error.utf8_error().valid_up_to()))
    })
}

fn token(word: u64, integers: Integers) -> Result<u32, Problem> {
    let number = integers.number(word);
    u32::try_from(number).map_err(|_| Problem::NotToken(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_tokens_are_told_as_they_were_written() {
        let said =
            |word, bytes, is_signed| token(word, Integers { bytes, is_signed }).map_err(|problem| problem.to_string());
        assert_eq!(said(7, 4, true), Ok(7));
        assert_eq!(said(0xffff_ffff, 4, false), Ok(u32::MAX));
        let rule = "is not a token; tokens are whole numbers from 0 to 4294967295: write the file again with others";
        assert_eq!(said(0xffff_ffff, 4, true), Err(format!("-1 {rule}")));
        assert_eq!(said(u64::MAX, 8, true), Err(format!("-1 {rule}")));
        assert_eq!(said(1 << 32, 8, true), Err(format!("4294967296 {rule}")));
        assert_eq!(said(u64::MAX, 8, false), Err(format!("18446744073709551615 {rule}")));
    }
}
