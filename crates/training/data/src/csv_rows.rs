//! One column of a text of CSV or TSV with a header.
//!
//! Source of the format: RFC 4180, here also with ends of lines without a carriage return, and with tabs as separators.

use std::path::Path;

use formats::{ColumnChoice, Problem};

use crate::error::DataError;
use crate::text_source::Text;

/// The most columns of a header.
const MOST_COLUMNS: usize = 1 << 16;

/// The byte between two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    Comma,
    Tab,
}

impl Separator {
    /// The separator of files whose names end with `ending`; `None` for others.
    pub(crate) fn of(ending: &str) -> Option<Separator> {
        match ending {
            "csv" => Some(Separator::Comma),
            "tsv" => Some(Separator::Tab),
            _ => None,
        }
    }

    fn byte(self) -> u8 {
        match self {
            Separator::Comma => b',',
            Separator::Tab => b'\t',
        }
    }
}

/// The rows that are left.
#[derive(Clone, Debug)]
pub(crate) struct CsvRows {
    separator: Separator,
    /// The column that is read, and the number of all.
    column: usize,
    columns: usize,
    line_ends: usize,
}

/// A row: the line in which it begins, its bytes, and where its fields are in them.
struct Row {
    line: usize,
    bytes: usize,
    fields: Vec<std::ops::Range<usize>>,
}

impl CsvRows {
    /// Reads the header and finds the column.
    ///
    /// # Errors
    /// A header that is missing, or without the column.
    pub(crate) fn open(
        text: &mut Text,
        path: &Path,
        separator: Separator,
        choice: &ColumnChoice,
    ) -> Result<CsvRows, DataError> {
        let mut rows = CsvRows { separator, column: 0, columns: 0, line_ends: 0 };
        let refused = |line, problem| DataError::NotRow { path: path.to_path_buf(), line, problem };
        let header = rows.row(text, path)?.ok_or_else(|| refused(1, "has no header".into()))?;
        if header.fields.len() > MOST_COLUMNS {
            return Err(refused(header.line, format!("has more than {MOST_COLUMNS} columns")));
        }
        let content = text.take_text(path, header.bytes)?;
        let names: Vec<String> = header.fields.iter().map(|range| unquoted(&content[range.clone()])).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        rows.columns = names.len();
        rows.column = choice.place(&names).map_err(|problem: Problem| DataError::BadTable {
            path: path.to_path_buf(),
            error: formats::FormatError { place: "line 1".into(), problem },
        })?;
        Ok(rows)
    }

    /// The field of the next row, with the line in which the row begins; `None` after the last. Lines without
    /// anything are skipped.
    ///
    /// # Errors
    /// A row with fewer or more fields than the header, or with quotes that do not end.
    pub(crate) fn next_row(&mut self, text: &mut Text, path: &Path) -> Result<Option<(usize, String)>, DataError> {
        let Some(Row { line, bytes, fields }) = self.row(text, path)? else { return Ok(None) };
        if fields.len() != self.columns {
            let problem = format!("has {} fields, and the header {}", fields.len(), self.columns);
            return Err(DataError::NotRow { path: path.to_path_buf(), line, problem });
        }
        let content = text.take_text(path, bytes)?;
        Ok(Some((line, unquoted(&content[fields[self.column].clone()]))))
    }

    /// Finds the fields of the next row, which stays to be used.
    fn row(&mut self, text: &mut Text, path: &Path) -> Result<Option<Row>, DataError> {
        while text.reaches_after(path, self.line_ends + 1, 0)? && matches!(text.rest()[0], b'\n' | b'\r') {
            self.line_ends += usize::from(text.take(1) == b"\n");
        }
        if text.rest().is_empty() {
            return Ok(None);
        }
        let line = self.line_ends + 1;
        let refused = |problem: &str| DataError::NotRow { path: path.to_path_buf(), line, problem: problem.into() };
        let (mut at, mut start, mut fields, mut in_quotes) = (0, 0, vec![], false);
        while text.reaches_after(path, line, at)? {
            let byte = text.rest()[at];
            // The end of the row itself is counted with the next row.
            self.line_ends += usize::from(byte == b'\n' && in_quotes);
            match byte {
                // Two quotes within quotes are one, and leave the state as it is.
                b'"' if in_quotes || at == start => in_quotes = !in_quotes,
                b'"' if text.rest()[start] == b'"' && text.rest()[at - 1] == b'"' => in_quotes = true,
                b'\n' if !in_quotes => break,
                byte if byte == self.separator.byte() && !in_quotes && fields.len() < MOST_COLUMNS => {
                    fields.push(start..at);
                    start = at + 1;
                }
                b'\r' if !in_quotes => {}
                _ if !in_quotes && at > start && text.rest()[start] == b'"' => {
                    return Err(refused("has text after the quotes of a field"));
                }
                _ => {}
            }
            at += 1;
        }
        if in_quotes {
            return Err(refused("has quotes that do not end"));
        }
        let end = at - usize::from(at > start && text.rest()[at - 1] == b'\r');
        fields.push(start..end);
        Ok(Some(Row { line, bytes: at, fields }))
    }
}

/// The content of a field.
fn unquoted(field: &str) -> String {
    match field.strip_prefix('"').and_then(|field| field.strip_suffix('"')) {
        Some(within) => within.replace("\"\"", "\""),
        None => field.to_string(),
    }
}
