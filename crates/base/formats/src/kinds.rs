//! Rows of one column of a table.

use crate::error::{FormatError, Problem};

/// The column of a row: text, or tokens that were made before. A row without a value has an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Text(String),
    Tokens(Vec<u32>),
}

/// The column that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnChoice {
    /// The first of these that the table has.
    FirstOf(&'static [&'static str]),
    Named(String),
}

impl ColumnChoice {
    /// The place of the column among `names`.
    ///
    /// # Errors
    /// No such column; the names that are there are listed.
    pub fn place(&self, names: &[&str]) -> Result<usize, Problem> {
        let wanted: Vec<&str> = match self {
            ColumnChoice::FirstOf(list) => list.to_vec(),
            ColumnChoice::Named(name) => vec![name],
        };
        let found = wanted.iter().find_map(|wanted| names.iter().position(|name| name == wanted));
        found.ok_or_else(|| {
            let mut listed: Vec<String> = names.iter().take(LISTED).map(|name| format!("{name:?}")).collect();
            if names.len() > LISTED {
                listed.push("…".into());
            }
            let wanted: Vec<String> = wanted.iter().map(|name| format!("{name:?}")).collect();
            Problem::Column {
                found: format!("there is no column {}; its columns are {}", wanted.join(" or "), listed.join(", ")),
                remedy: "name one of them with `column`".into(),
            }
        })
    }
}

/// The use of a column that is neither of strings nor of lists of whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// It is refused.
    Refused,
    /// Its rows are JSON texts: objects of its structs without fields that are null, arrays of its lists. A row that is
    /// null has an empty text.
    Json,
    /// Its rows are JSON texts, and so are those of lists of whole numbers, which may be negative then.
    Numbers,
}

/// The remedy for a column of values that are not read, where it is nested or not.
pub(crate) const USE_FLAT: &str = "use a column of strings, or of lists of whole numbers";
pub(crate) const USE_FLAT_OR_CHAT: &str =
    "use a column of strings, or of lists of whole numbers; conversations are read by `data.chat`";

/// The most levels of a nested column.
pub(crate) const MOST_LEVELS: usize = 32;

/// Names of columns that a message lists.
const LISTED: usize = 20;

/// The rows of a table, one after the other.
pub trait Rows {
    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// The first thing in the file that is wrong, with its place.
    fn next_row(&mut self) -> Result<Option<Cell>, FormatError>;
}
