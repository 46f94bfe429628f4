//! The columns of an Arrow file, and the buffers that each has in a batch.

use super::flat::Table;
use super::nested::{self, Kind};
use crate::error::Problem;
use crate::kinds::{ColumnChoice, MOST_LEVELS, Nesting, USE_FLAT, USE_FLAT_OR_CHAT};

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

impl Integers {
    /// The number that `word` is.
    pub fn number(self, word: u64) -> i128 {
        let unused = 64 - 8 * self.bytes as u32;
        // Shifts of a signed number give the sign back.
        if self.is_signed { i128::from((word << unused) as i64 >> unused) } else { i128::from(word) }
    }

    /// The numbers of the column `field`; `None` for numbers of an unusual length.
    pub fn of(field: &Table) -> Result<Option<Integers>, Problem> {
        let kind = field.table(TYPE_TABLE)?;
        let bits = kind.map_or(Ok(0), |kind| kind.number(0, 4))?;
        let is_signed = kind.map_or(Ok(0), |kind| kind.number(1, 1))? != 0;
        Ok(matches!(bits, 8 | 16 | 32 | 64).then_some(Integers { bytes: bits as usize / 8, is_signed }))
    }
}

/// The content of the column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Strings(Offsets),
    /// Strings whose places are 16 bytes each, in any number of buffers.
    Views,
    Lists(Offsets, Integers),
    /// Nested values, which are read as JSON.
    Json(Kind),
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    pub nodes: usize,
    pub buffers: usize,
    pub views: usize,
}

/// Finds the column among the fields of a schema.
pub fn find(schema: &Table, choice: &ColumnChoice, nesting: Nesting) -> Result<Column, Problem> {
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
    let content = match (content(&fields[place], names[place]), nesting) {
        (Err(Problem::Column { .. }), Nesting::Json) | (_, Nesting::Numbers) => {
            Content::Json(nested::kind(&fields[place], 0)?)
        }
        (content, Nesting::Refused | Nesting::Json) => content?,
    };
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

/// Fields of the description of a column.
pub const TYPE: usize = 2;
pub const TYPE_TABLE: usize = 3;
pub const DICTIONARY: usize = 4;
pub const CHILDREN: usize = 5;
/// The type of structs.
pub const STRUCT: u64 = 13;

fn content(field: &Table, name: &str) -> Result<Content, Problem> {
    let wrong_for = |remedy: &str, found: String| Problem::Column {
        found: format!("column {name:?} {found}"),
        remedy: remedy.into(),
    };
    let wrong = |found: String| wrong_for(USE_FLAT, found);
    if field.table(DICTIONARY)?.is_some() {
        return Err(wrong("has values by their places in a dictionary".into()));
    }
    let offsets = match field.number(TYPE, 1)? {
        5 => return Ok(Content::Strings(Offsets::Bits32)),
        20 => return Ok(Content::Strings(Offsets::Bits64)),
        24 => return Ok(Content::Views),
        12 => Offsets::Bits32,
        21 => Offsets::Bits64,
        _ => return Err(wrong(format!("has values of type {}", type_name(field)?))),
    };
    let children = field.tables(CHILDREN)?;
    let child = children.first().ok_or_else(|| wrong("has lists of nothing".into()))?;
    if child.number(TYPE, 1)? == STRUCT {
        return Err(wrong_for(USE_FLAT_OR_CHAT, "has lists of structs".into()));
    }
    if child.number(TYPE, 1)? != 2 || child.table(DICTIONARY)?.is_some() {
        return Err(wrong("has lists of other things than whole numbers".into()));
    }
    let integers = Integers::of(child)?.ok_or_else(|| wrong("has whole numbers of an unusual length".into()))?;
    Ok(Content::Lists(offsets, integers))
}

/// The name of the type of a column.
pub fn type_name(field: &Table) -> Result<&'static str, Problem> {
    let place = usize::try_from(field.number(TYPE, 1)?).ok();
    Ok(place.and_then(|place| TYPES.get(place)).unwrap_or(&"unknown"))
}

/// Adds what `field` and the fields below it have in a batch.
pub fn add(field: &Table, shape: &mut Shape, depth: usize) -> Result<(), Problem> {
    if depth > MOST_LEVELS {
        return Err(Problem::damaged(format!("its columns have more than {MOST_LEVELS} levels")));
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
