//! The elements of a schema of parquet, and the columns of values among them.

use super::thrift::{Kind, Read, Reader};
use crate::error::Problem;

/// How values of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Physical {
    Boolean,
    Int32,
    Int64,
    Float,
    Double,
    Bytes,
    /// Values of this many bytes each.
    Fixed(u32),
}

/// A column of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub physical: Physical,
    /// Definition level of a value that is there.
    pub max_definition: u32,
    /// Definition level from which on a list has an element.
    pub element_definition: u32,
    /// The number of lists around a value.
    pub max_repetition: u32,
}

/// How often an element occurs where the one above it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repetition {
    #[default]
    Required,
    Optional,
    Repeated,
}

/// An element of the tree of columns, in the order of a walk from the root.
#[derive(Clone, Debug, Default)]
pub struct Element {
    pub name: String,
    /// The place among [`TYPES`].
    pub kind: Option<i64>,
    /// Bytes of a value of fixed length.
    pub bytes: usize,
    pub repetition: Repetition,
    pub children: usize,
    /// The meaning of values, by the number of the older and of the newer list of the format.
    pub converted: Option<i64>,
    pub logical: Option<i64>,
    /// Whether the newer list says that whole numbers have no sign.
    pub is_unsigned: bool,
}

/// The types of values, in the order of the format.
const TYPES: [&str; 8] =
    ["BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"];

/// The logical type of whole numbers.
const LOGICAL_INTEGER: i64 = 10;
/// Bytes of the type INT96.
const INT96_BYTES: u32 = 12;

impl Element {
    /// The next element of a schema.
    pub fn read(reader: &mut Reader) -> Result<Element, Problem> {
        let mut element = Element::default();
        reader.fields(|reader, number, kind| {
            match (number, kind) {
                (1, Kind::Integer) => element.kind = Some(reader.integer()?),
                (2, Kind::Integer) => element.bytes = reader.length()?,
                (3, Kind::Integer) => {
                    element.repetition = match reader.integer()? {
                        0 => Repetition::Required,
                        2 => Repetition::Repeated,
                        _ => Repetition::Optional,
                    }
                }
                (4, Kind::Binary) => element.name = reader.text()?,
                (5, Kind::Integer) => element.children = reader.length()?,
                (6, Kind::Integer) => element.converted = Some(reader.integer()?),
                (10, Kind::Struct) => reader.fields(|reader, number, kind| {
                    element.logical = Some(number);
                    if number != LOGICAL_INTEGER || kind != Kind::Struct {
                        return Ok(Read::No);
                    }
                    reader.fields(|_, number, kind| {
                        element.is_unsigned |= number == 2 && kind == Kind::False;
                        Ok(Read::No)
                    })?;
                    Ok(Read::Yes)
                })?,
                _ => return Ok(Read::No),
            }
            Ok(Read::Yes)
        })?;
        Ok(element)
    }

    /// How its values are written; `None` for a type that is not known.
    pub fn physical(&self) -> Option<Physical> {
        match self.kind? {
            0 => Some(Physical::Boolean),
            1 => Some(Physical::Int32),
            2 => Some(Physical::Int64),
            3 => Some(Physical::Fixed(INT96_BYTES)),
            4 => Some(Physical::Float),
            5 => Some(Physical::Double),
            6 => Some(Physical::Bytes),
            7 => u32::try_from(self.bytes).ok().map(Physical::Fixed),
            _ => None,
        }
    }

    /// The name of the type of its values.
    pub fn type_name(&self) -> &'static str {
        let place = self.kind.and_then(|kind| usize::try_from(kind).ok());
        place.and_then(|place| TYPES.get(place)).unwrap_or(&"unknown")
    }
}

/// The element after `at` and all that is below it.
pub fn after(elements: &[Element], at: usize) -> Result<usize, Problem> {
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
