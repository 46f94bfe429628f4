//! The types of a nested column, which is read as JSON.

use super::flat::Table;
use super::schema::{self, CHILDREN, DICTIONARY, Integers, Offsets, Shape, TYPE, TYPE_TABLE};
use crate::error::Problem;
use crate::kinds::MOST_LEVELS;

/// The type of a column or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing but nulls.
    Null,
    Boolean,
    Integers(Integers),
    /// Numbers of 4 or 8 bytes.
    Floats(usize),
    Strings(Offsets),
    Views,
    List(Offsets, Box<Kind>),
    Struct(Vec<(String, Kind)>),
    /// A type that is not read: it is named where a value is there.
    Refused {
        what: String,
        shape: Shape,
    },
}

/// The type of the column `field`, which is `depth` levels below the chosen one.
///
/// # Errors
/// A damaged description; more levels than are read.
pub fn kind(field: &Table, depth: usize) -> Result<Kind, Problem> {
    if depth > MOST_LEVELS {
        return Err(Problem::damaged(format!("its columns have more than {MOST_LEVELS} levels")));
    }
    if field.table(DICTIONARY)?.is_some() {
        return refused(field, "by their places in a dictionary", depth);
    }
    let list = |offsets: Offsets| -> Result<Kind, Problem> {
        let children = field.tables(CHILDREN)?;
        let child = children.first().ok_or_else(|| Problem::damaged("a list has no elements"))?;
        Ok(Kind::List(offsets, Box::new(kind(child, depth + 1)?)))
    };
    match field.number(TYPE, 1)? {
        1 => Ok(Kind::Null),
        2 => match Integers::of(field)? {
            Some(integers) => Ok(Kind::Integers(integers)),
            None => refused(field, "of an unusual length", depth),
        },
        3 => match field.table(TYPE_TABLE)?.map_or(Ok(0), |kind| kind.number(0, 2))? {
            1 => Ok(Kind::Floats(4)),
            2 => Ok(Kind::Floats(8)),
            _ => refused(field, "of 16 bits", depth),
        },
        5 => Ok(Kind::Strings(Offsets::Bits32)),
        6 => Ok(Kind::Boolean),
        12 => list(Offsets::Bits32),
        schema::STRUCT => {
            let named = |child: &Table| Ok((child.text(0)?, kind(child, depth + 1)?));
            field.tables(CHILDREN)?.iter().map(named).collect::<Result<_, Problem>>().map(Kind::Struct)
        }
        20 => Ok(Kind::Strings(Offsets::Bits64)),
        21 => list(Offsets::Bits64),
        24 => Ok(Kind::Views),
        _ => refused(field, "that are not read", depth),
    }
}

fn refused(field: &Table, why: &str, depth: usize) -> Result<Kind, Problem> {
    let mut shape = Shape::default();
    schema::add(field, &mut shape, depth)?;
    let what = format!("field {:?} with values of type {} {why}", field.text(0)?, schema::type_name(field)?);
    Ok(Kind::Refused { what, shape })
}
