//! Tables of measured runs: comma-separated, one run per row, a header that names the columns.

use std::collections::{BTreeMap, BTreeSet};

use config::nearest;

/// A table as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// Rows in order.
    pub rows: Vec<Row>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index among the rows of the table, from 0.
    pub index: usize,
    /// Line in the file, from 1.
    pub line: usize,
    cells: BTreeMap<String, String>,
}

/// The reason that a text is not a table of runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// There is nothing in it.
    #[error("{0} has no header; the first line names the columns")]
    NoHeader(String),
    /// A column that every run needs is not there.
    #[error("{table} has no column `{column}`; it needs {needed}")]
    NoColumn {
        /// The file.
        table: String,
        /// The column.
        column: &'static str,
        /// All that are needed.
        needed: String,
    },
    /// A name that two columns have.
    #[error("{table} has the column `{column}` twice; leave one out")]
    ColumnTwice {
        /// The file.
        table: String,
        /// The column.
        column: String,
    },
    /// Columns that are not read, whose names are nearly those of columns that are.
    #[error("{table} has columns that are not read: {}; rename them, or leave them out", meant(columns))]
    Misnamed {
        /// The file.
        table: String,
        /// The names, each with the name that is read.
        columns: Vec<(String, &'static str)>,
    },
    /// More rows than are read.
    #[error("{table} has more than {MOST_ROWS} rows; use parts of it")]
    TooManyRows {
        /// The file.
        table: String,
    },
    /// No column has a value that a prediction can be compared with.
    #[error(
        "{table} has none of the columns {columns}, so nothing in it was measured; add `iter_s`, the seconds of a step",
        columns = MEASURED.join(", ")
    )]
    NothingMeasured {
        /// The file.
        table: String,
    },
    /// A row with more or fewer cells than columns.
    #[error("{table}, line {line}: {}", of_columns(*cells, *columns))]
    Cells {
        /// The file.
        table: String,
        /// The line.
        line: usize,
        /// Its cells.
        cells: usize,
        /// Columns of the header.
        columns: usize,
    },
    /// A cell that is not what its column holds.
    #[error("line {line}: {column} = `{value}` is {rule}")]
    Cell {
        /// The line.
        line: usize,
        /// The column.
        column: String,
        /// The content.
        value: String,
        /// The error.
        rule: String,
    },
    /// A cell that is empty, and every run has what it would say.
    #[error("line {line}: {column} is empty; {LEAVE_OUT}")]
    Empty {
        /// The line.
        line: usize,
        /// The column.
        column: String,
    },
    /// A run that is larger than anything that is planned.
    #[error("line {line}: {problem}; {CORRECTION}")]
    TooLarge {
        /// The line.
        line: usize,
        /// In the words of run files.
        problem: String,
    },
    /// A run that pleach has no words for. Other rows of the table can be used without it.
    #[error("line {line}: {column} = `{value}` is {what}")]
    Beyond {
        /// The line.
        line: usize,
        /// The column that says so.
        column: String,
        /// The content.
        value: String,
        /// Its meaning.
        what: String,
    },
}

/// Most rows of a table.
const MOST_ROWS: usize = 10_000;

/// Counts are below this, as in a run file.
const COUNTS_END: usize = 1 << 31;

/// Columns without which a row is not a run.
const NEEDED: [&str; 6] = ["layers", "hidden", "heads", "tp", "pp", "global_batch"];

/// Columns of which each says something that was measured.
const MEASURED: [&str; 4] = ["iter_s", "mem_gb", "resident_gb", "status"];

/// All columns that are read.
const READ: [&str; 30] = [
    "model",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "vocab",
    "seq",
    "activation",
    "gpus",
    "dp",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "schedule",
    "zero",
    "micro_batch",
    "global_batch",
    "recompute",
    "seq_parallel",
    "flash_attn",
    "precision",
    "iter_s",
    "mem_gb",
    "mem_kind",
    "resident_gb",
    "status",
    "notes",
];

/// Other names of columns that are read.
const ALIASES: [(&str, &str); 14] = [
    ("activation_checkpointing", "recompute"),
    ("recomputation", "recompute"),
    ("mbs", "micro_batch"),
    ("microbatch_size", "micro_batch"),
    ("sequence_length", "seq"),
    ("context", "seq"),
    ("num_kv_heads", "kv_heads"),
    ("num_gpus", "gpus"),
    ("world_size", "gpus"),
    ("ffn_hidden", "ffn"),
    ("sequence_parallel", "seq_parallel"),
    ("dtype", "precision"),
    ("step_s", "iter_s"),
    ("memory_gb", "mem_gb"),
];

/// Columns that a run may lack without being another run.
const LABELS: [&str; 2] = ["model", "notes"];

/// How to continue without a row that lacks what every run has.
const LEAVE_OUT: &str = "every run has one, so write it, or leave the row out with --rows";

/// The remedy for cells that contradict each other.
pub(crate) const CORRECTION: &str = "correct the wrong one";

impl Table {
    /// Reads a table; lines that begin with `#` are comments. `name` stands for it in messages.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn read(name: &str, text: &str) -> Result<Table, TableError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        let mut lines = lines.map(|(index, line)| (index + 1, cells(line)));
        let (_, columns) = lines.next().ok_or_else(|| TableError::NoHeader(name.into()))?;
        let mut seen = BTreeSet::new();
        if let Some(column) = columns.iter().find(|column| !seen.insert(column.as_str())) {
            return Err(TableError::ColumnTwice { table: name.into(), column: column.clone() });
        }
        if let Some(column) = NEEDED.into_iter().find(|needed| !columns.iter().any(|column| column == needed)) {
            return Err(TableError::NoColumn { table: name.into(), column, needed: NEEDED.join(", ") });
        }
        let mut rows = vec![];
        for (index, (line, cells)) in lines.enumerate() {
            if cells.len() != columns.len() {
                let (cells, columns) = (cells.len(), columns.len());
                return Err(TableError::Cells { table: name.into(), line, cells, columns });
            }
            if index == MOST_ROWS {
                return Err(TableError::TooManyRows { table: name.into() });
            }
            rows.push(Row { index, line, cells: columns.iter().cloned().zip(cells).collect() });
        }
        Ok(Table { columns, rows })
    }

    /// The columns that are not read. One whose name is nearly that of a column that is read, and that the table lacks,
    /// is refused: its values would be taken for the default. `name` stands for the table in messages.
    ///
    /// # Errors
    /// [`TableError::Misnamed`]
    pub fn check_columns(&self, name: &str) -> Result<Vec<&str>, TableError> {
        let has = |asked: &str| self.columns.iter().any(|column| column == asked);
        let unread: Vec<&str> = self.columns.iter().map(String::as_str).filter(|name| !READ.contains(name)).collect();
        let lacked: Vec<&'static str> = READ
            .into_iter()
            .filter(|read| !(has(read) || LABELS.contains(read) || *read == "gpus" && has("dp")))
            .collect();
        let meant = |column: &str| {
            let alias = ALIASES.into_iter().find(|(alias, _)| column.eq_ignore_ascii_case(alias)).map(|(_, read)| read);
            let meant = alias.or_else(|| nearest(column, lacked.iter().copied()))?;
            lacked.contains(&meant).then(|| (column.to_string(), meant))
        };
        let columns: Vec<(String, &'static str)> = unread.iter().filter_map(|column| meant(column)).collect();
        match columns.is_empty() {
            true => Ok(unread),
            false => Err(TableError::Misnamed { table: name.into(), columns }),
        }
    }

    /// Whether there are columns for what was measured. `name` stands for the table in messages.
    ///
    /// # Errors
    /// [`TableError::NothingMeasured`]
    pub fn check_measured(&self, name: &str) -> Result<(), TableError> {
        match MEASURED.iter().any(|measured| self.columns.iter().any(|column| column == measured)) {
            true => Ok(()),
            false => Err(TableError::NothingMeasured { table: name.into() }),
        }
    }
}

/// That a row has more or fewer cells than columns, with the remedy.
fn of_columns(cells: usize, columns: usize) -> String {
    let of = if cells == 1 { "cell" } else { "cells" };
    let remedy = match cells < columns {
        true => "write a comma for each cell that is empty",
        false => "put cells with commas in quotation marks",
    };
    format!("{cells} {of} for {columns} columns; {remedy}")
}

/// Each misnamed column with the name that is read: `recomputation` (`recompute` is read).
fn meant(columns: &[(String, &str)]) -> String {
    let each: Vec<String> = columns.iter().map(|(column, read)| format!("`{column}` (`{read}` is read)")).collect();
    each.join(", ")
}

/// The cells of a line; one in quotation marks may hold commas.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            _ => cells.iter_mut().last().into_iter().for_each(|cell| cell.push(letter)),
        }
    }
    cells.iter().map(|cell| cell.trim().to_string()).collect()
}

impl Row {
    /// The content of a column; nothing in one that the table has not, or where the cell is empty.
    pub fn text(&self, column: &str) -> Option<&str> {
        self.cells.get(column).map(String::as_str).filter(|cell| !cell.is_empty())
    }

    /// The same in small letters, with `-` for `_`.
    pub fn word(&self, column: &str) -> Option<String> {
        self.text(column).map(|text| text.to_ascii_lowercase().replace('_', "-"))
    }

    /// A number above 0, as all that is measured is; nothing where the cell is empty.
    ///
    /// # Errors
    /// A cell that is not such a number.
    pub fn number(&self, column: &str) -> Result<Option<f64>, TableError> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
        number.map(Some).ok_or_else(|| {
            self.refused(column, "not a number above 0; leave it empty where nothing was measured".into())
        })
    }

    /// A whole number above 0; nothing where the cell is empty.
    ///
    /// # Errors
    /// A cell that is not such a number.
    pub fn count(&self, column: &str) -> Result<Option<usize>, TableError> {
        let Some(text) = self.text(column) else { return Ok(None) };
        match text.parse() {
            Ok(0) | Err(_) => {
                let remedy = if NEEDED.contains(&column) { LEAVE_OUT } else { "leave it empty for the default" };
                Err(self.refused(column, format!("not a whole number above 0; {remedy}")))
            }
            Ok(COUNTS_END..) => Err(self.refused(column, format!("not below {COUNTS_END}; {CORRECTION}"))),
            Ok(count) => Ok(Some(count)),
        }
    }

    /// A whole number above 0 that every run has.
    ///
    /// # Errors
    /// A cell that is empty or no such number.
    pub fn required(&self, column: &str) -> Result<usize, TableError> {
        self.count(column)?.ok_or_else(|| TableError::Empty { line: self.line, column: column.into() })
    }

    /// Whether `notes` quote Megatron's arguments, as `{'name': 'value'; ...}`.
    pub fn has_arguments(&self) -> bool {
        self.text("notes").is_some_and(|notes| notes.contains("{'"))
    }

    /// The column that says what pleach has no words for, where the error is that.
    pub fn column_beyond(error: &TableError) -> Option<&str> {
        match error {
            TableError::Beyond { column, .. } => Some(column),
            TableError::NoHeader(_)
            | TableError::NoColumn { .. }
            | TableError::ColumnTwice { .. }
            | TableError::Misnamed { .. }
            | TableError::TooManyRows { .. }
            | TableError::NothingMeasured { .. }
            | TableError::Cells { .. }
            | TableError::Cell { .. }
            | TableError::Empty { .. }
            | TableError::TooLarge { .. } => None,
        }
    }

    /// The value of an argument that `notes` quote.
    pub fn argument(&self, name: &str) -> Option<&str> {
        let (_, behind) = self.text("notes")?.split_once(&format!("'{name}': '"))?;
        behind.split_once('\'').map(|(value, _)| value)
    }

    /// That a cell says what pleach has no words for.
    pub fn beyond(&self, column: &str, what: impl Into<String>) -> TableError {
        let value = self.text(column).unwrap_or("").to_string();
        TableError::Beyond { line: self.line, column: column.into(), value, what: what.into() }
    }

    /// That the run is larger than anything that is planned.
    pub fn too_large(&self, problem: String) -> TableError {
        TableError::TooLarge { line: self.line, problem }
    }

    /// That a cell cannot be used, and why.
    pub fn refused(&self, column: &str, rule: String) -> TableError {
        let value = self.text(column).unwrap_or("").to_string();
        TableError::Cell { line: self.line, column: column.into(), value, rule }
    }
}
