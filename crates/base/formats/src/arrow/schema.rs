//! The columns of an Arrow file, and the buffers that each has in a batch.

use super::flat::Table;
use crate::error::Problem;
use crate::kinds::ColumnChoice;

/// Columns within columns that are followed.
const DEEPEST: usize = 32;

/// How the offsets of strings and lists are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offsets {
    Bits32,
    Bits64,
}

impl Offsets {
    /// Bytes of one offset.
    pub fn bytes(self) -> usize {
        match self {
            Offsets::Bits32 => 4,
            Offsets::Bits64 => 8,
        }
    }
}

/// Whole numbers of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integers {
    pub bytes: usize,
    pub is_signed: bool,
}

/// The content of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Strings(Offsets),
    /// Strings whose places are 16 bytes each, in any number of buffers.
    Views,
    Lists(Offsets, Integers),
}

/// The column that is read, with what is before it in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub content: Content,
    /// Nodes and buffers of the columns before it.
    pub first_node: usize,
    pub first_buffer: usize,
    /// Columns of views before it, each with a number of buffers that a batch gives.
    pub views_before: usize,
}

/// The nodes and buffers of a column in a batch.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    nodes: usize,
    buffers: usize,
    views: usize,
}

/// Finds the column among the fields of a schema.
pub fn find(schema: &Table, choice: &ColumnChoice) -> Result<Column, Problem> {
    if schema.number(0, 2)? != 0 {
        let what = "a table of big-endian numbers".into();
        return Err(Problem::Unsupported { what, remedy: "write it on another machine" });
    }
    let fields = schema.tables(1)?;
    let names = fields.iter().map(|field| field.text(0)).collect::<Result<Vec<String>, Problem>>()?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let place = choice.place(&names)?;
    let mut before = Shape::default();
    for field in &fields[..place] {
        add(field, &mut before, 0)?;
    }
    let content = content(&fields[place], names[place])?;
    Ok(Column { content, first_node: before.nodes, first_buffer: before.buffers, views_before: before.views })
}

/// The types of values, in the order of the format.
const TYPES: [&str; 27] = [
    "none",
    "null",
    "int",
    "float",
    "binary",
    "utf8",
    "bool",
    "decimal",
    "date",
    "time",
    "timestamp",
    "interval",
    "list",
    "struct",
    "union",
    "fixed-size binary",
    "fixed-size list",
    "map",
    "duration",
    "large binary",
    "large utf8",
    "large list",
    "run-end encoded",
    "binary view",
    "utf8 view",
    "list view",
    "large list view",
];

const TYPE: usize = 2;
const TYPE_TABLE: usize = 3;
const DICTIONARY: usize = 4;
const CHILDREN: usize = 5;

fn content(field: &Table, name: &str) -> Result<Content, Problem> {
    let wrong = |found: String| {
        let remedy = "use a column of strings, or of lists of whole numbers".into();
        Problem::Column { found: format!("column {name:?} {found}"), remedy }
    };
    if field.table(DICTIONARY)?.is_some() {
        return Err(wrong("has values by their places in a dictionary".into()));
    }
    let offsets = match field.number(TYPE, 1)? {
        5 => return Ok(Content::Strings(Offsets::Bits32)),
        20 => return Ok(Content::Strings(Offsets::Bits64)),
        24 => return Ok(Content::Views),
        12 => Offsets::Bits32,
        21 => Offsets::Bits64,
        other => {
            let name = usize::try_from(other).ok().and_then(|place| TYPES.get(place)).unwrap_or(&"unknown");
            return Err(wrong(format!("has values of type {name}")));
        }
    };
    let children = field.tables(CHILDREN)?;
    let child = children.first().ok_or_else(|| wrong("has lists of nothing".into()))?;
    if child.number(TYPE, 1)? != 2 || child.table(DICTIONARY)?.is_some() {
        return Err(wrong("has lists of other things than whole numbers".into()));
    }
    let kind = child.table(TYPE_TABLE)?;
    let bits = kind.map_or(Ok(0), |kind| kind.number(0, 4))?;
    let is_signed = kind.map_or(Ok(0), |kind| kind.number(1, 1))? != 0;
    match bits {
        8 | 16 | 32 | 64 => Ok(Content::Lists(offsets, Integers { bytes: bits as usize / 8, is_signed })),
        _ => Err(wrong(format!("has whole numbers of {bits} bits"))),
    }
}

/// Adds what `field` and the fields below it have in a batch.
fn add(field: &Table, shape: &mut Shape, depth: usize) -> Result<(), Problem> {
    if depth > DEEPEST {
        return Err(Problem::damaged(format!("its columns have more than {DEEPEST} levels")));
    }
    shape.nodes += 1;
    if field.table(DICTIONARY)?.is_some() {
        shape.buffers += 2;
        return Ok(());
    }
    shape.buffers += match field.number(TYPE, 1)? {
        // Nothing at all, and runs whose ends and values are columns of their own.
        1 | 22 => 0,
        // Structures and lists of one length have validity only.
        13 | 16 => 1,
        // Strings and bytes; lists that name their sizes.
        4 | 5 | 19 | 20 | 25 | 26 => 3,
        14 => 1 + usize::from(field.table(TYPE_TABLE)?.map_or(Ok(0), |kind| kind.number(0, 2))? == 1),
        23 | 24 => {
            shape.views += 1;
            2
        }
        2 | 3 | 6..=12 | 15 | 17 | 18 | 21 => 2,
        other => {
            let what = format!("a column of type {other}");
            return Err(Problem::Unsupported { what, remedy: "write the table without it" });
        }
    };
    field.tables(CHILDREN)?.iter().try_for_each(|child| add(child, shape, depth + 1))
}
