//! The column `tools` of a table of conversations.

use formats::{Cell, ColumnChoice, FormatError, Problem, Rows};

/// The column of the tools that a model may call.
const TOOLS: &str = "tools";

/// The column `tools` of the table that `table` opens; `None` where the table has no such column.
///
/// # Errors
/// A column of values that are not read.
pub(crate) fn open(
    table: impl Fn(&ColumnChoice) -> Result<Box<dyn Rows + Send>, FormatError>,
) -> Result<Option<Box<dyn Rows + Send>>, FormatError> {
    match table(&ColumnChoice::Named(TOOLS.into())) {
        Ok(rows) => Ok(Some(rows)),
        Err(FormatError { problem: Problem::Column { .. }, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The record of a conversation as JSON: `messages`, which the column `column` has, with the tools of the row if it
/// has any. An object is a record already, with tools of its own.
///
/// # Errors
/// Tools that are not JSON, as the rest of a sentence.
pub(crate) fn with_tools(column: &str, messages: String, tools: Option<Cell>) -> Result<String, String> {
    let tools = match tools {
        None => return Ok(messages),
        Some(Cell::Text(text)) => text,
        Some(Cell::Tokens(_)) => return Err(format!("has a column `{TOOLS}` of numbers")),
    };
    if matches!(tools.trim(), "" | "null") || !messages.trim_start().starts_with('[') {
        return Ok(messages);
    }
    // Both are texts within the record, so that neither can continue in the other.
    Ok(serde_json::json!({ column: messages, TOOLS: tools }).to_string())
}
