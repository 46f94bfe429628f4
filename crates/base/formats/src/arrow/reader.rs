//! Values of a nested column of a batch as JSON, one row after the other.
//!
//! Children of a struct have a row for each of the struct, also where it is null; the rows of a list are those of its
//! child between two offsets.

use super::buffer::Buffer;
use super::nested::Kind;
use super::parts::{Cursor, Parts, Row, Validity, room};
use super::schema::Integers;
use super::views::Views;
use crate::error::Problem;
use crate::growth::Growth;
use crate::json::JsonText;

/// Whether a value was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Value,
    /// It is null.
    Nothing,
}

/// A column or a part of it, with the place in its buffers that was reached.
pub struct Reader<B: AsRef<[u8]>> {
    left: u64,
    validity: Validity<B>,
    values: Values<B>,
}

enum Values<B: AsRef<[u8]>> {
    Null,
    /// Values of a type that is not read.
    Refused(String),
    Booleans(Validity<B>),
    Integers(Buffer<B>, Integers),
    Floats(Buffer<B>, usize),
    Strings(Row<B>),
    Views(Views<B>),
    List {
        offsets: Buffer<B>,
        width: usize,
        offset: u64,
        element: Box<Reader<B>>,
    },
    Struct(Vec<(String, Reader<B>)>),
}

impl<B: AsRef<[u8]> + Clone> Reader<B> {
    /// The part of type `kind` whose nodes and buffers are next in `at`, which moves after them.
    pub fn new(kind: &Kind, parts: &Parts<B>, at: &mut Cursor, growth: &mut Growth) -> Result<Reader<B>, Problem> {
        let (rows, nulls) = parts.node(at.node)?;
        let first = at.buffer;
        at.node += 1;
        let mut validity = None;
        let values = match kind {
            Kind::Null => {
                validity = Some(Validity::all());
                Values::Null
            }
            Kind::Boolean => {
                at.buffer += 2;
                Values::Booleans(parts.bits(first + 1)?)
            }
            Kind::Integers(integers) => {
                at.buffer += 2;
                Values::Integers(parts.buffer(first + 1)?, *integers)
            }
            Kind::Floats(bytes) => {
                at.buffer += 2;
                Values::Floats(parts.buffer(first + 1)?, *bytes)
            }
            Kind::Strings(offsets) => {
                at.buffer += 3;
                Values::Strings(Row::new(parts, (first + 1, first + 2), *offsets, rows, growth)?)
            }
            Kind::Views => {
                let count = parts.view_buffers(at.view);
                at.view += 1;
                at.buffer = (at.buffer + 2).saturating_add(count);
                Values::Views(Views::new(parts, first + 1, count)?)
            }
            Kind::List(offsets, kind) => {
                at.buffer += 2;
                let mut element = Box::new(Reader::new(kind, parts, at, growth)?);
                let (mut offsets, width) = (parts.buffer(first + 1)?, offsets.bytes());
                // Without rows even the first offset may be left out.
                let offset = if rows > 0 { offsets.number(width)? } else { 0 };
                element.skip(offset, growth)?;
                Values::List { offsets, width, offset, element }
            }
            Kind::Struct(fields) => {
                at.buffer += 1;
                let mut readers = vec![];
                for (name, kind) in fields {
                    let reader = Reader::new(kind, parts, at, growth)?;
                    if reader.left < rows {
                        return Err(few(reader.left, rows));
                    }
                    readers.push((name.clone(), reader));
                }
                Values::Struct(readers)
            }
            Kind::Refused { what, shape } => {
                at.node += shape.nodes.saturating_sub(1);
                let views = (0..shape.views).map(|view| parts.view_buffers(at.view.saturating_add(view)));
                let buffers = views.fold(shape.buffers, usize::saturating_add);
                at.buffer = at.buffer.saturating_add(buffers).min(usize::MAX / 2);
                at.view += shape.views;
                // Rows under a null of the struct around them have values that nobody reads.
                if nulls == rows {
                    validity = Some(Validity::all());
                    Values::Null
                } else {
                    Values::Refused(what.clone())
                }
            }
        };
        let validity = validity.map_or_else(|| parts.validity(first, nulls), Ok)?;
        Ok(Reader { left: rows, validity, values })
    }

    /// Writes the next row.
    ///
    /// # Errors
    /// Damage, and more than a row or the file may hold.
    pub fn next(&mut self, json: &mut JsonText, growth: &mut Growth) -> Result<Written, Problem> {
        self.left = self.left.checked_sub(1).ok_or_else(|| few(0, 1))?;
        if !self.validity.next()? {
            self.pass(1, growth)?;
            return Ok(Written::Nothing);
        }
        match &mut self.values {
            Values::Null => return Ok(Written::Nothing),
            Values::Refused(what) => {
                let remedy = "leave the field out, or write it as a string";
                return Err(Problem::Unsupported { what: what.clone(), remedy });
            }
            Values::Booleans(bits) => json.boolean(bits.next()?),
            Values::Integers(numbers, integers) => json.integer(integers.number(numbers.number(integers.bytes)?)),
            Values::Floats(numbers, bytes) => {
                let word = numbers.number(*bytes)?;
                let is_single = *bytes == 4;
                json.float(if is_single { f32::from_bits(word as u32).into() } else { f64::from_bits(word) })?;
            }
            Values::Strings(row) => {
                let mut bytes = room(row.next(1)?, growth)?;
                row.values.fill(&mut bytes)?;
                json.string(&bytes)?;
            }
            Values::Views(views) => json.string(&views.next(growth)?)?,
            Values::List { offsets, width, offset, element } => {
                let end = offsets.number(*width)?;
                let count = end.checked_sub(*offset).ok_or_else(|| backwards(*offset, end))?;
                *offset = end;
                json.mark('[');
                for index in 0..count {
                    if index > 0 {
                        json.mark(',');
                    }
                    if element.next(json, growth)? == Written::Nothing {
                        json.null();
                    }
                    json.count(1, growth)?;
                }
                json.mark(']');
            }
            Values::Struct(fields) => {
                json.mark('{');
                for (name, field) in fields {
                    let before = json.place();
                    json.field(name)?;
                    if field.next(json, growth)? == Written::Nothing {
                        json.cut(before);
                    }
                }
                json.mark('}');
            }
        }
        Ok(Written::Value)
    }

    /// Skips `count` rows.
    fn skip(&mut self, count: u64, growth: &mut Growth) -> Result<(), Problem> {
        self.left = self.left.checked_sub(count).ok_or_else(|| few(self.left, count))?;
        growth.add(count)?;
        for _ in 0..count {
            self.validity.next()?;
        }
        self.pass(count, growth)
    }

    /// Moves all values by `count` rows.
    fn pass(&mut self, count: u64, growth: &mut Growth) -> Result<(), Problem> {
        match &mut self.values {
            Values::Null | Values::Refused(_) => Ok(()),
            Values::Booleans(bits) => (0..count).try_for_each(|_| bits.next().map(drop)),
            Values::Integers(numbers, integers) => numbers.skip(count.saturating_mul(integers.bytes as u64)),
            Values::Floats(numbers, bytes) => numbers.skip(count.saturating_mul(*bytes as u64)),
            Values::Strings(row) => (0..count).try_for_each(|_| row.pass(growth)),
            Values::Views(views) => views.skip(count),
            Values::List { offsets, width, offset, element } => {
                for _ in 0..count {
                    let end = offsets.number(*width)?;
                    let count = end.checked_sub(*offset).ok_or_else(|| backwards(*offset, end))?;
                    *offset = end;
                    element.skip(count, growth)?;
                }
                Ok(())
            }
            Values::Struct(fields) => fields.iter_mut().try_for_each(|(_, field)| field.skip(count, growth)),
        }
    }
}

fn few(there: u64, wanted: u64) -> Problem {
    Problem::damaged(format!("a nested column has {there} values where {wanted} are announced"))
}

fn backwards(start: u64, end: u64) -> Problem {
    Problem::damaged(format!("an offset is {end}, after {start}"))
}
