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
